"""How long an audit will take: what its tasks cost in images, times what an image costs here, measured on a few.

Tasks say what they cost in units (`Measurement.work`); a unit's price, in seconds per image, is measured with the
model and the images themselves the first time it is asked for.
"""

from __future__ import annotations

import math
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, fields, replace
from itertools import cycle
from typing import cast

import torch
from torch import nn

from shiftproof.adapters import Method
from shiftproof.audits.sections.base import PASSES, Measurement, Unit
from shiftproof.data import Batch
from shiftproof.errors import ConfigurationError, ModelError
from shiftproof.models import StatisticsTap
from shiftproof.registry import unknown
from shiftproof.shifts import Shift
from shiftproof.subjects import Subject

PATIENCE, TRIES = 0.1, 5
"""Seconds a unit is tried for, and how often at most, after a first time that does not count."""
TIMED_REPEATS = 8
"""The forward pass, of which nearly everything is made, is tried so many times as long."""
SAMPLE_SECONDS = 0.3
"""Seconds a batch may take: models too slow for that are tried on fewer images."""
MIN_SAMPLE_IMAGES = 4
TYPICAL = 3.0
"""The severity whose price stands for all."""
SAMPLE_PIXELS = 400_000
"""Of the images that shifts and chains are tried on: large images take them long, however fast the model is."""


@dataclass(frozen=True)
class Forecast:
    """Seconds by section: of all its tasks, and of those still to be measured, which run so many at a time.

    `kept` is the share of the budget's passes that each section that is cut makes, `why` says why it is. `bare` is what
    a pass of a section's tasks takes in the model alone, in seconds, on average. `disk` is about how many bytes the run
    takes.
    """

    planned: Mapping[str, float]
    remaining: Mapping[str, float]
    at_a_time: int = 1
    kept: Mapping[str, float] = field(default_factory=dict)
    why: str = ""
    bare: Mapping[str, float] = field(default_factory=dict, compare=False)
    disk: int = 0

    @property
    def seconds(self) -> float:
        """How long what remains will take."""
        return sum(self.remaining.values()) / self.at_a_time


class Prices:
    """Seconds per image of each unit of work, for one subject; `clock` is what they are measured by."""

    def __init__(self, subject: Subject, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self.subject, self.clock = subject, clock
        self._known: dict[tuple[str, str, int], float] = {}
        self._kinds: Mapping[str, Callable[[Unit], float]] = {
            "read": self._read,
            "forward": self._forward,
            "statistics": self._statistics,
            "shift": self._shift,
            "adapter": self._adapter,
            "adapt": self._adapt,
            "tuple": self._tuple,
            "view": self._view,
            "noise": self._noise,
        }
        self._few = self._images(1)
        one = self._time(lambda: subject.task.scores(subject.fast_model, self._few.inputs), 1)
        self._few = self._images(max(MIN_SAMPLE_IMAGES, min(subject.batch_size, int(SAMPLE_SECONDS / one))))
        fit = SAMPLE_PIXELS // max(1, math.prod(getattr(self._few.inputs, "shape", ())[-2:]))
        self._pixels = self._images(max(MIN_SAMPLE_IMAGES, min(len(self._few), fit)))

    def __call__(self, unit: Unit) -> float:
        """Return the price of a unit, measured once."""
        if unit.kind not in self._kinds:
            raise unknown("unit of work", unit.kind, self._kinds)
        key = unit.kind, str(getattr(unit.of, "name", unit.of)), unit.batch  # severities of a shift have one price
        if key not in self._known:
            self._known[key] = self._kinds[unit.kind](unit)
        return self._known[key]

    def _images(self, count: int) -> Batch:
        data = self.subject.data
        chosen = data.subset(range(min(count, len(data))))
        return next(iter(chosen.batches(count, device=self.subject.device)))

    def _time(self, work: Callable[[], object], images: int, thorough: int = 1) -> float:
        """Return seconds per image, without those of the first call, which may load what later ones have."""
        work()
        spent, times = 0.0, 0
        while not times or (spent < thorough * PATIENCE and times < thorough * TRIES):
            start = self.clock()
            work()
            if self.subject.device.startswith("cuda"):
                torch.cuda.synchronize(self.subject.device)
            spent, times = spent + self.clock() - start, times + 1
        return spent / times / images

    def _read(self, _: Unit) -> float:
        count = len(self._few)
        return self._time(lambda: self._images(count), count)

    def _forward(self, _: Unit) -> float:
        ask = self.subject.task.scores
        return self._time(lambda: ask(self.subject.fast_model, self._few.inputs), len(self._few), TIMED_REPEATS)

    def _statistics(self, _: Unit) -> float:
        model, batch = self.subject.inner_model, self._few
        try:
            tap = StatisticsTap(model) if isinstance(model, nn.Module) else nullcontext()
        except ModelError:  # it has no such layers
            tap = nullcontext()

        def watched() -> None:
            with tap:
                self.subject.task.scores(model, batch.inputs)

        return self._time(watched, len(batch))

    def _shift(self, unit: Unit) -> float:
        shift, batch = _typical(cast(Shift, unit.of)), self._pixels
        return self._time(lambda: shift(batch.inputs, batch.keys, seed=0), len(batch))

    def _make(self, unit: Unit) -> Callable[..., object] | None:
        """Return a fresh adapter, None where the model cannot have one: its tasks will cost nothing."""
        from shiftproof.adapters import make_adapter
        from shiftproof.audits.sections.measuring import preset_for

        method, model = cast(Method, unit.of), self.subject.adapted_model
        try:
            adapter: Callable[..., object] = make_adapter(model, method, preset=preset_for(self.subject))
        except (ModelError, ConfigurationError):
            return None
        return adapter

    def _adapter(self, unit: Unit) -> float:
        return self._time(lambda: self._make(unit), 1)

    def _adapt(self, unit: Unit) -> float:
        adapter, size = self._make(unit), min(unit.batch, len(self._few))
        if adapter is None:
            return 0.0
        data = self.subject.data
        some = data.subset(range(size * max(1, min(TRIES + 1, len(data) // size))))
        batches = cycle(some.batches(size, device=self.subject.device))  # methods do not learn from the same twice
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # small batches without a prior are priced on purpose
            return self._time(lambda: adapter(next(batches).inputs), size)

    def _tuple(self, unit: Unit) -> float:
        from shiftproof.searchers import Constraint, make_space
        from shiftproof.searchers.applying import Applier
        from shiftproof.searchers.uniform import draw_tuples
        from shiftproof.shifts.levels import to_bytes

        space, batch = make_space(cast(str, unit.of)), self._pixels
        pixels = to_bytes(batch.inputs)
        tuples = iter(draw_tuples(space, unit.batch, range(10 * TRIES), seed=0) * TRIES)
        constraint, original = Constraint(similarity=0.5), pixels.float()

        def judge() -> None:
            applier = Applier(pixels, batch.keys, seed=0)
            for _ in range(10):
                steps = [space.steps[gene] for gene in next(tuples)]
                constraint.tally(original, applier.levels(steps, 0, len(pixels)))

        return self._time(judge, 10 * len(pixels))

    def _view(self, unit: Unit) -> float:
        from shiftproof.estimators.neighborhoods import neighborhood

        views, batch = neighborhood(cast(str, unit.of)), self._pixels
        return self._time(lambda: views(batch.inputs, batch.keys, 3, 0), 3 * len(batch))

    def _noise(self, _: Unit) -> float:
        from shiftproof.keyed import Keyed

        batch = self._pixels
        return self._time(lambda: Keyed(0, batch.keys).normal(std=1.0, shape=batch.inputs.shape[1:]), len(batch))


def estimate(
    tasks: Mapping[str, Measurement], done: set[str], prices: Callable[[Unit], float], *, at_a_time: int = 1
) -> Forecast:
    """Return what the tasks of a plan, by identity, should take; those done already are not among what remains."""
    planned: dict[str, float] = defaultdict(float)
    remaining: dict[str, float] = defaultdict(float)
    asked: dict[str, float] = defaultdict(float)
    passes: dict[str, float] = defaultdict(float)
    for identity, task in tasks.items():
        priced = [(unit, images, images * prices(unit)) for unit, images in task.work()]
        seconds = sum(price for _, _, price in priced)
        planned[task.section] += seconds
        asked[task.section] += sum(price for unit, _, price in priced if unit.kind in PASSES)
        passes[task.section] += task.passes
        if identity not in done:
            remaining[task.section] += seconds
    bare = {name: asked[name] / passes[name] for name in asked if passes[name]}
    return Forecast(dict(planned), dict(remaining), at_a_time, bare=bare)


def kept(plan: Mapping[str, Sequence[Measurement]], whole: Mapping[str, Sequence[Measurement]]) -> dict[str, float]:
    """Return which share of the passes of a whole plan is in a plan, of each section that has less."""
    shares = {name: passes_of(some) / max(1.0, passes_of(whole[name])) for name, some in plan.items()}
    return {name: share for name, share in shares.items() if share < 1}


def passes_of(tasks: Sequence[Measurement]) -> float:
    """Return how many inputs go through the model."""
    return sum(task.passes for task in tasks)


def _typical(shift: Shift) -> Shift:
    """Return a shift at the severity whose price stands for all, where it has one to choose."""
    chosen = any(each.name == "severity" and each.init for each in fields(shift))
    return replace(shift, severity=TYPICAL) if chosen else shift
