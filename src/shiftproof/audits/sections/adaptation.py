"""Test-time adaptation: accuracy of adaptation methods under corruption, and what they cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from shiftproof.adapters import Adapter, Counts, Method, make_adapter
from shiftproof.adapters import method as find
from shiftproof.audits.numbers import Number
from shiftproof.audits.sections.adaptation_figures import cost_table, gain_table, prior_figure
from shiftproof.audits.sections.adaptation_words import adaptation_verdict, gain_reach, helps
from shiftproof.audits.sections.adapted_errors import AdaptedErrors, errors_table, plan_errors
from shiftproof.audits.sections.advice import Grounds, adapting_code, advised_over, count_updates, diagnoses
from shiftproof.audits.sections.base import READ, Measurement, PerImage, Scope, Section, Unit, Work, shifting
from shiftproof.audits.sections.correlated import CorrelatedStream, correlated_gains
from shiftproof.audits.sections.corrupted_images import CorruptedSlice
from shiftproof.audits.sections.measuring import accuracy, applying, hits_of, image_means, preset_for, rows
from shiftproof.audits.sections.method_streams import streamed
from shiftproof.audits.sections.shift_names import named, one_per_category
from shiftproof.audits.sections.shift_statistics import Distances, plan_statistics, statistics_blocks
from shiftproof.audits.sections.source_answers import source_pace, source_row
from shiftproof.audits.sections.stability import LongStream, Stability, long_gains
from shiftproof.audits.sections.wording import listed, title
from shiftproof.errors import ModelError
from shiftproof.measures import Accuracy
from shiftproof.reports.view import Action, Tile, View
from shiftproof.runs import Json, Result, Row
from shiftproof.shifts import Shift
from shiftproof.subjects import Subject

BATCH = 64
SPARSE_BATCH = 16
"""Where a model is so costly that streams are short, batches are too, so that there are several."""
GRID_BATCHES = (1, 8, 64)
GRID_PRIORS = (0, 4, 16, 64, 256)
GRID_SHIFTS = {"quick": 1, "standard": 4, "full": 4}
"""Corruptions, of a category each, that batch sizes and priors are tried under: single images take long."""
LEVEL_RULE = (
    "Accuracy with the best method, {}, less accuracy without. Good: over 2 points, beyond chance. Bad: below 0."
)


@dataclass(frozen=True)
class AdaptedStream(Measurement):
    """Shifted images through a fresh adapter; the preset is the model's own where none is chosen."""

    kind = "adaptation"
    method: Method
    shift: Shift
    images: int
    seed: int
    batch: int = BATCH
    preset: str | None = None
    options: Mapping[str, Json] = field(default_factory=dict)
    """What is given to a method that has such an option."""

    def measure(self, subject: Subject) -> Row:
        """Stream shifted images through the adapter and tally its answers."""
        preset = self.preset or preset_for(subject)
        try:
            adapter = make_adapter(subject.adapted_model, self.method, preset=preset, given=self.options)
        except ModelError as error:
            return {"applies": False, "reason": error.headline}
        return {**_streamed(adapter, self, subject), "preset": preset}

    def work(self) -> Work:
        """Count images through an adapter."""
        return _adapting(self, self.method)


@dataclass(frozen=True)
class PriorStream(Measurement):
    """Shifted images through batch statistics with the source's as a prior, in batches of a size."""

    kind = "adaptation.prior"
    shift: Shift
    batch: int
    prior: int
    images: int
    seed: int

    def measure(self, subject: Subject) -> Row:
        """Stream shifted images through the adapter and tally its answers."""
        try:
            adapter = make_adapter(subject.adapted_model, "bn", preset=None, given={"prior": self.prior})
        except ModelError as error:
            return {"applies": False, "reason": error.headline}
        return {**_streamed(adapter, self, subject), "preset": None}

    def work(self) -> Work:
        """Count images through an adapter."""
        return _adapting(self, find("bn"))


class Adaptation(Section):
    """Accuracy gained by adapting to the shifted images themselves, without labels."""

    name = "adaptation"
    title = "Test-time adaptation"
    question = "How much accuracy is regained by adapting to incoming images, without labels?"
    numbers = (
        Number("best_adaptation_gain", "accuracy the best method adds, the mean over corruptions", None),
        Number("gain.*", "accuracy a method adds, the mean over corruptions", None),
        Number("correlated_gain.*", "accuracy a method adds where images of a class come together", None),
        Number(
            "adapted_error.*",
            "mean error at the strongest severity with batch statistics: partial, of 8 images, or full",
            "lower",
            given="for models with batch normalisation",
        ),
        Number(
            "adapted_mce.*",
            "mean corruption error with batch statistics: partial or full",
            "lower",
            "percent",
            given="on ImageNet's 1,000 classes, under its 15 corruptions at severities 1 to 5, at the budget full",
        ),
        Number("distance_prediction_error", "how far errors predicted from normalisation statistics are off", "lower"),
    )

    def plan(self, scope: Scope) -> Iterator[Measurement]:
        """Plan a stream per method and corruption at the highest severity, and batch sizes against priors."""
        settings = scope.settings
        images = min(scope.images, scope.scaled(settings.adaptation_images, 48))
        strongest = scope.at(settings.severities[-1])
        batch = SPARSE_BATCH if settings.sparse else BATCH
        methods = (find("source"), *settings.methods)
        short = tuple(one_per_category(strongest)) if settings.sparse else strongest
        known = "corruptions" in settings.sections and not scope.per_image and not scope.cells
        for shift in short if known else ():
            for start, stop in replace(scope, measured=None).slices():
                if start < images:
                    yield CorruptedSlice(
                        shift, start, stop, settings.seed
                    )  # its own task: what the model says as it is
        for method in methods[1:] if known else methods:
            for shift in short:
                yield AdaptedStream(method, shift, images, settings.seed, batch)
        for method in methods:
            yield CorrelatedStream(method, tuple(one_per_category(strongest)), images, settings.seed, batch)
        if "stability" in settings.sections:
            yield from Stability().plan(scope)  # the same tasks: they run once, and tell what lasts
        yield from plan_statistics(scope)
        if "bn" in [method.name for method in settings.methods]:
            yield plan_errors(scope, short)
            least = SPARSE_BATCH if settings.sparse else max(BATCH, images // 4)
            for shift in one_per_category(strongest)[: 1 if settings.sparse else GRID_SHIFTS[settings.budget]]:
                for batch in GRID_BATCHES:
                    count = min(images, least // 2 if batch == 1 else least)
                    for prior in GRID_PRIORS[::2] if settings.sparse else GRID_PRIORS:
                        yield PriorStream(shift, batch, prior, count, settings.seed)

    def needs(self, number: str, task: Measurement) -> bool:
        """Say that a method's own number needs its tasks and the source model's; none needs batch sizes and priors."""
        if number.startswith("adapted_"):
            return isinstance(task, AdaptedErrors)
        source = isinstance(task, CorruptedSlice) or (isinstance(task, AdaptedStream) and task.method.name == "source")
        if number == "distance_prediction_error":
            return isinstance(task, Distances) or source
        if number.startswith("correlated_gain."):
            own = ("source", number.removeprefix("correlated_gain."))
            return isinstance(task, CorrelatedStream) and task.method.name in own
        if not isinstance(task, AdaptedStream):
            return source
        return source or number == "best_adaptation_gain" or task.method.name == number.removeprefix("gain.")

    def per_image(self, results: Sequence[Result]) -> Mapping[str, PerImage]:
        """Return how much more often each image is right with each method than without."""
        found: dict[str, dict[str, list[Row]]] = defaultdict(dict)
        for task, row in _streams(results):
            found[task.method.name][task.shift.label] = [row]
        source = found.pop("source", {})
        gains = {}
        for method, streams in found.items():
            shared = [label for label in streams if label in source]
            helped, alone = (image_means([some[label] for label in shared]) for some in (streams, source))
            if helped is not None and alone is not None and len(helped) == len(alone):
                gains[f"gain.{method}"] = PerImage(helped - alone, -1.0, 1.0)
        return gains

    def view(self, results: Sequence[Result]) -> View:
        """Tell which method improves accuracy most, and what it costs."""
        found = _streams(results)
        refused = {
            task.method.name: str(row["reason"])
            for task, row in rows(results, AdaptedStream)
            if not row.get("applies", True)
        }
        reasons = sorted(set(refused.values()))
        if not found:
            return View(self.name, self.title, self.question, notes=(*reasons,) or ("Nothing was measured.",))
        grid: dict[str, dict[str, Accuracy]] = defaultdict(dict)
        pace: dict[str, list[float]] = defaultdict(list)
        for task, row in found:
            value = accuracy([row])
            if value is not None:
                grid[task.method.name][named(task.shift)] = value
                pace[task.method.name] += [cast(float, row["milliseconds"])] if "milliseconds" in row else []
        pace["source"] = pace["source"] or source_pace(results)
        source = grid.pop("source", {})
        gains = {method: _gain(cells, source) for method, cells in grid.items()}
        best = max(gains, key=lambda method: gains[method], default=None)
        if best is None or not source:
            return View(self.name, self.title, self.question, notes=(*reasons,) or ("No method was measured.",))
        per_image = {name.removeprefix("gain."): each.values for name, each in self.per_image(results).items()}
        alone, together = correlated_gains(results)
        lasting, long = long_gains(results)
        cheapest = advised_over(per_image, lasting, long=long)
        chosen = cheapest if cheapest is not None and helps(cheapest, gains, per_image) else None
        told = chosen or best
        numbers = {f"gain.{method}": gain for method, gain in gains.items()} | {"best_adaptation_gain": gains[best]}
        added = {method: float(each.mean()) for method, each in together.items()}
        numbers |= {f"correlated_gain.{method}": gain for method, gain in added.items()}
        updates = _most_updates(found)
        tile = Tile(
            "Best gain by adaptation",
            f"{100 * gains[best]:+.1f} points",
            gain_reach(per_image, best),
            "good" if helps(best, gains, per_image) else "watch" if gains[best] >= 0 else "bad",
            LEVEL_RULE.format(best),
        )
        batch = found[0][0].batch
        made = max(updates, _most_updates(rows(results, LongStream)))
        grounds = Grounds(len(next(iter(lasting.values()), ())), long, together.get(chosen or ""), len(together), made)
        images = next(iter(source.values())).images
        preset = next((cast(str, row["preset"]) for _, row in found if "preset" in row), None)
        prior = [(task.batch, task.prior, row) for task, row in applying(results, PriorStream)]
        moved = applying(results, Distances)
        blocks, predicted = statistics_blocks(*moved[0], source) if moved else ((), {})
        counts = _counts(found)
        errors = applying(results, AdaptedErrors)
        table, adapted = errors_table(*errors[0], source, _plain(found, errors[0][0].images)) if errors else (None, {})
        return View(
            self.name,
            self.title,
            self.question,
            verdict=(adaptation_verdict(best, told, gains, per_image, together, updates),),
            tiles=(tile,),
            blocks=(
                gain_table(grid, source, gains, (alone, added, _under(results)) if added else None),
                *([table] if table else []),
                cost_table(pace, gains, counts, list(dict.fromkeys(refused))),
                *([prior_figure(prior)] if prior else []),
                *blocks,
            ),
            notes=(
                f"{images:,} images a stream, in batches of {batch}, each from a fresh start"
                + (f", so at most {count_updates(updates)}" if updates else "")  # few are almost batch statistics alone
                + (f", with the options of the preset {preset}." if preset else "."),
                *diagnoses(counts),
                *reasons,
            ),
            numbers={**numbers, **adapted, **predicted},
            actions=(_action(chosen, gains[chosen], preset, batch, grounds),) if chosen else (),
        )


def _streams(results: Sequence[Result]) -> list[tuple[AdaptedStream, Row]]:
    """Return the streams that were measured, and those of the model as it is, which the section corruptions may have.

    Methods that do not apply are not among them.
    """
    found = applying(results, AdaptedStream)
    if any(task.method.name == "source" for task, _ in found):
        return found
    source = find("source")
    streams = {task.shift: replace(task, method=source, options={}) for task, _ in reversed(found)}
    alone = {task: source_row(results, task.shift, task.images) for task in reversed(streams.values())}
    return [*((task, row) for task, row in alone.items() if row is not None), *found]


def _most_updates(found: Sequence[tuple[Measurement, Row]]) -> int:
    """Return the most updates along one stream."""
    return max((cast(int, row.get("updates", 0)) for _, row in found), default=0)


def _counts(found: Sequence[tuple[AdaptedStream, Row]]) -> dict[str, Counts]:
    """Return batches, updates and resets of each method over all streams; those of older runs are not known."""
    counted: dict[str, Counts] = {}
    for task, row in found:
        if "updates" in row:
            name = task.method.name
            new = (cast(int, row[part]) for part in Counts._fields)
            counted[name] = Counts(*map(sum, zip(counted.get(name, (0, 0, 0)), new, strict=True)))
    return counted


def _plain(found: Sequence[tuple[AdaptedStream, Row]], images: int) -> dict[str, float]:
    """Return the errors of the model as it is on the first images of each stream that has so many."""
    hits = {task.shift.label: hits_of(row)[:images] for task, row in found if task.method.name == "source"}
    return {label: float(1 - each.mean()) for label, each in hits.items() if len(each) == images}


def _under(results: Sequence[Result]) -> str:
    return listed([title(named(shift)) for task, _ in rows(results, CorrelatedStream)[:1] for shift in task.shifts])


def _action(chosen: str, gain: float, preset: str | None, batch: int, grounds: Grounds) -> Action:
    streams = " on short streams, and where possible along the long one too" if grounds.steps else ""
    return Action(
        f"Use test-time adaptation ({chosen})",
        f"It improves accuracy by {100 * gain:.1f} points on average at the strongest severity, without labels. Of the "
        f"methods that do not learn indefinitely it is the cheapest within noise of the best{streams}. Measured with "
        f"{_measured_options(chosen, preset)}, {grounds.told(chosen)}",
        f"{adapting_code(chosen, preset)}\nlogits = adapted(images)  # in batches of {batch}, as they come",
        gain=100 * gain,
        on="on average at the strongest severity",
    )


def _measured_options(chosen: str, preset: str | None) -> str:
    """Return the options that a method was measured with, but for those that change no number."""
    held = find(chosen).options(preset, "paper", {}).to_dict()
    told = {
        name: value for name, value in held.items() if value is not None and name not in ("graph", "window", "seed")
    }
    return ", ".join(
        f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in told.items()
    )


def _streamed(adapter: Adapter, task: AdaptedStream | PriorStream, subject: Subject) -> dict[str, Json]:
    data = subject.data.subset(range(task.images))
    return streamed(adapter, data, [task.shift], seed=task.seed, batch=task.batch, device=subject.device)


def _adapting(task: AdaptedStream | PriorStream, method: Method) -> Work:
    """Count images through an adapter."""
    adapting = [(Unit("adapter", method), 1.0), (Unit("adapt", method, task.batch), float(task.images))]
    return [(READ, task.images), *shifting(task.shift, task.images), *adapting]


def _gain(cells: Mapping[str, Accuracy], source: Mapping[str, Accuracy]) -> float:
    shared = [name for name in cells if name in source]
    return sum(cells[name].value - source[name].value for name in shared) / max(1, len(shared))
