"""Where a segmenter breaks: mIoU under each corruption at each severity, and which classes are lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shiftproof.audits.numbers import Number
from shiftproof.audits.sections.base import Measurement, PerImage, Scope, Section, Work, passes
from shiftproof.audits.sections.corrupted_images import allotted
from shiftproof.audits.sections.corruptions import train_against
from shiftproof.audits.sections.corruptions_figures import loss_figure, mean_accuracy, severity_table
from shiftproof.audits.sections.measuring import rows
from shiftproof.audits.sections.segmentation.map_clean import CleanMaps, present_in
from shiftproof.audits.sections.segmentation.map_measuring import (
    Present,
    bins_of,
    calibration_error,
    counts_of,
    predicted_maps,
)
from shiftproof.audits.sections.segmentation.map_pictures import overlays, shown_overlays
from shiftproof.audits.sections.shift_names import AS_GIVEN, at_severity, cell_of, named
from shiftproof.audits.sections.wording import between, percent, title
from shiftproof.measures.intervals import MIN_IMAGES
from shiftproof.measures.overlap import Overlap, class_overlaps, draws, mean_overlaps, percentiles
from shiftproof.reports.view import Block, Column, Gallery, Level, Sentence, Table, Tile, View
from shiftproof.runs import Json, Result, Row
from shiftproof.shifts import ImageShift, Shift
from shiftproof.subjects import Subject

GOOD, WATCH = 0.10, 0.25
WORST, SHOWN_CLASSES = 3, 20
STILL = "augmix+jsd --option 'augment=augmix[geometric=false]'"
"""The recipe against corruptions: AugMix of operations that leave content where it is."""
LEVEL_RULE = "{:.1f} points below clean mIoU, on average over corruptions. Good: 0 to 10 points. Bad: over 25."


@dataclass(frozen=True)
class CorruptedMaps(Measurement):
    """Some of the images under a shift, with label maps that moved where content did."""

    kind = "corruptions.maps"
    shift: Shift
    places: tuple[int, ...]
    seed: int

    def measure(self, subject: Subject) -> Row:
        """Return the counts of the images."""
        return predicted_maps(subject, self.places, self.shift, self.seed)

    def parameters(self) -> dict[str, Json]:
        """Return the fields, with the first and the last place for all."""
        return {**super().parameters(), "places": f"{len(self.places)} from {self.places[0]} to {self.places[-1]}"}

    def work(self) -> Work:
        """Count a pass of the images under their shift."""
        return passes(len(self.places), self.shift)


@dataclass(frozen=True)
class CorruptedOverlays(Measurement):
    """The first image under a shift, to be looked at."""

    kind = "corruptions.overlays"
    shift: Shift
    seed: int

    def measure(self, subject: Subject) -> Row:
        """Return the image with its label map and prediction."""
        return {"pictures": overlays(subject, 1, self.shift, self.seed)}

    def work(self) -> Work:
        """Count a pass of the image under the shift."""
        return passes(1, self.shift)


@dataclass(frozen=True, eq=False)
class CorruptedCell:
    """The images of one corruption and severity: where they are among all, [n], and their counts [n, 3, C]."""

    places: NDArray[np.int64]
    found: Overlap

    @property
    def value(self) -> float:
        """MIoU."""
        return self.found.value


class MapCorruptions(Section):
    """mIoU under common corruptions."""

    name = "corruptions"
    title = "Corruption robustness"
    question = "Which changes of the image cost mIoU, how much, and of which classes?"
    numbers = (
        Number("corruption_miou", "mIoU under corruption, the mean over corruptions and severities"),
        Number("corruption_loss", "clean mIoU less that", None),
        Number("worst_corruption_miou", "mIoU under the worst corruption, the mean over severities"),
        Number(
            "corruption_pixel_accuracy", "pixel accuracy under corruption, the mean over corruptions and severities"
        ),
        Number("miou.*", "mIoU under one corruption, the mean over severities"),
        Number("corruption_iou.*", "intersection over union of one class, the mean over corruptions and severities"),
        Number("corruption_calibration_error", "expected calibration error of pixels under corruption", "lower"),
    )

    def plan(self, scope: Scope) -> Iterator[Measurement]:
        """Plan the clean images, every slice under every shift, and an example of each at the highest severity."""
        settings = scope.settings
        shares = allotted(scope) if scope.per_image else {}
        for start, stop in scope.slices():
            yield CleanMaps(start, stop)  # the same task as the section clean's: it runs once
        for start, stop in scope.slices():
            for shift in scope.grid():
                places = range(start, stop) if not shares else [one for one in shares[shift] if start <= one < stop]
                if len(places):
                    yield CorruptedMaps(shift, tuple(places), settings.seed)
        for shift in scope.grid():
            if cell_of(shift)[1] in (settings.severities[-1], AS_GIVEN):
                yield CorruptedOverlays(shift, settings.seed)

    def needs(self, number: str, task: Measurement) -> bool:
        """Say that a corruption's own number needs its tasks alone; none needs examples."""
        if not isinstance(task, CorruptedMaps):
            return isinstance(task, CleanMaps)  # whose classes all means are over
        return not number.startswith("miou.") or number == f"miou.{named(task.shift)}"

    def per_image(self, results: Sequence[Result]) -> Mapping[str, PerImage]:
        """Return what each image adds to mIoU under each corruption and under all of them."""
        clean, present, _ = present_in(results)
        cells = cells_of(results, present)
        if clean is None or not cells:
            return {}
        grid = grid_of(cells)
        by_name = {
            name: np.mean([influence(cells[name, level], clean.images) for level in levels], axis=0)
            for name, levels in grid.items()
        }
        numbers = {f"miou.{name}": PerImage(values, limited=False) for name, values in by_name.items()}
        overall = np.mean(list(by_name.values()), axis=0)
        return {
            "corruption_miou": PerImage(overall, limited=False),
            "corruption_loss": PerImage(clean.influence() - overall, limited=False),
            **numbers,
        }

    def view(self, results: Sequence[Result]) -> View:
        """Tell what breaks the model first, how far it falls, which classes are lost, and show it."""
        clean, present, names = present_in(results)
        cells = cells_of(results, present)
        if clean is None or not cells:
            return View(self.name, self.title, self.question, notes=("No corruption was measured.",))
        grid = grid_of(cells)
        means = {name: mean_accuracy(levels.values()) for name, levels in grid.items()}
        ranked = sorted(means, key=lambda name: means[name])
        overall = float(np.mean(list(means.values())))
        lost = clean.value - overall
        level: Level = "plain" if lost < 0 else "good" if lost < GOOD else "watch" if lost < WATCH else "bad"
        classes = class_means(cells, grid)
        pixels = float(
            np.mean([np.mean([one.found.pixel_accuracy for one in some.values()]) for some in grid.values()])
        )
        error = calibration_error(bins_of_all(results))
        numbers = {"corruption_miou": overall, "corruption_loss": lost, "worst_corruption_miou": means[ranked[0]]}
        numbers |= {"corruption_pixel_accuracy": pixels, "corruption_calibration_error": error}
        numbers |= {f"miou.{name}": mean for name, mean in means.items()}
        numbers |= {f"corruption_iou.{names[label]}": float(classes[label]) for label in clean.labels}
        drawn = drawn_mean(cells, grid, clean.images)
        told = between(None if drawn is None else percentiles(drawn, clean.images, overall, among=self.looks))
        hardest = max(clean.labels, key=lambda label: clean.by_class[label] - classes[label])
        worst = min(cells, key=lambda cell: cells[cell].value)
        said = (
            f"mIoU is {percent(clean.value)} on clean images and {percent(overall)} ({told}) on average under "
            f"corruption; the lowest is {percent(cells[worst].value)} under {title(worst[0])}{at_severity(worst[1])}."
        )
        if clean.by_class[hardest] > classes[hardest]:
            said += (
                f" The class {names[hardest]} loses most: IoU {percent(float(clean.by_class[hardest]))} clean, "
                f"{percent(float(classes[hardest]))} under corruption."
            )
        return View(
            self.name,
            self.title,
            self.question,
            verdict=(Sentence(said, level),),
            tiles=(Tile("mIoU under corruption", percent(overall), told, level, LEVEL_RULE.format(100 * lost)),),
            blocks=(
                severity_table(grid, ranked, measure="mIoU"),
                loss_figure(means, ranked, clean, measure="mIoU"),
                _class_losses(cells, grid, ranked, clean, names),
                *_galleries(results, ranked),
            ),
            notes=_notes(results, clean),
            numbers=numbers,
            actions=train_against(means, clean.value, STILL),
        )


def cells_of(results: Sequence[Result], present: Present | None) -> dict[tuple[str, float], CorruptedCell]:
    """Return every corruption and severity with its images; means are over the classes of the clean label maps."""
    parts: dict[tuple[str, float], list[tuple[CorruptedMaps, Row]]] = {}
    for task, row in rows(results, CorruptedMaps):
        parts.setdefault(cell_of(task.shift), []).append((task, row))
    return {
        cell: CorruptedCell(
            np.concatenate([np.asarray(task.places) for task, _ in some]),
            Overlap(np.concatenate([counts_of(row) for _, row in some]), present),
        )
        for cell, some in parts.items()
    }


def grid_of(cells: Mapping[tuple[str, float], CorruptedCell]) -> dict[str, dict[float, CorruptedCell]]:
    """Return the cells by corruption and severity."""
    grid: dict[str, dict[float, CorruptedCell]] = {}
    for (name, level), cell in cells.items():
        grid.setdefault(name, {})[level] = cell
    return grid


def influence(cell: CorruptedCell, images: int) -> NDArray[np.float64]:
    """Return what each of all images adds to a cell's mIoU, [N]; those that are not in it add its mean."""
    spread = np.full(images, cell.value)
    spread[cell.places] += (cell.found.influence() - cell.value) * images / len(cell.places)
    return spread


def drawn_mean(
    cells: Mapping[tuple[str, float], CorruptedCell], grid: Mapping[str, Mapping[float, CorruptedCell]], images: int
) -> NDArray[np.float64] | None:
    """Return the mean over corruptions and severities on resampled sets of images; None where they are too few."""
    if images < MIN_IMAGES:
        return None
    weights = draws(images)
    drawn = {
        cell: mean_overlaps(
            (weights[:, one.places] @ one.found.counts.reshape(len(one.places), -1)).reshape(
                len(weights), *one.found.counts.shape[1:]
            ),
            one.found.counted,
        )
        for cell, one in cells.items()
    }
    means = [np.mean([drawn[name, level] for level in some], axis=0) for name, some in grid.items()]
    return np.asarray(np.mean(means, axis=0))


def class_means(
    cells: Mapping[tuple[str, float], CorruptedCell], grid: Mapping[str, Mapping[float, CorruptedCell]]
) -> NDArray[np.float64]:
    """Return intersection over union by class, [C], the mean over severities and then over corruptions."""
    return _known_mean(
        [
            _known_mean([class_overlaps(cells[name, level].found.counts.sum(0)) for level in some])
            for name, some in grid.items()
        ]
    )


def _known_mean(tables: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return the mean over what is known, [C]; NaN of a class that never occurs."""
    stacked = np.stack(tables)
    known = ~np.isnan(stacked)
    return np.where(known.any(0), np.where(known, stacked, 0.0).sum(0) / np.maximum(1, known.sum(0)), np.nan)


def bins_of_all(results: Sequence[Result]) -> NDArray[np.float64]:
    """Return labelled pixels by bin of confidence, over all corruptions."""
    return bins_of([row for _, row in rows(results, CorruptedMaps)])


def _class_losses(
    cells: Mapping[tuple[str, float], CorruptedCell],
    grid: Mapping[str, Mapping[float, CorruptedCell]],
    ranked: Sequence[str],
    clean: Overlap,
    names: Sequence[str],
) -> Table:
    """Tabulate classes by corruption: intersection over union, the mean over severities."""
    shown = sorted(clean.labels, key=lambda label: -clean.by_class[label])[:SHOWN_CLASSES]
    body = []
    for name in ranked:
        found = class_means(cells, {name: grid[name]})
        body.append((title(name), *(None if np.isnan(found[label]) else float(found[label]) for label in shown)))
    return Table(
        "Intersection over union by class and corruption, most damaging first",
        (Column("corruption"), *(Column(names[label], "percent", heat=(0.0, 1.0)) for label in shown)),
        (("clean", *(float(clean.by_class[label]) for label in shown)), *body),
        caption="Means over severities."
        + (f" The {SHOWN_CLASSES} classes with the highest clean values." if clean.classes > SHOWN_CLASSES else ""),
    )


def _galleries(results: Sequence[Result], ranked: Sequence[str]) -> Iterator[Block]:
    found = {named(task.shift): (task, row) for task, row in rows(results, CorruptedOverlays)}
    for name in [name for name in ranked if name in found][:WORST]:
        task, row = found[name]
        yield Gallery(
            f"What the model sees under {title(name)}{at_severity(cell_of(task.shift)[1])}",
            shown_overlays(row),
            large=True,
        )


def _notes(results: Sequence[Result], clean: Overlap) -> tuple[str, ...]:
    measured = rows(results, CorruptedMaps)
    moving = sorted(
        {named(task.shift) for task, _ in measured if isinstance(task.shift, ImageShift) and task.shift.moves}
    )
    counts = sorted({len(task.places) for task, _ in measured})
    notes = [
        f"Means are over the {clean.classes} classes of the clean label maps, under every shift; {clean.images:,} "
        f"images, {counts[0]:,} or more per task, with the same random draws at every severity.",
        "Corruptions have the parameters published for ImageNet, in pixels.",
    ]
    if moving:
        shares = [float(str(row["ignored"])) for task, row in measured if named(task.shift) in moving]
        notes.append(
            f"Label maps moved with the content under {', '.join(map(title, moving))}, the nearest label each; pixels "
            f"from outside an image have none (in all, {percent(min(shares))} to {percent(max(shares))} have no label)."
        )
    return tuple(notes)
