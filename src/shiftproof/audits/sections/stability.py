"""How long does the help last: methods of adaptation along a stream of changing corruptions."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from shiftproof.adapters import Counts, Method, make_adapter
from shiftproof.adapters import method as find
from shiftproof.audits.numbers import Number
from shiftproof.audits.sections.advice import Gains, adapting_code, advised, diagnoses, gain_interval, steps_that_tell
from shiftproof.audits.sections.base import READ, Measurement, Scope, Section, Unit, Work, shifting
from shiftproof.audits.sections.measuring import preset_for, rows
from shiftproof.audits.sections.trace_figures import trace_figure
from shiftproof.audits.sections.wording import between, listed
from shiftproof.data import as_images
from shiftproof.errors import ModelError
from shiftproof.prediction_tasks import CLASSES
from shiftproof.reports.view import Action, Sentence, View
from shiftproof.runs import Json, Result, Row
from shiftproof.shifts import Shift
from shiftproof.streams import Trace, evaluate, make_stream
from shiftproof.subjects import Subject

SIZES: Mapping[str, int] = {"quick": 1_024, "standard": 10_000, "full": 50_000}
"""Images of the stream, by budget; a fourth of them where images are large."""
LONG_ONLY: Mapping[str, tuple[str, ...]] = {"quick": (), "standard": ("guard",), "full": ("guard",)}
"""Methods that join those of the audit, by budget: a short stream does not tell them from others."""
BATCH, SPARSE_BATCH = 64, 16
SEVERITY = 3.0
STEPS = 100
"""A stream has at most so many steps of severity: with as many images, each step has more."""


@dataclass(frozen=True)
class LongStream(Measurement):
    """A stream of changing corruptions through a fresh adapter."""

    kind = "stability"
    method: Method
    images: int
    speed: int
    shifts: tuple[Shift, ...]
    seed: int
    batch: int = BATCH

    def measure(self, subject: Subject) -> Row:
        """Send the stream through the adapter."""
        preset = preset_for(subject)
        try:
            adapter = make_adapter(subject.adapted_model, self.method, preset=preset)
        except ModelError as error:
            return {"applies": False, "reason": error.headline}
        several = len(self.shifts) > 1
        stream = make_stream(
            "ccc" if several else "gradual",
            as_images(subject.data),
            shifts=[shift.name for shift in self.shifts],
            severity=SEVERITY if several else None,
            length=self.images,
            speed=self.speed,
            seed=self.seed,
            batch_size=self.batch,
            device=subject.device,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what an adapter has to say of itself is said in the notes
            trace = evaluate(adapter, stream)
        return {
            "images": sum(trace.images),
            "right": sum(trace.right),
            "resets": trace.resets,
            "updates": trace.updates,
            "preset": preset,
            "batches": {"images": trace.images, "right": trace.right, "shifts": trace.shifts},
            "milliseconds": [round(1e3 * seconds, 3) for seconds in trace.seconds],
        }

    def work(self) -> Work:
        """Count images through an adapter, each under two corruptions."""
        each = 2 * self.images / len(self.shifts)
        shifted = [unit for shift in self.shifts for unit in shifting(shift, each)]
        adapting = [(Unit("adapter", self.method), 1.0), (Unit("adapt", self.method, self.batch), float(self.images))]
        return [(READ, self.images), *adapting, *shifted]

    def parameters(self) -> dict[str, Json]:
        """Return the fields, with shifts by name: their severities change along the stream."""
        return {**super().parameters(), "shifts": [shift.name for shift in self.shifts]}


class Stability(Section):
    """Rolling accuracy of every method against the source model's, over corruptions that change without end."""

    name = "stability"
    title = "Long-stream stability"
    question = "Over a long stream of changing corruptions, which methods stay above the unadapted model?"
    numbers = (
        Number("stability.collapsed", "methods that fall below the unadapted model permanently", "lower", "count"),
        Number("stability.*", "accuracy a method adds along the stream", None),
    )

    measure: ClassVar[str] = CLASSES.measure
    batches: ClassVar[tuple[int, int]] = (BATCH, SPARSE_BATCH)
    """Images of a batch, and where the budget is sparse."""

    def fits(self, method: Method) -> bool:
        """Whether a method can be measured."""
        return True

    def plan(self, scope: Scope) -> Iterator[LongStream]:
        """Plan the same stream for every method; each is one task, because a method's answers depend on all before."""
        settings = scope.settings
        most = SIZES[settings.budget] // (1 if scope.small else 4)
        images = min(scope.scaled(most, 64), 10 * scope.images)
        batch = self.batches[1 if settings.sparse else 0]
        methods = (find("source"), *settings.methods, *map(find, LONG_ONLY[settings.budget]))
        for method in {each.name: each for each in methods if self.fits(each)}.values():
            yield LongStream(method, images, max(batch, images // STEPS), settings.shifts, settings.seed, batch)

    def needs(self, number: str, task: Measurement) -> bool:
        """Say that a method's own number needs its task and the source model's."""
        own = isinstance(task, LongStream) and task.method.name in ("source", number.removeprefix("stability."))
        return number == "stability.collapsed" or own

    def view(self, results: Sequence[Result]) -> View:
        """Tell who falls below the source model and when, and who stays above."""
        found = rows(results, LongStream)
        traces = {task.method.name: _trace(row) for task, row in found if row.get("applies", True)}
        reasons = sorted({str(row["reason"]) for _, row in found if "reason" in row})
        if "source" not in traces or len(traces) < 2:
            notes = tuple(reasons) or ("No method was measured along a stream.",)
            return View(self.name, self.title, self.question, notes=notes)
        source = traces["source"]
        images, steps = sum(source.images), len(source.images)
        preset = next((cast(str, row["preset"]) for _, row in found if "preset" in row), None)
        batch = found[0][0].batch
        window = max(batch, min(2_000, images // 4))
        others = {name: trace for name, trace in traces.items() if name != "source"}
        gains = {name: trace.area(source) for name, trace in others.items()}
        gained = {name: _gained(trace, source) for name, trace in others.items()}
        falls = {name: _fall(trace, source, window, batch, len(others)) for name, trace in others.items()}
        numbers = {f"stability.{name}": gain for name, gain in gains.items()}
        numbers["stability.collapsed"] = float(sum(place is not None for place in falls.values()))
        return View(
            self.name,
            self.title,
            self.question,
            verdict=(_verdict(gained, gains, falls, images, steps),),
            blocks=(trace_figure(traces, window, self.measure),),
            notes=(
                f"{images:,} images in {steps:,} batches of {batch}, cropped and mirrored at random, each under two "
                "corruptions: one fades out while the next fades in. Severities are not calibrated, so the source "
                f"model's {self.measure} moves too; compare lines at the same place.",
                *(
                    [
                        f"Only quick collapses show in {steps:,} batches: rdumb goes back every "
                        f"{steps_that_tell() // 2:,}. shiftproof compare-on-stream runs long streams."
                    ]
                    if steps < steps_that_tell()
                    else []
                ),
                *diagnoses({name: Counts(steps, each.updates, each.resets) for name, each in others.items()}),
                *reasons,
            ),
            numbers=numbers,
            actions=_actions(gained, gains, falls, preset, batch, long=steps >= steps_that_tell()),
        )


def _trace(row: Row) -> Trace:
    kept = cast("Mapping[str, list[int]]", row["batches"])
    return Trace.join(
        [
            {
                "start": 0,
                **{name: row.get(name, 0) for name in ("resets", "updates")},
                "milliseconds": row["milliseconds"],
                **kept,
            }
        ]
    )


def _gained(trace: Trace, source: Trace) -> NDArray[np.float64]:
    """Return what a method adds to the source model's accuracy on every batch, [N]."""
    return np.subtract(trace.right, source.right) / np.asarray(trace.images, np.float64)


def _fall(trace: Trace, source: Trace, window: int, batch: int, among: int) -> int | None:
    """Return after how many images a method fell below the source model for good; None where that is not shown.

    It is shown where the interval of what it loses on the batches after that, one of so many, does not reach 0: a few
    batches under one corruption that a method does not help with are no collapse.
    """
    place = trace.collapse(source, window)
    if place is None:
        return None
    after = int(np.searchsorted(np.cumsum(trace.images), place, side="right"))
    reach = gain_interval(_gained(trace, source)[after:], among, batch)
    return place if reach is not None and reach.high < 0 else None


def long_gains(results: Sequence[Result]) -> tuple[dict[str, NDArray[np.float64]], bool]:
    """Return what methods that stayed above the model add on every batch of the long stream, if it is among results.

    Also whether it is long enough to tell who lasts.
    """
    found = rows(results, LongStream)
    traces = {task.method.name: _trace(row) for task, row in found if row.get("applies", True)}
    source = traces.pop("source", None)
    if source is None:
        return {}, False
    batch = found[0][0].batch
    window = max(batch, min(2_000, sum(source.images) // 4))
    stayed = {name: trace for name, trace in traces.items() if _fall(trace, source, window, batch, len(traces)) is None}
    return {name: _gained(trace, source) for name, trace in stayed.items()}, len(source.images) >= steps_that_tell()


def _actions(
    gained: Gains,
    gains: Mapping[str, float],
    falls: Mapping[str, int | None],
    preset: str | None,
    batch: int,
    *,
    long: bool,
) -> tuple[Action, ...]:
    fallen = sorted(name for name, place in falls.items() if place is not None)
    lasting = {name: gained[name] for name in gains if name not in fallen and gains[name] > 0}
    best = advised(lasting, long=long, batch=batch)
    if not fallen or best is None:
        return ()
    return (
        Action(
            f"Over long streams adapt with {best}, not with {listed(fallen)}",
            f"Along the stream {best} stays {100 * gains[best]:.1f} points above the unadapted model; "
            f"{listed(fallen)} fell below it.",
            adapting_code(best, preset),
            gain=100 * gains[best],
            on="along the stream",
        ),
    )


def _verdict(
    gained: Gains, gains: Mapping[str, float], falls: Mapping[str, int | None], images: int, steps: int
) -> Sentence:
    best = max(gains, key=lambda name: gains[name])
    fallen = {name: place for name, place in falls.items() if place is not None}
    reach = gain_interval(gained[best], len(gained), images // steps)
    points = f"{100 * gains[best]:.1f} points ({between(reach, '')})"
    stays = f"{best} stays {points} above it" if gains[best] > 0 else "no method stays above it"
    if reach is None and gains[best] <= 0:
        stays = f"the best, {best}, is at {points}"
    elif reach is not None and reach.low <= 0 <= reach.high:
        stays = f"the best, {best}, is within noise of it at {points}"
    short = f"{steps:,} batches are too short to tell" if steps < steps_that_tell() else ""
    if fallen:
        first = min(fallen, key=lambda name: fallen[name])
        return Sentence(
            f"Along a stream of changing corruptions {first} falls below the unadapted model after {fallen[first]:,} "
            f"images; {stays}{f', but {short} whether that lasts' if short and gains[best] > 0 else ''}.",
            "watch" if gains[best] > 0 else "bad",
        )
    if short:
        return Sentence(
            f"{short} whether gains last. Along these {images:,} images of changing corruptions no method is shown to "
            f"fall below the unadapted model; {stays}."
        )
    return Sentence(
        f"Along {images:,} images of changing corruptions no method falls below the unadapted model for good; {stays}.",
    )
