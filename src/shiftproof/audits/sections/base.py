"""What a section is: it plans tasks, which measure, and says what the results mean."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shiftproof.adapters import Method
from shiftproof.audits.audit_settings import AuditSettings
from shiftproof.audits.numbers import Number
from shiftproof.audits.sections.wording import listed
from shiftproof.audits.suite_cells import SuiteCell
from shiftproof.data.base import NOUNS, Noun
from shiftproof.data.images.imageset import SMALL_SIDE
from shiftproof.measures.intervals import Interval, mean_interval, student_interval
from shiftproof.models.identity import digest
from shiftproof.models.sources import is_builtin
from shiftproof.prediction_tasks import CLASSES
from shiftproof.reports.view import View
from shiftproof.runs import Json, Result, Task
from shiftproof.shifts import Shift
from shiftproof.subjects import Subject

CLEAN = "clean"
"""What inputs under no shift are called."""
FIRST_STAGE = 100
"""Inputs that a first report is about at least, where there are so many."""
Condition: TypeAlias = Shift | SuiteCell
"""What inputs are measured under: a shift of the data, or a corruption that a suite's files have."""


@dataclass(frozen=True)
class Unit:
    """What has a price in `forecast`: its kind, and the shift, method or neighbourhood it is of, in batches of a size.

    read          an image from the data set
    forward       an image through the model
    statistics    the same, with the statistics of its normalisation layers taken
    shift         an image under a shift; one severity stands for all
    adapter       no image: a fresh adapter of a method
    adapt         an image through a method of adaptation, in batches
    tuple         an image under a chain of a space, of the length `batch`, and its similarity to the original
    view          a view of an image from a neighbourhood
    noise         Gaussian noise for an image
    """

    kind: str
    of: Shift | Method | str | None = None
    batch: int = 0


PASSES = ("forward", "statistics", "adapt")
"""Kinds of units in which an input goes through the model."""
READ, FORWARD, STATISTICS, NOISE = map(Unit, ("read", "forward", "statistics", "noise"))
Work: TypeAlias = Sequence[tuple[Unit, float]]
"""What a task costs: how many images of each unit."""


@dataclass(frozen=True)
class Scope:
    """What is known when an audit is planned: its settings, and the number, size and kind of the inputs it uses.

    `inputs` is what they are, `images` or `texts`; of images, `side` is how many pixels a side they have. Of a suite,
    `cells` are what its corruptions are measured on; where it has no clean set, `gentlest` is what stands for one when
    it is asked whether the model works at all. `per_image` is how many kinds of shift each image is put under, None
    where it is all of them. Clean and corrupted inputs are measured in `stages`, up to so many inputs; `measured` says
    after how many of them it was stopped, `looks` how many intervals that was decided by. `task` is what labels ask of
    the model.
    """

    settings: AuditSettings
    images: int
    side: int | None
    inputs: str = "images"
    cells: tuple[SuiteCell, ...] = ()
    gentlest: SuiteCell | None = None
    per_image: int | None = None
    measured: int | None = None
    looks: int = 1
    task: str = CLASSES.name

    def to_row(self) -> dict[str, Json]:
        """Return the scope as JSON values, without the settings."""
        row: dict[str, Json] = {"images": self.images, "side": self.side, "inputs": self.inputs, "task": self.task}
        row |= {"per_image": self.per_image, "measured": self.measured, "looks": self.looks}
        if self.cells:
            row |= {"cells": [asdict(cell) for cell in self.cells]}
            row |= {"gentlest": None if self.gentlest is None else asdict(self.gentlest)}
        return row

    @classmethod
    def from_row(cls, settings: AuditSettings, row: Mapping[str, Any]) -> Self:
        """Return the scope of a row."""
        cells = tuple(SuiteCell(**cell) for cell in row.get("cells", ()))
        gentlest = None if row.get("gentlest") is None else SuiteCell(**row["gentlest"])
        stopped = row["per_image"], row["measured"], row["looks"]
        return cls(settings, row["images"], row["side"], row["inputs"], cells, gentlest, *stopped, row["task"])

    @property
    def small(self) -> bool:
        """Whether inputs are small: settings published for CIFAR suit such images, and texts have no pixels at all."""
        return self.side is None or self.side <= SMALL_SIDE

    @property
    def clean(self) -> bool:
        """Whether there are clean inputs."""
        return self.gentlest is None

    def told_cut(self, operations: float) -> str:
        """Say what a model of so many operations per input is not given, why, and how to get it; nothing if it is."""
        settings = self.settings
        if settings.scale >= 1:
            return ""
        few = self.per_image
        fewer = "" if few is None else f", each of the {self.inputs} under {few} of the {len(settings.levels)} shifts"
        named = {"adaptation": "adaptation", "confidence": "confidence", "label_free": "estimation without labels"}
        some = [said for name, said in named.items() if name in settings.sections]
        adapted = f", {listed(some)} under one corruption of each kind" if some else ""
        thinned = f"{fewer}{adapted}" if settings.sparse else ""
        sizes = f"{100 * settings.scale:.2g}% of its usual sizes, though not below what each section needs{thinned}"
        if settings.minutes is not None:
            return f"In {settings.minutes:g} minutes {settings.budget} has {sizes}."
        return (
            f"One of the {self.inputs} takes this model {operations / 1e9:.1f} billion operations, so "
            f"{settings.budget} has {sizes}. --minutes gives it more time."
        )

    def grown(self, settings: AuditSettings, available: int) -> Scope:
        """Return the scope that other settings would give the same data, of which so much is available."""
        images = min(settings.images or available, available)
        cells = tuple(replace(cell, images=round(cell.images * images / self.images)) for cell in self.cells)
        return replace(self, settings=settings, images=images, cells=cells, per_image=None)

    @property
    def stages(self) -> tuple[int, ...]:
        """After how many inputs a report can be written: about a tenth of them, and then twice as many each time."""
        least = len(self.settings.levels) * max(self.settings.levels) if self.per_image else FIRST_STAGE
        bounds = [max(least, math.ceil(self.images / 10))]
        while bounds[-1] < self.images:
            bounds.append(2 * bounds[-1])
        return (*bounds[:-1], self.images)

    def slices(self, images: int | None = None) -> Iterator[tuple[int, int]]:
        """Cut the images, or so many, into slices small enough that a kill costs seconds."""
        step = 500 if self.small or self.per_image else 256
        reach = self.images if self.measured is None else self.measured
        bounds = [bound for bound in self.stages if bound <= reach] if images is None else [images]
        for first, bound in pairwise([0, *bounds]):
            for start in range(first, bound, step):
                yield start, min(start + step, bound)

    def graded(self, severities: Sequence[float]) -> tuple[Shift, ...]:
        """Return the shifts that were asked for by name, at each of the severities."""
        return tuple(replace(shift, severity=level) for shift in self.settings.shifts for level in severities)

    def grid(self) -> tuple[Shift, ...]:
        """Return all shifts of the audit: by name at each severity, and as they were given."""
        return tuple(dict.fromkeys((*self.graded(self.settings.severities), *self.settings.fixed)))

    def at(self, severity: float) -> tuple[Shift, ...]:
        """Return the shifts of the audit at a severity, with those that were given as they are."""
        return tuple(dict.fromkeys((*self.graded([severity]), *self.settings.fixed)))

    def scaled(self, number: int, least: int) -> int:
        """Return a number of the budget's, cut to the share of it the model can afford, but not below the least."""
        return min(number, max(least, round(number * self.settings.scale)))


class Measurement(Task[Subject]):
    """A task of an audit; what is before a dot of its kind is the section it is counted under."""

    @property
    def section(self) -> str:
        """The section that its time is counted under."""
        return self.kind.partition(".")[0]

    @abstractmethod
    def work(self) -> Work:
        """Say what measuring costs."""

    @property
    def passes(self) -> float:
        """How many inputs go through the model, as planned."""
        return sum(inputs for unit, inputs in self.work() if unit.kind in PASSES)

    def code(self) -> str:
        """Return a digest of the task's code where it is of another package: what was edited is measured anew."""
        home = type(self).__module__
        return "" if home.startswith("shiftproof.") or is_builtin(home) else digest(type(self))


@dataclass(frozen=True)
class PerImage:
    """What each image adds to a number that is a mean over images, [N], and the least and the most one can add.

    Of a number that is a quotient of sums, such as mIoU, they are what images add to first order (`Overlap.influence`),
    which has no limits: its interval is Student's.
    """

    values: NDArray[np.float64]
    low: float = 0.0
    high: float = 1.0
    limited: bool = True

    def interval(self, among: float = 1) -> Interval | None:
        """Return the interval of the mean; None where there are too few images to say."""
        if not self.limited:
            return student_interval(self.values, among=among)
        return mean_interval(self.values, self.low, self.high, among=among)


class Section(ABC):
    """One question of an audit."""

    name: ClassVar[str]
    title: ClassVar[str]
    question: ClassVar[str]
    takes: ClassVar[tuple[str, ...]] = ("images",)
    """The kinds of inputs it can ask its question about."""
    noun: Noun = NOUNS["images"]
    """What the inputs of this audit are called in what it says."""
    looks: int = 1
    """How many intervals it was decided by when to stop; those that are told are wide enough that all hold."""
    needs_clean: ClassVar[bool] = True
    """Whether it asks it of clean inputs, which a suite alone does not have."""
    numbers: ClassVar[tuple[Number, ...]] = ()
    """What a pipeline can gate on, its headline first."""

    @abstractmethod
    def plan(self, scope: Scope) -> Iterator[Measurement]:
        """Yield the tasks to measure.

        The part of a task's kind before a dot names its section. A section may plan another's tasks: equal tasks run
        once.
        """

    def needs(self, number: str, task: Measurement) -> bool:
        """Say whether a number is made of a task, among others: where it was not measured, there is no number."""
        return True

    def per_image(self, results: Sequence[Result]) -> Mapping[str, PerImage]:
        """Return what each image adds to the numbers that are means over images, by the number's name.

        Two audits of the same images are compared by these, image by image; other numbers have no interval there.
        """
        return {}

    @abstractmethod
    def view(self, results: Sequence[Result]) -> View:
        """Say what the results of the planned tasks mean; those of failed tasks have no row."""


def passes(images: float, shift: Condition | None = None) -> list[tuple[Unit, float]]:
    """Return the work of reading images, shifting them, and asking the model once."""
    return [(READ, images), (FORWARD, images), *shifting(None if isinstance(shift, SuiteCell) else shift, images)]


def shifting(shift: Shift | None, images: float) -> list[tuple[Unit, float]]:
    """Return the work of shifting images; none where there is no shift."""
    return [] if shift is None else [(Unit("shift", shift), images)]


def label_of(shift: Shift | None) -> str:
    """Return the name of a shift, or of none, in tables."""
    return CLEAN if shift is None else shift.label
