"""Where it breaks: accuracy under each corruption at each severity."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from shiftproof.audits.numbers import Number
from shiftproof.audits.sections.base import Condition, Measurement, PerImage, Scope, Section
from shiftproof.audits.sections.clean import CleanSlice
from shiftproof.audits.sections.corrupted_images import (
    CorruptedPart,
    CorruptedShare,
    CorruptedSlice,
    Examples,
    allotted,
    groups_of,
    means_by_image,
    parts_of,
    rates_by_image,
)
from shiftproof.audits.sections.corruptions_figures import (
    Grid,
    cell_table,
    galleries,
    heat_table,
    loss_figure,
    mean_accuracy,
)
from shiftproof.audits.sections.measuring import (
    accuracy,
    image_means,
    rows,
)
from shiftproof.audits.sections.shift_names import AS_GIVEN, at_severity, cell_of, facts, named
from shiftproof.audits.sections.wording import between, interval, listed, percent, title
from shiftproof.audits.suite_cells import CLEAN, SuiteCell
from shiftproof.measures import Accuracy, corruption_errors, mce
from shiftproof.measures.intervals import mean_interval
from shiftproof.reports.view import Action, Level, Sentence, Tile, View
from shiftproof.runs import Result, Row
from shiftproof.shifts import names

COMMON = names("common")
"""The fifteen corruptions of the published mean corruption error."""
EXAMPLES = 4
NAMED_CORRUPTIONS = 2
GOOD, WATCH = 0.10, 0.25
HARMLESS_LOSS = 0.05
RECIPES = {"noise": "gaussian"}
"""Category -> the recipe of training against it, where it is not the general one."""
RECIPE = "augmix+jsd"
HARDENED = {"noise", "blur", "weather", "digital", "overlay", "warp"}
"""Categories of corruptions under which hardened networks were measured."""
LEVEL_RULE = "{:.1f} points below clean accuracy, on average over corruptions. Good: 0 to 10 points. Bad: over 25."


class Corruptions(Section):
    """Accuracy under common corruptions."""

    name = "corruptions"
    title = "Corruption robustness"
    question = "Which changes of the input cost accuracy, and how much?"
    takes = ("images", "texts")
    needs_clean = False
    numbers = (
        Number("corruption_accuracy", "accuracy under corruption, the mean over corruptions and severities"),
        Number("corruption_loss", "clean accuracy less that", None, given="where there are clean inputs"),
        Number("worst_corruption_accuracy", "accuracy under the worst corruption, the mean over severities"),
        Number("accuracy.*", "accuracy under one corruption, the mean over severities"),
        Number(
            "mce",
            "mean corruption error: errors relative to AlexNet's on ImageNet-C",
            "lower",
            "percent",
            given="on ImageNet's 1,000 classes, under the 15 common corruptions at severities 1 to 5",
        ),
    )

    def plan(self, scope: Scope) -> Iterator[Measurement]:
        """Plan every slice under every shift, and examples: an image each, more at the highest severity."""
        settings = scope.settings
        if scope.clean:
            for start, stop in scope.slices():
                yield CleanSlice(start, stop)  # the same task as the section clean's: it runs once
        for cell in scope.cells:  # of a suite: the examples of a cell at once, while its files are open
            for start, stop in scope.slices(cell.images):
                yield CorruptedSlice(cell, start, stop, settings.seed)
            highest = max(other.severity for other in scope.cells if other.name == cell.name)
            yield Examples(cell, min(EXAMPLES if cell.severity == highest else 1, cell.images), settings.seed)
        grid = scope.grid() if not scope.cells else ()
        shares = allotted(scope) if scope.per_image else {}
        for start, stop in scope.slices():
            for shift in grid:
                if not shares:
                    yield CorruptedSlice(shift, start, stop, settings.seed)
                elif chosen := tuple(place for place in shares[shift] if start <= place < stop):
                    yield CorruptedShare(shift, chosen, settings.seed)
        for shift in grid:
            images = EXAMPLES if cell_of(shift)[1] in (settings.severities[-1], AS_GIVEN) else 1
            yield Examples(shift, min(images, scope.images), settings.seed)

    def needs(self, number: str, task: Measurement) -> bool:
        """Say that a corruption's own number needs its tasks alone; none needs examples."""
        if not isinstance(task, CorruptedPart):
            return isinstance(task, CleanSlice) and number == "corruption_loss"
        return not number.startswith("accuracy.") or number == f"accuracy.{named(task.shift)}"

    def per_image(self, results: Sequence[Result]) -> Mapping[str, PerImage]:
        """Return how often each image is right under each corruption and under all of them, and what that comes to."""
        measured = parts_of(results)
        right, overall, groups = rates_by_image(measured), means_by_image(measured), groups_of(measured)
        if overall is None:
            return {}
        numbers = {
            "corruption_accuracy": PerImage(overall),
            **{f"accuracy.{name}": PerImage(found[~np.isnan(found)]) for name, found in right.items()},
        }
        clean = image_means([[row for _, row in rows(results, CleanSlice)]])
        if clean is not None and groups == {CLEAN} and len(clean) == len(overall):
            numbers["corruption_loss"] = PerImage(clean - overall, -1.0, 1.0)
        if _is_imagenet_c(measured):
            whole = corruption_errors(dict.fromkeys(COMMON, 1.0))  # what an error of 1 would come to
            errors = np.nanmean([whole[name] * (1 - right[name]) for name in COMMON], axis=0)
            most = np.nanmean([whole[name] + 0 * right[name] for name in COMMON], axis=0).max()
            numbers["mce"] = PerImage(errors, 0.0, float(most))
        return numbers

    def view(self, results: Sequence[Result]) -> View:
        """Tell what breaks the model first, how far it falls, and show it."""
        clean = accuracy([row for _, row in rows(results, CleanSlice)])
        measured = parts_of(results)
        grid = _grid(measured)
        of_suite = any(isinstance(task.shift, SuiteCell) for task, _ in measured)
        if not grid or (clean is None and not of_suite):
            return View(self.name, self.title, self.question, notes=("No corruption was measured.",))
        means = {name: mean_accuracy(cells.values()) for name, cells in grid.items()}
        ranked = sorted(means, key=lambda name: means[name])
        overall = sum(means.values()) / len(means)
        lost = -1.0 if clean is None else clean.value - overall
        level: Level = "plain" if lost < 0 else "good" if lost < GOOD else "watch" if lost < WATCH else "bad"
        numbers = {"corruption_accuracy": overall}
        numbers |= {} if clean is None else {"corruption_loss": lost}
        numbers |= {"worst_corruption_accuracy": means[ranked[0]]}
        numbers |= {f"accuracy.{name}": mean for name, mean in means.items()}
        spread = means_by_image(measured)
        said = [] if spread is None else [between(mean_interval(spread, among=self.looks))]
        if _is_imagenet_c(measured):
            numbers["mce"] = mce({name: [1 - cell.value for cell in grid[name].values()] for name in COMMON})
            said.append(f"mCE {numbers['mce']:.1f}")
        rule = "" if clean is None else LEVEL_RULE.format(100 * lost)
        tile = Tile("Accuracy under corruption", percent(overall), ", ".join(said), level, rule)
        examples = [(task.shift, row) for task, row in rows(results, Examples)]
        tested = {named(task.shift): task.shift for task, _ in measured}
        return View(
            self.name,
            self.title,
            self.question,
            verdict=_verdict(clean, grid, ranked, overall, level, self.noun.many),
            tiles=(tile,),
            blocks=(
                heat_table(grid, ranked, examples),
                loss_figure(means, ranked, clean),
                *([cell_table(grid)] if of_suite else []),
                *galleries(examples, ranked),
            ),
            notes=_suite_notes(grid, measured, clean) if of_suite else _notes(grid, measured, tested, self.noun.many),
            numbers=numbers,
            actions=() if clean is None else _actions(means, clean, tested),
        )


def _is_imagenet_c(found: Sequence[tuple[CorruptedPart, Row]]) -> bool:
    """Whether the fifteen corruptions of ImageNet-C are there at its five severities, all of them on ImageNet."""
    there = {cell_of(task.shift): bool(row.get("imagenet")) for task, row in found}
    wanted = {(name, severity) for name in COMMON for severity in range(1, 6)}
    return {cell for cell in there if cell[0] in COMMON} == wanted and all(there[cell] for cell in wanted)


def _grid(found: Sequence[tuple[CorruptedPart, Row]]) -> Grid:
    """Return accuracies by corruption and severity, in the order of the plan."""
    parts: dict[str, dict[float, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for task, row in found:
        name, level = cell_of(task.shift)
        parts[name][level].append(row)
    grid = {name: {level: accuracy(some) for level, some in cells.items()} for name, cells in parts.items()}
    return {name: {level: value for level, value in cells.items() if value is not None} for name, cells in grid.items()}


def _verdict(
    clean: Accuracy | None, grid: Grid, ranked: Sequence[str], overall: float, level: Level, inputs: str
) -> tuple[Sentence, ...]:
    _, _, name, severity, cell = min(  # of cells that are equally low, that of the corruption that costs most
        (cell.value, ranked.index(name), name, severity, cell)
        for name, cells in grid.items()
        for severity, cell in cells.items()
    )
    lowest = interval(cell, among=sum(map(len, grid.values())))
    at = f"{percent(cell.value)} ({lowest}) under {title(name)}{at_severity(severity)}"
    over = f"{percent(overall)} on average under {len(grid)} corruptions" if len(grid) > 1 else ""
    if clean is None:
        said = f"Accuracy is {over}; the lowest is {at}" if over else f"The lowest accuracy is {at}"
        return (Sentence(f"{said}. Clean accuracy was not measured.", level),)
    before = f"{percent(clean.value)} on clean {inputs}"
    if clean.value - cell.value < HARMLESS_LOSS:
        drop = 100 * (clean.value - cell.value)
        costs = f"costs more than {drop:.1f} points" if drop > 0 else "costs any accuracy"
        said = f"{before}{f', {over}' if over else ''}; the lowest is {at}"
        return (Sentence(f"No corruption {costs}: accuracy is {said}.", level),)
    if not over:
        return (Sentence(f"Accuracy is {before}; the lowest is {at}.", level),)
    harmful = [
        other for other in ranked if clean.value - mean_accuracy(grid[other].values()) >= HARMLESS_LOSS
    ] or ranked[:1]
    first = listed([title(other) for other in harmful[:NAMED_CORRUPTIONS]])
    costs = f"{first[0].upper()}{first[1:]} cost{'s' * (len(harmful) == 1)} most"
    return (Sentence(f"Accuracy is {before} and {over}. {costs}; the lowest is {at}.", level),)


def _actions(means: Mapping[str, float], clean: Accuracy, tested: Mapping[str, Condition]) -> tuple[Action, ...]:
    """Advise to harden a network against corruptions, and to train it against other changes of images."""
    if any(shift.acts_on == "texts" for shift in tested.values()):
        return ()  # recipes of training are for images
    losses = _losses(means, clean.value)
    if not losses.keys() <= HARDENED:
        return train_against(means, clean.value, RECIPE)
    lost = sum(losses.values())
    if lost < HARMLESS_LOSS:
        return ()
    return (
        Action(
            "Fine-tune it against its weaknesses (harden)",
            f"{_told_worst(losses, means)} harden fine-tunes a network for some minutes on training images, and hands "
            "it over only if held-out images show a gain under corruption for at most 1 point of clean accuracy. Of "
            "two networks trained on CIFAR-10, the ResNet-20 regained 58 to 62% of what corruption cost, the ResNet-56 "
            "52 to 56%. It needs a PyTorch network whose weights can change.",
            "shiftproof harden --data train-images/ --model model.py:build --out hardened/",
            gain=100 * lost,
            on="on average under corruption",
            bound=True,
        ),
    )


def train_against(means: Mapping[str, float], clean: float, recipe: str) -> tuple[Action, ...]:
    """Advise training against the category that costs most; all it can win is what the category costs.

    `means` are scores by corruption; `recipe` is what trains against corruptions of no category with one of its own.
    """
    losses = _losses(means, clean)
    worst = max(losses, key=losses.__getitem__)
    if losses[worst] < HARMLESS_LOSS / 2:
        return ()
    return (
        Action(
            f"Train against {worst}" if len(losses) > 1 else "Train against these changes",
            _told_worst(losses, means),
            f"shiftproof train --data train-images/ --model model.py:build --recipe {RECIPES.get(worst, recipe)} "
            "--out robust/",
            gain=100 * losses[worst],
            on="on average under corruption",
            bound=True,
        ),
    )


def _losses(means: Mapping[str, float], clean: float) -> dict[str, float]:
    """Return what each category of corruptions costs, of the mean over all of them."""
    losses: dict[str, float] = defaultdict(float)
    for name, value in means.items():
        losses[facts(name)["category"]] += max(0.0, clean - value) / len(means)
    return losses


def _told_worst(losses: Mapping[str, float], means: Mapping[str, float]) -> str:
    worst = max(losses, key=losses.__getitem__)
    names = [title(name) for name in means if facts(name)["category"] == worst]
    return (
        f"{listed(names).capitalize()} cost{'s' * (len(names) == 1)} {100 * losses[worst]:.1f} of the "
        f"{100 * sum(losses.values()):.1f} points lost on average."
    )


def _suite_notes(grid: Grid, measured: Sequence[tuple[CorruptedPart, Row]], clean: Accuracy | None) -> tuple[str, ...]:
    """Say what was measured on a suite's files, and how its parts go together."""
    counts = sorted({cell.images for cells in grid.values() for cell in cells.values()})
    images = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    groups = groups_of(measured)
    same = "the same images in every cell" if len(groups) == 1 else "not the same images in every cell"
    notes = [f"{images} images per cell, as the suite's files have them; {same}, by their names."]
    if clean is None:
        notes.append("Without a clean set (clean=, --clean FOLDER) nothing is said of what corruption costs.")
    elif groups != {CLEAN}:
        notes.append("The clean set has other images than the suite: what corruption costs has no interval.")
    return tuple(notes)


def _notes(
    grid: Grid, measured: Sequence[tuple[CorruptedPart, Row]], tested: Mapping[str, Condition], inputs: str
) -> tuple[str, ...]:
    counts = sorted({cell.images for cells in grid.values() for cell in cells.values()})
    count = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    notes = [f"{count} {inputs} per cell; the same {inputs}, with the same random draws, at every severity."]
    if any(isinstance(task, CorruptedShare) for task, _ in measured):
        met = ~np.isnan(list(rates_by_image(measured).values()))
        notes = [
            f"{met.shape[1]:,} {inputs}, each under {met.sum(0).max()} of the {len(grid)} corruptions at one severity "
            f"each; {count} per cell. The mean over all cells has the precision of {met.shape[1]:,} {inputs}, a single "
            "cell has not."
        ]
    uneven = [title(name) for name in grid if not facts(name)["monotone"]]
    if uneven:
        notes.append(f"Published parameters do not grow steadily with severity for: {', '.join(uneven)}.")
    return (*notes, *(note for name in grid for note in tested[name].notes))
