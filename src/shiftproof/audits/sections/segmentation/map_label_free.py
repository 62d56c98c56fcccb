"""What to expect of a segmenter without labels: mIoU estimated from calibrated confidence, against the truth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from shiftproof.audits.numbers import Number
from shiftproof.audits.sections.base import Measurement, Scope, Section, Work, passes
from shiftproof.audits.sections.measuring import rows
from shiftproof.audits.sections.segmentation.map_adaptation import chosen_shifts
from shiftproof.audits.sections.segmentation.map_measuring import shifted_batch
from shiftproof.audits.sections.wording import graded, labelled, percent
from shiftproof.data.images.mask_values import IGNORE
from shiftproof.data.images.maskset import MaskSet
from shiftproof.estimators.map_estimates import expected_counts, pixel_temperature
from shiftproof.measures.overlap import count_overlap, mean_overlaps
from shiftproof.prediction_tasks import present_classes
from shiftproof.reports.view import Column, Figure, Level, Sentence, Table, Tile, View
from shiftproof.runs import Json, Result, Row
from shiftproof.shifts import Shift
from shiftproof.subjects import Subject

LEAST = 24
"""Images of each half, at least."""
GOOD, WATCH = 0.05, 0.10


@dataclass(frozen=True)
class EstimatedMaps(Measurement):
    """Estimates under shifts, on images other than those that the temperature was fitted on."""

    kind = "label_free.maps"
    shifts: tuple[Shift, ...]
    images: int
    seed: int

    def measure(self, subject: Subject) -> Row:
        """Return the temperature, and for clean images and every shift the estimated and the true mIoU."""
        if not isinstance(subject.data, MaskSet):
            raise TypeError("label maps are needed")
        present = present_classes(subject.data)
        temperature = pixel_temperature(
            subject.fast_model,
            subject.data.subset(range(self.images)),
            batch_size=subject.batch_size,
            device=subject.device,
            seed=self.seed,
        )
        found: dict[str, Json] = {}
        for shift in (None, *self.shifts):
            soft, hard = np.zeros((3, len(present))), np.zeros((3, len(present)))
            pixels = 0.0
            places = range(self.images, 2 * self.images)
            for batch in subject.data.subset(places).batches(subject.batch_size, device=subject.device):
                images, labels = shifted_batch(subject, batch, shift, self.seed)
                scores = subject.task.scores(subject.fast_model, images)
                known = labels != IGNORE
                soft += expected_counts(scores / temperature, known)
                hard += count_overlap(labels, scores.argmax(1), scores.shape[1], IGNORE).sum(0)
                pixels += float(known.sum())
            found["clean" if shift is None else shift.label] = [
                float(mean_overlaps(soft, present)),
                float(mean_overlaps(hard, present)),
                float(soft[0].sum() / max(1.0, pixels)),
                float(hard[0].sum() / max(1.0, hard[2].sum())),
            ]
        return {"images": self.images, "temperature": temperature, "estimates": found}

    def work(self) -> Work:
        """Count a pass of half the images for every shift, and of the others for the temperature."""
        return [unit for shift in (None, None, *self.shifts) for unit in passes(self.images, shift)]


class MapLabelFree(Section):
    """How far estimates of mIoU without labels are off."""

    name = "label_free"
    title = "Label-free estimation of mIoU"
    question = "How well can mIoU under shift be estimated from unlabelled images?"
    numbers = (
        Number("label_free_error", "mean absolute error of estimated mIoU over shifts", "lower"),
        Number("label_free_bias", "mean of estimated less true mIoU over shifts: above 0 it is too hopeful", None),
        Number("label_free_clean_error", "the same error on clean images", "lower"),
    )

    def plan(self, scope: Scope) -> Iterator[Measurement]:
        """Plan estimates under one corruption of each kind at three severities."""
        settings = scope.settings
        images = min(scope.images // 2, scope.scaled(settings.adaptation_images, LEAST))
        levels = sorted(
            {settings.severities[0], settings.severities[len(settings.severities) // 2], settings.severities[-1]}
        )
        kinds = chosen_shifts(scope)
        graded = [shift for shift in kinds if shift not in settings.fixed]
        shifts = [replace(shift, severity=level) for shift in graded for level in levels]
        if images > 0:
            yield EstimatedMaps((*shifts, *settings.fixed), images, settings.seed)

    def view(self, results: Sequence[Result]) -> View:
        """Tell how far estimates are off, and which way."""
        measured = rows(results, EstimatedMaps)
        if not measured:
            return View(self.name, self.title, self.question, notes=("There are too few images to hold some back.",))
        task, row = measured[0]
        found = cast("Mapping[str, Sequence[float]]", row["estimates"])
        shifted = {name: values for name, values in found.items() if name != "clean"}
        apart = {name: values[0] - values[1] for name, values in shifted.items()}
        error = float(np.mean(np.abs(list(apart.values())))) if apart else 0.0
        bias = float(np.mean(list(apart.values()))) if apart else 0.0
        level: Level = "good" if error < GOOD else "watch" if error < WATCH else "bad"
        side = "too high" if bias > 0 else "too low"
        worst = max(apart, key=lambda name: abs(apart[name]), default="clean")
        said = (
            f"mIoU estimated without labels is off by {100 * error:.1f} points on average over shifts, and {side} by "
            f"{100 * abs(bias):.1f} on balance. The largest error is under {graded(worst)}: estimated "
            f"{percent(found[worst][0])}, true {percent(found[worst][1])}."
        )
        return View(
            self.name,
            self.title,
            self.question,
            verdict=(Sentence(said, level),),
            tiles=(
                Tile(
                    "Error of estimated mIoU",
                    f"{100 * error:.1f} points",
                    "",
                    level,
                    "Mean distance between estimated and true mIoU. Good: under 5 points. Bad: over 10.",
                ),
            ),
            blocks=(_figure(found, error),),
            notes=(
                "Expected counts of pixels by class from the softmax at temperature "
                f"{float(str(row['temperature'])):.2f}, fitted on {task.images} labelled clean images; estimates and "
                f"truth are of {task.images} others. Under strong shifts the estimate is "
                "mostly too high.",
            ),
            numbers={
                "label_free_error": error,
                "label_free_bias": bias,
                "label_free_clean_error": abs(found["clean"][0] - found["clean"][1]),
            },
        )


def _figure(found: Mapping[str, Sequence[float]], error: float) -> Figure:
    names = list(found)
    truth, told = ([100 * found[name][place] for name in names] for place in (1, 0))
    span = [0, max(*truth, *told)]
    table = Table(
        "Estimated and true mIoU",
        (
            Column("shift"),
            Column("estimated mIoU", "percent"),
            Column("mIoU", "percent", heat=(0.0, 1.0)),
            Column("estimated pixel accuracy", "percent"),
            Column("pixel accuracy", "percent", heat=(0.0, 1.0)),
        ),
        tuple((labelled(name), *(found[name][place] for place in (0, 1, 2, 3))) for name in names),
    )
    points = {
        "type": "scatter",
        "mode": "markers",
        "x": truth,
        "y": told,
        "text": [labelled(name) for name in names],
        "name": "shifts",
        "hovertemplate": "%{text}: estimated %{y:.1f}%, true %{x:.1f}%<extra></extra>",
    }
    line = {"type": "scatter", "mode": "lines", "x": span, "y": span, "name": "no error"}
    layout = {"xaxis": {"title": {"text": "mIoU, %"}}, "yaxis": {"title": {"text": "estimated mIoU, %"}}}
    title = f"Estimates without labels are {100 * error:.1f} points off on average"
    return Figure(
        title, {"data": [points, line], "layout": layout}, table, caption="Above the line the estimate is too high."
    )
