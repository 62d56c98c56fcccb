"""How long an audit will take: what its cells cost in images, times what an image costs here, measured on a few.

Sections say what a cell costs in units (`Section.work`); a unit's price, in seconds per image, is measured with the
model and the images themselves the first time it is asked for. Units:

    read            an image from the data set
    forward         an image through the model
    statistics      the same, with the statistics of its normalisation layers taken
    shift LABEL     an image under a shift, `shift fog@3`; one severity stands for all
    adapter NAME    no image: a fresh adapter of a method
    adapt NAME B    an image through a method of adaptation, in batches of B
    tuple           an image under a tuple of operations, and its similarity to the original
    view NAME       a view of an image from a neighbourhood
    noise           Gaussian noise for an image
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import nn

from shiftproof import shifts
from shiftproof.audits.sections import section
from shiftproof.audits.sections.base import Subject
from shiftproof.data import Batch
from shiftproof.errors import ConfigurationError, ModelError
from shiftproof.models import StatisticsTap, logits
from shiftproof.registry import unknown
from shiftproof.runs import Cell

PATIENCE, TRIES = 0.25, 5
"""Seconds a unit is tried for, and how often at most, after a first time that does not count."""
THOROUGH = 4
"""The forward pass, of which nearly everything is made, is tried so many times as long."""
HEAVY = 1.0
"""Seconds a batch may take: models too slow for that are tried on fewer images."""
FEWEST = 4
TYPICAL = 3.0
"""The severity whose price stands for all."""


@dataclass(frozen=True)
class Forecast:
    """Seconds by section: of all its cells, and of those still to be measured, which run so many at a time."""

    planned: Mapping[str, float]
    remaining: Mapping[str, float]
    at_a_time: int = 1

    @property
    def seconds(self) -> float:
        """How long what remains will take."""
        return sum(self.remaining.values()) / self.at_a_time


class Prices:
    """Seconds per image of each unit of work, for one subject; `clock` is what they are measured by."""

    def __init__(self, subject: Subject, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self.subject, self.clock = subject, clock
        self._known: dict[str, float] = {}
        self._kinds: Mapping[str, Callable[..., float]] = {
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
        one = self._time(lambda: logits(subject.model, self._few.images), 1)
        self._few = self._images(max(FEWEST, min(subject.batch_size, int(HEAVY / one))))

    def __call__(self, unit: str) -> float:
        """Return the price of a unit, measured once."""
        kind, *given = unit.split(" ", 1)
        if kind not in self._kinds:
            raise unknown("unit of work", kind, self._kinds)
        key = unit if kind != "shift" else f"shift {_stem(given[0])}"
        if key not in self._known:
            self._known[key] = self._kinds[kind](*given)
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

    def _read(self) -> float:
        count = len(self._few)
        return self._time(lambda: self._images(count), count)

    def _forward(self) -> float:
        return self._time(lambda: logits(self.subject.model, self._few.images), len(self._few), THOROUGH)

    def _statistics(self) -> float:
        model, batch = self.subject.model, self._few
        try:
            tap = StatisticsTap(model) if isinstance(model, nn.Module) else nullcontext()
        except ModelError:  # it has no such layers
            tap = nullcontext()

        def watched() -> None:
            with tap:
                logits(model, batch.images)

        return self._time(watched, len(batch))

    def _shift(self, label: str) -> float:
        shift, batch = shifts.parse(f"{_stem(label)}@{TYPICAL:g}" if "@" in label else label), self._few
        return self._time(lambda: shift(batch.images, batch.keys, seed=0), len(batch))

    def _make(self, name: str) -> Callable[..., object] | None:
        """Return a fresh adapter, None where the model cannot have one: its cells will cost nothing."""
        from shiftproof.audits.endurance import make_adapter
        from shiftproof.audits.sections.measuring import preset_for

        try:
            adapter: Callable[..., object] = make_adapter(self.subject.model, name, preset=preset_for(self.subject))
        except (ModelError, ConfigurationError):
            return None
        return adapter

    def _adapter(self, name: str) -> float:
        return self._time(lambda: self._make(name), 1)

    def _adapt(self, given: str) -> float:
        name, batch_size = given.split(" ")
        adapter, batch = self._make(name), self._images(min(int(batch_size), len(self._few)))
        if adapter is None:
            return 0.0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # small batches without a prior are priced on purpose
            return self._time(lambda: adapter(batch.images), len(batch))

    def _tuple(self) -> float:
        from shiftproof.searchers import Constraint, make_space
        from shiftproof.searchers.applying import Applier
        from shiftproof.searchers.uniform import draw_tuples
        from shiftproof.shifts.levels import from_levels, to_bytes

        space, batch = make_space("cifar"), self._few
        pixels = to_bytes(batch.images)
        tuples = iter(draw_tuples(space, 5, range(10 * TRIES), seed=0) * TRIES)
        constraint, original = Constraint(similarity=0.5), from_levels(pixels)

        def judge() -> None:
            applier = Applier(pixels, batch.keys, seed=0)
            for _ in range(10):
                steps = [space.steps[gene] for gene in next(tuples)]
                constraint.tally(original, applier(steps, 0, len(pixels)))

        return self._time(judge, 10 * len(pixels))

    def _view(self, name: str) -> float:
        from shiftproof.estimators.neighborhoods import neighborhood

        views, batch = neighborhood(name), self._few
        return self._time(lambda: views(batch.images, batch.keys, 3, 0), 3 * len(batch))

    def _noise(self) -> float:
        from shiftproof.keyed import Keyed

        batch = self._few
        return self._time(lambda: Keyed(0, batch.keys).normal(std=1.0, shape=batch.images.shape[1:]), len(batch))


def estimate(cells: Mapping[str, Cell], done: set[str], prices: Prices, *, at_a_time: int = 1) -> Forecast:
    """Return what the cells of a plan, by identity, should take; those done already are not among what remains."""
    planned: dict[str, float] = {}
    remaining: dict[str, float] = {}
    for identity, cell in cells.items():
        name = cell.task.partition(".")[0]
        seconds = sum(images * prices(unit) for unit, images in section(name).work(cell).items())
        planned[name] = planned.get(name, 0.0) + seconds
        if identity not in done:
            remaining[name] = remaining.get(name, 0.0) + seconds
    return Forecast(planned, remaining, at_a_time)


def _stem(label: str) -> str:
    """Return what shifts of one price have in common: their name, without the severity or parameters."""
    return re.split(r"[@\[]", label, maxsplit=1)[0]
