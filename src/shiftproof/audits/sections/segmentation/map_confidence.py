"""Does a segmenter know which pixels are wrong: calibration of pixels, clean and under every corruption."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from shiftproof.audits.numbers import Number
from shiftproof.audits.sections.base import CLEAN, Measurement, Scope, Section
from shiftproof.audits.sections.confidence_under_shift import GOOD, LEVEL_RULE, WATCH
from shiftproof.audits.sections.measuring import rows
from shiftproof.audits.sections.segmentation.map_clean import CleanMaps
from shiftproof.audits.sections.segmentation.map_corruptions import CorruptedMaps, MapCorruptions
from shiftproof.audits.sections.segmentation.map_measuring import BINS, bins_of, calibration_error
from shiftproof.audits.sections.shift_names import cell_of, named
from shiftproof.audits.sections.wording import percent, title
from shiftproof.reports.view import Column, Figure, Level, Sentence, Table, Tile, View
from shiftproof.runs import Result, Row

Bins: TypeAlias = NDArray[np.float64]
Key = TypeVar("Key", str, float)


class MapConfidence(Section):
    """Confidence of pixels under corruption; it is made of what the section on corruptions measures."""

    name = "confidence"
    title = "Does it know when it is wrong?"
    question = "Calibration of pixels: does confidence follow accuracy under shift?"
    numbers = (
        Number("ece", "the expected calibration error (ECE) of pixels, mean over shifts", "lower"),
        Number("ece.*", "the same for one shift, over its severities, or for `clean`", "lower"),
    )

    def plan(self, scope: Scope) -> Iterator[Measurement]:
        """Plan clean and corrupted images: the same tasks as the section on corruptions has."""
        for task in MapCorruptions().plan(scope):
            if isinstance(task, CleanMaps | CorruptedMaps):
                yield task

    def view(self, results: Sequence[Result]) -> View:
        """Tell whether confidence follows accuracy, and under which corruption it does not."""
        clean = [row for _, row in rows(results, CleanMaps)]
        shifts = _grouped(results, lambda task: named(task.shift))
        if not clean or not shifts:
            return View(self.name, self.title, self.question, notes=("No corruption was measured.",))
        bins = {CLEAN: bins_of(clean), **{name: bins_of(some) for name, some in shifts.items()}}
        errors = {name: calibration_error(each) for name, each in bins.items()}
        mean = float(np.mean([errors[name] for name in shifts]))
        worst = max(shifts, key=lambda name: errors[name])
        level: Level = "good" if mean < GOOD else "watch" if mean < WATCH else "bad"
        sure, right = _means(bins[worst])
        said = (
            f"Expected calibration error (ECE) of pixels is {100 * errors[CLEAN]:.1f} points on clean images and "
            f"{100 * mean:.1f} on average under corruption. Worst is {title(worst)}: pixel accuracy {percent(right)}, "
            f"mean confidence {percent(sure)}."
        )
        return View(
            self.name,
            self.title,
            self.question,
            verdict=(Sentence(said, level),),
            tiles=(Tile("Calibration error under shift", f"{100 * mean:.1f} points", "", level, LEVEL_RULE),),
            blocks=(_reliability(bins[CLEAN], results), _table(bins, errors)),
            notes=(
                f"{BINS} bins of confidence over all labelled pixels; those of an image are not independent, so no "
                "interval is given. A temperature fitted on clean images does not correct calibration under shift.",
            ),
            numbers={"ece": mean, **{f"ece.{name}": error for name, error in errors.items()}},
        )


def _grouped(results: Sequence[Result], key: Callable[[CorruptedMaps], Key]) -> dict[Key, list[Row]]:
    found: dict[Key, list[Row]] = {}
    for task, row in rows(results, CorruptedMaps):
        found.setdefault(key(task), []).append(row)
    return found


def _means(bins: Bins) -> tuple[float, float]:
    """Return mean confidence, and accuracy."""
    pixels = max(1.0, float(bins[0].sum()))
    return float(bins[2].sum() / pixels), float(bins[1].sum() / pixels)


def _table(bins: Mapping[str, Bins], errors: Mapping[str, float]) -> Table:
    ranked = sorted(bins, key=lambda name: (name != CLEAN, -errors[name]))
    return Table(
        "Confidence of pixels by corruption, worst calibrated first",
        (
            Column("images"),
            Column("mean confidence", "percent"),
            Column("pixel accuracy", "percent", heat=(0.0, 1.0)),
            Column("calibration error, points", "number"),
        ),
        tuple((title(name), *_means(bins[name]), round(100 * errors[name], 1)) for name in ranked),
    )


def _reliability(clean: Bins, results: Sequence[Result]) -> Figure:
    """Draw accuracy by confidence, a line for clean images and for each severity."""
    levels = _grouped(results, lambda task: cell_of(task.shift)[1])
    lines = {"clean": clean}
    lines |= {f"severity {level:g}" if level else "as given": bins_of(levels[level]) for level in sorted(levels)}
    data: list[dict[str, object]] = []
    body: list[tuple[str | float, ...]] = []
    for name, bins in lines.items():
        used = bins[0] > 0
        sure, right = (bins[place][used] / bins[0][used] for place in (2, 1))
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": name,
                "x": (100 * sure).round(2).tolist(),
                "y": (100 * right).round(2).tolist(),
            }
        )
        body += [(name, float(x), float(y)) for x, y in zip(sure, right, strict=True)]
    data.append({"type": "scatter", "mode": "lines", "x": [0, 100], "y": [0, 100], "name": "calibrated"})
    layout = {"xaxis": {"title": {"text": "confidence, %"}}, "yaxis": {"title": {"text": "accuracy of pixels, %"}}}
    columns = (Column("images"), Column("confidence", "percent"), Column("accuracy", "percent"))
    return Figure(
        "Accuracy of pixels by confidence and severity",
        {"data": data, "layout": layout},
        Table("Pixels by confidence", columns, tuple(body)),
        caption="Below the diagonal it is overconfident.",
    )
