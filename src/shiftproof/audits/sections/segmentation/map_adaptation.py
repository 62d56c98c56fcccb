"""Whether a segmenter can be helped while serving: mIoU of methods of test-time adaptation, pixel by pixel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from shiftproof.adapters import Method, adapt, make_adapter
from shiftproof.adapters import method as find
from shiftproof.audits.numbers import Number
from shiftproof.audits.sections.advice import never_resets
from shiftproof.audits.sections.base import READ, Measurement, Scope, Section, Unit, Work, passes, shifting
from shiftproof.audits.sections.measuring import preset_for, rows
from shiftproof.audits.sections.segmentation.map_measuring import counts_of, predicted_maps, present_of
from shiftproof.audits.sections.shift_names import facts, named
from shiftproof.audits.sections.wording import between, labelled, percent
from shiftproof.errors import ModelError
from shiftproof.measures.intervals import MIN_IMAGES, Interval
from shiftproof.measures.overlap import Overlap, mean_overlaps, percentiles
from shiftproof.reports.view import Action, Column, Level, Sentence, Table, Tile, View
from shiftproof.runs import Result, Row
from shiftproof.shifts import Shift
from shiftproof.subjects import Subject

Streams: TypeAlias = Mapping[tuple[str, str], Overlap]
"""Method and shift -> how well the answers of its stream fit."""

BATCH = 8
"""Images of a batch of the stream: each has the statistics of all its pixels."""
PRIOR = 16
"""Images that the source's statistics stand for, in bn with a prior."""
LEAST = 32
WITH_PRIOR = "bn, prior 16"
HELPS = 0.01
"""Points of mIoU from which on a method is said to help or to harm."""


@dataclass(frozen=True)
class AdaptedMaps(Measurement):
    """A stream of images under a shift, answered by a method that adapts; None is the model as it is."""

    kind = "adaptation.maps"
    shift: Shift
    method: Method | None
    prior: int
    images: int
    seed: int

    @property
    def label(self) -> str:
        """What the method is called in tables."""
        return "source" if self.method is None else WITH_PRIOR if self.prior else self.method.name

    def measure(self, subject: Subject) -> Row:
        """Return the counts of the stream's answers; a model or a method that does not apply is told."""
        stream = subject.at_batch_size(BATCH)
        if self.method is None:
            return predicted_maps(stream, range(self.images), self.shift, self.seed)
        try:
            adapter = self._adapter(subject)
            return predicted_maps(stream, range(self.images), self.shift, self.seed, model=_Answering(adapter))
        except ModelError as error:
            return {"applies": False, "reason": error.headline}

    def _adapter(self, subject: Subject) -> Any:
        method, preset = self.method or "source", preset_for(subject)
        if self.prior and isinstance(subject.model, nn.Module):
            return adapt(subject.model, method, preset=preset, prior=self.prior)
        return make_adapter(subject.model, method, preset=preset)

    def work(self) -> Work:
        """Count a pass of the stream, by the method."""
        if self.method is None:
            return passes(self.images, self.shift)
        unit = Unit("adapt", self.method, BATCH)
        return [(READ, self.images), (unit, self.images), *shifting(self.shift, self.images)]


class _Answering:
    """An adapter as a model that is asked: every answer also adapts it."""

    def __init__(self, adapter: Any) -> None:
        self.adapter = adapter
        self.device = next((each.device for each in adapter.parameters()), "cpu")

    def __call__(self, images: Tensor) -> Tensor:
        answer: Tensor = self.adapter(images)
        return answer


class MapAdaptation(Section):
    """mIoU of methods of test-time adaptation beside that of the model as it is."""

    name = "adaptation"
    title = "Test-time adaptation"
    question = "How much mIoU is regained by adapting to incoming images, without labels?"
    numbers = (
        Number("adaptation_miou", "mIoU of the best method under corruption at the highest severity"),
        Number("adaptation_gain", "that less the mIoU of the model as it is", None),
        Number("adaptation_gain.*", "the same of one method", None),
    )

    def plan(self, scope: Scope) -> Iterator[Measurement]:
        """Plan every method under one corruption of each kind at the highest severity."""
        settings = scope.settings
        images = min(scope.images, scope.scaled(settings.adaptation_images, LEAST))
        for shift in chosen_shifts(scope):
            yield AdaptedMaps(shift, None, 0, images, settings.seed)
            for method in settings.methods:
                yield AdaptedMaps(shift, method, 0, images, settings.seed)
                if method.name == "bn":
                    yield AdaptedMaps(shift, method, PRIOR, images, settings.seed)

    def needs(self, number: str, task: Measurement) -> bool:
        """Say that a method's own number needs its tasks and the source's."""
        if not isinstance(task, AdaptedMaps):
            return True
        return not number.startswith("adaptation_gain.") or task.label in ("source", number.partition(".")[2])

    def view(self, results: Sequence[Result]) -> View:
        """Tell which method helps, by how much, and where it harms."""
        measured = rows(results, AdaptedMaps)
        found = {
            (task.label, labelled(task.shift.label)): Overlap(counts_of(row), present_of(row))
            for task, row in measured
            if row.get("applies", True)
        }
        refused = {task.label: str(row["reason"]) for task, row in measured if not row.get("applies", True)}
        shifts = list(dict.fromkeys(shift for label, shift in found if label == "source"))
        methods = list(dict.fromkeys(label for label, _ in found if label != "source"))
        left_out = tuple(f"{label} was left out: {reason}" for label, reason in refused.items())
        if not methods or not shifts:
            return View(self.name, self.title, self.question, notes=("No method was measured.", *left_out))
        gains = {
            label: float(np.mean([found[label, shift].value - found["source", shift].value for shift in shifts]))
            for label in methods
        }
        best = max(gains, key=lambda label: gains[label])
        source = float(np.mean([found["source", shift].value for shift in shifts]))
        chosen = _advised(found, methods, shifts)
        told = best if chosen is None else chosen
        images = next(iter(found.values())).images
        reach = _above(found, told, "source", shifts)
        helps = gains[told] > HELPS and reach is not None and reach.low > 0
        level: Level = "good" if helps else "watch" if gains[told] > -HELPS else "bad"
        return View(
            self.name,
            self.title,
            self.question,
            verdict=(Sentence(_said(told, best, gains, source, shifts), level),),
            tiles=(
                Tile(
                    f"mIoU with adaptation ({told})",
                    percent(source + gains[told]),
                    f"{100 * gains[told]:+.1f} points ({between(reach, '', '+')})",
                    "plain",
                    "Mean over the shifts tried, at the strongest severity; points are against the unadapted model",
                ),
            ),
            blocks=(_table(found, methods, shifts),),
            notes=(
                f"{images} images under each shift, in batches of {BATCH}, once through; each method starts anew for "
                "each shift. Learning rates are those published for classifiers of as many classes: none was tuned on "
                "these images.",
                "Entropies, filters and statistics are of pixels. The statistics of a batch are those of its own "
                "content; a prior of 16 images holds on to the source's.",
                *left_out,
            ),
            numbers={
                "adaptation_miou": source + gains[best],
                "adaptation_gain": gains[best],
                **{f"adaptation_gain.{label}": gain for label, gain in gains.items()},
            },
            actions=(_action(chosen, gains[chosen], images),) if chosen is not None and helps else (),
        )


def chosen_shifts(scope: Scope) -> list[Shift]:
    """Return one shift of each category at the highest severity, and those that were given as they are."""
    first: dict[str, Shift] = {}
    for shift in scope.settings.shifts:
        first.setdefault(facts(named(shift))["category"], replace(shift, severity=scope.settings.severities[-1]))
    return [*first.values(), *scope.settings.fixed]


def _drawn(found: Streams, label: str, shifts: Sequence[str]) -> NDArray[np.float64]:
    """Return a method's mean over shifts on resampled sets of the images, the same sets for every method, [DRAWS]."""
    streams = [found[label, shift] for shift in shifts]
    return np.asarray(np.mean([mean_overlaps(each.resampled, each.counted) for each in streams], axis=0))


def _above(found: Streams, label: str, other: str, shifts: Sequence[str], among: int = 1) -> Interval | None:
    """Return the interval of how far a method's mean over shifts is above another's; None of too few images."""
    images = found[label, shifts[0]].images
    if images < MIN_IMAGES:
        return None
    value = float(np.mean([found[label, shift].value - found[other, shift].value for shift in shifts]))
    return percentiles(_drawn(found, label, shifts) - _drawn(found, other, shifts), images, value, among=among)


def _method(label: str) -> Method:
    return find("bn" if label == WITH_PRIOR else label)


def _advised(found: Streams, methods: Sequence[str], shifts: Sequence[str]) -> str | None:
    """Return the cheapest method within noise of the best; short streams speak for none that learns without end."""
    means = {label: float(np.mean([found[label, shift].value for shift in shifts])) for label in methods}
    fit = [label for label in methods if not never_resets(_method(label))]
    if not fit:
        return None
    best = max(fit, key=lambda label: means[label])
    above = {label: _above(found, best, label, shifts, len(fit)) for label in fit}
    near = [label for label in fit if (reach := above[label]) is None or reach.low <= 0]
    return min(near, key=lambda label: (_method(label).cost, -means[label]))


def _said(told: str, best: str, gains: Mapping[str, float], source: float, shifts: Sequence[str]) -> str:
    under = f"under {', '.join(shifts)}"
    if gains[best] <= HELPS:
        gain = f"{100 * gains[best]:+.1f}"
        return (
            f"No method of adaptation raises mIoU {under} by more than a point: the best, {best}, changes it by {gain}."
        )
    harm = [f"{label} ({100 * gain:+.1f})" for label, gain in gains.items() if gain < -HELPS]
    more = f"{100 * (gains[best] - gains[told]):.1f}"
    return (
        f"Adapting by {told} changes mIoU {under} from {percent(source)} to {percent(source + gains[told])} on average"
        + (f"; {best} adds {more} points, and so few images do not show whether that lasts" if best != told else "")
        + (f"; {', '.join(harm)} lower it." if harm else ".")
    )


def _action(chosen: str, gain: float, images: int) -> Action:
    options = f'"bn", prior={PRIOR}' if chosen == WITH_PRIOR else f'"{chosen}"'
    return Action(
        f"Use test-time adaptation ({chosen})",
        f"It raises mIoU by {100 * gain:.1f} points on average at the strongest severity, without labels. Of the "
        f"methods that do not learn indefinitely it is the cheapest within noise of the best. Measured on {images} "
        f"images a shift, in batches of {BATCH}, each batch under one corruption.",
        f"adapted = shiftproof.adapt(model, {options})\nmaps = adapted(images).argmax(1)  # in batches of {BATCH}",
        gain=100 * gain,
        on="of mIoU on average at the strongest severity",
    )


def _table(found: Streams, methods: Sequence[str], shifts: Sequence[str]) -> Table:
    body = []
    for shift in shifts:
        source = found["source", shift]
        for label in ("source", *methods):
            one = found[label, shift]
            lost, interval = source.loss(one)
            gain = "" if label == "source" else f"{-100 * lost:+.1f}"
            between_them = None if interval is None else type(interval)(-interval.high, -interval.low)
            told = "" if label == "source" else between(between_them, " points", "+")
            body.append((shift, label, one.value, one.pixel_accuracy, gain, told))
    return Table(
        "mIoU by shift and method",
        (
            Column("shift"),
            Column("method"),
            Column("mIoU", "percent", heat=(0.0, 1.0)),
            Column("pixel accuracy", "percent", heat=(0.0, 1.0)),
            Column("points over source"),
            Column("interval"),
        ),
        tuple(body),
        caption="Intervals are of the bootstrap over the same images, each at 95% by itself.",
    )
