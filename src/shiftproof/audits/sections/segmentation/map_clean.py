"""How good a segmenter is before anything changes: mIoU, classes, and whether its confidence follows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from shiftproof.audits.numbers import Number
from shiftproof.audits.sections.base import Measurement, PerImage, Scope, Section, Work, passes
from shiftproof.audits.sections.measuring import rows
from shiftproof.audits.sections.segmentation.map_measuring import (
    BINS,
    Present,
    bins_of,
    calibration_error,
    class_list,
    overlap_of,
    predicted_maps,
)
from shiftproof.audits.sections.segmentation.map_pictures import legend, overlays, shown_overlays
from shiftproof.audits.sections.wording import between, percent
from shiftproof.measures.overlap import MIN_CLASS_IMAGES, Overlap
from shiftproof.reports.view import Column, Figure, Gallery, Level, Sentence, Table, Tile, View
from shiftproof.runs import Result, Row
from shiftproof.subjects import Subject

EXAMPLES = 3
OVERCONFIDENT = 0.05
RULE = "mIoU is the mean of intersection over union over the {} classes in the label maps, sums over all images first"
INTERVALS = (
    "{:,} images. Intervals are of the bootstrap over images, at 95%: pixels of an image are not independent. Nor are "
    "frames of one video, for which they are too narrow."
)


@dataclass(frozen=True)
class CleanMaps(Measurement):
    """A slice of the images as they are."""

    kind = "clean.maps"
    start: int
    stop: int

    def measure(self, subject: Subject) -> Row:
        """Return the counts of the slice, and the names of classes."""
        found = predicted_maps(subject, range(self.start, self.stop), None, seed=0)
        return {**found, "names": class_list(subject)}

    def work(self) -> Work:
        """Count a pass of the slice."""
        return passes(self.stop - self.start)


@dataclass(frozen=True)
class CleanOverlays(Measurement):
    """The first images, to be looked at."""

    kind = "clean.overlays"
    images: int

    def measure(self, subject: Subject) -> Row:
        """Return the images with their label maps and predictions."""
        return {"pictures": overlays(subject, self.images, None, 0)}

    def work(self) -> Work:
        """Count a pass of the images."""
        return passes(self.images)


class MapClean(Section):
    """mIoU on the images as they are."""

    name = "clean"
    title = "Clean mIoU and calibration"
    question = "How well does the model segment unchanged images, and does its confidence match?"
    numbers = (
        Number("miou", "mean intersection over union over the classes in the label maps"),
        Number("pixel_accuracy", "the share of labelled pixels that are given their class"),
        Number("iou.*", "intersection over union of one class"),
        Number("calibration_error", "expected calibration error of pixels, over 15 bins of confidence", "lower"),
        Number(
            "clean_confidence_gap", "mean confidence of pixels less their accuracy: above 0 it is too sure", "lower"
        ),
    )

    def plan(self, scope: Scope) -> Iterator[Measurement]:
        """Plan every slice of the images, and examples."""
        for start, stop in scope.slices():
            yield CleanMaps(start, stop)
        yield CleanOverlays(min(EXAMPLES, scope.images))

    def needs(self, number: str, task: Measurement) -> bool:
        """Say that no number needs examples."""
        return isinstance(task, CleanMaps)

    def per_image(self, results: Sequence[Result]) -> Mapping[str, PerImage]:
        """Return what each image adds to mIoU, and the pixels of it that are right beside all."""
        found = overlap_of([row for _, row in rows(results, CleanMaps)])
        if found is None:
            return {}
        labelled = found.counts[:, 2].sum(1)
        right = found.counts[:, 0].sum(1) - found.pixel_accuracy * labelled
        shares = found.pixel_accuracy + right / max(1.0, labelled.mean())
        return {
            "miou": PerImage(found.influence(), limited=False),
            "pixel_accuracy": PerImage(shares, limited=False),
        }

    def view(self, results: Sequence[Result]) -> View:
        """Tell mIoU, whether confidence follows accuracy, and which classes are weak."""
        measured = [row for _, row in rows(results, CleanMaps)]
        found = overlap_of(measured)
        if found is None:
            return View(self.name, self.title, self.question, notes=("No image was measured.",))
        names = cast("Sequence[str]", measured[0]["names"])
        bins = bins_of(measured)
        error, gap = calibration_error(bins), float((bins[2].sum() - bins[1].sum()) / max(1.0, bins[0].sum()))
        told = between(found.interval(among=self.looks))
        common = float(found.counts[:, 2].sum(0).max() / max(1, found.counts[:, 2].sum()))
        poor = found.pixel_accuracy <= common
        said = (
            f"mIoU on clean images is {percent(found.value)} ({told}) over {found.classes} classes, and pixel accuracy "
            f"{percent(found.pixel_accuracy)}"
        )
        level: Level = "bad" if poor else "plain"
        if poor:
            said += f", no better than giving every pixel the most frequent class ({percent(common)})"
        elif gap >= OVERCONFIDENT:
            level = "watch"
            said += f"; it is overconfident by {100 * gap:.1f} points"
        numbers = {"miou": found.value, "pixel_accuracy": found.pixel_accuracy}
        numbers |= {f"iou.{names[label]}": float(found.by_class[label]) for label in found.labels}
        numbers |= {"calibration_error": error, "clean_confidence_gap": gap}
        pictures = [row for _, row in rows(results, CleanOverlays)]
        return View(
            self.name,
            self.title,
            self.question,
            verdict=(Sentence(f"{said}.", level),),
            tiles=(Tile("Clean mIoU", percent(found.value), told, level, RULE.format(found.classes)),),
            blocks=(
                class_table(found, names),
                *(
                    Gallery(
                        "Images, label maps and predictions",
                        (*shown_overlays(row), legend(names, found.labels)),
                        large=True,
                    )
                    for row in pictures
                ),
                _reliability(bins, error),
            ),
            notes=(
                f"{RULE.format(found.classes)}; classes without labels are left out (by the rule of "
                f"published tables, over all classes labelled or predicted, it is {percent(found.anything)}; the mean "
                f"over images of each image's own mean is {percent(float(found.per_image.mean()))}).",
                INTERVALS.format(found.images),
                f"Confidence of pixels {percent(bins[2].sum() / max(1.0, bins[0].sum()))}, calibration error "
                f"{100 * error:.1f} points.",
            ),
            numbers=numbers,
        )


def class_table(found: Overlap, names: Sequence[str], *, title: str = "Intersection over union by class") -> Table:
    """Tabulate the classes, the weakest first, with intervals where enough images contain them."""
    body = []
    for label in sorted(found.labels, key=lambda label: found.by_class[label]):
        _, predicted, labelled = found.counts[:, :, label].sum(0)
        inside = found.counts[:, 0, label].sum()
        low, high = found.class_interval(label) or (None, None)
        recall = float(inside / max(1, labelled))
        body.append(
            (
                names[label],
                found.containing(label),
                float(labelled / max(1, found.counts[:, 2].sum())),
                float(found.by_class[label]),
                low,
                high,
                recall,
                float(inside / max(1, predicted)),
            )
        )
    return Table(
        f"{title}, weakest first",
        (
            Column("class"),
            Column("images with it", "number"),
            Column("of pixels", "percent"),
            Column("IoU", "percent", heat=(0.0, 1.0)),
            Column("from", "percent"),
            Column("to", "percent"),
            Column("found (recall)", "percent", heat=(0.0, 1.0)),
            Column("right (precision)", "percent", heat=(0.0, 1.0)),
        ),
        tuple(body),
        caption=f"No interval where fewer than {MIN_CLASS_IMAGES} images contain the class.",
    )


def _reliability(bins: np.ndarray[tuple[int, ...], np.dtype[np.float64]], error: float) -> Figure:
    used = bins[0] > 0
    confidence, accuracy = (100 * bins[place][used] / bins[0][used] for place in (2, 1))
    share = bins[0][used] / bins[0].sum()
    table = Table(
        "Pixels by confidence",
        (Column("confidence", "percent"), Column("accuracy", "percent"), Column("of pixels", "percent")),
        tuple((sure / 100, right / 100, part) for sure, right, part in zip(confidence, accuracy, share, strict=True)),
    )
    data = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "x": confidence.tolist(),
            "y": accuracy.tolist(),
            "name": "pixels",
        },
        {"type": "scatter", "mode": "lines", "x": [0, 100], "y": [0, 100], "name": "calibrated"},
    ]
    layout = {"xaxis": {"title": {"text": "confidence, %"}}, "yaxis": {"title": {"text": "accuracy of pixels, %"}}}
    return Figure(
        f"Confidence and accuracy of pixels are {100 * error:.1f} points apart on average",
        {"data": data, "layout": layout},
        table,
        caption=f"{BINS} bins of confidence over all labelled pixels; below the line it is overconfident.",
    )


def present_in(results: Sequence[Result]) -> tuple[Overlap | None, Present | None, Sequence[str]]:
    """Return the clean images of a section's results, the classes in their label maps, and the names of all."""
    measured = [row for _, row in rows(results, CleanMaps)]
    found = overlap_of(measured)
    if found is None:
        return None, None, ()
    return found, found.counted, cast("Sequence[str]", measured[0]["names"])
