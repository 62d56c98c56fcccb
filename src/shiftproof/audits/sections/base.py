"""What a section is: it plans cells, measures one, and says what the results mean."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from shiftproof.audits.numbers import Number
from shiftproof.audits.settings import Settings
from shiftproof.audits.view import View
from shiftproof.data import ImageSet
from shiftproof.models import Model
from shiftproof.runs import Cell, Result, Row

Work: TypeAlias = Mapping[str, float]
"""What a cell costs: how many images of each unit of `forecast`: `forward`, `shift fog@3`, `adapt tent 64`."""


@dataclass(frozen=True)
class Subject:
    """What is audited: the model, and the images or texts it is audited on."""

    model: Model
    data: ImageSet
    device: str
    batch_size: int


@dataclass(frozen=True)
class Scope:
    """What is known when an audit is planned: its settings, and the number, size and kind of the inputs it uses.

    `inputs` is what they are, `images` or `texts`, whose side is 0.
    """

    settings: Settings
    images: int
    side: int
    inputs: str = "images"

    def slices(self) -> Iterator[tuple[int, int]]:
        """Cut the images into runs of cells small enough that a kill costs seconds."""
        step = 500 if self.side <= 64 else 100
        for start in range(0, self.images, step):
            yield start, min(start + step, self.images)

    def scaled(self, number: int, least: int) -> int:
        """Return a number of the budget's, cut to the share of it the model can afford, but not below the least."""
        return min(number, max(least, round(number * self.settings.scale)))


class Section(ABC):
    """One question of an audit."""

    name: ClassVar[str]
    title: ClassVar[str]
    question: ClassVar[str]
    takes: ClassVar[tuple[str, ...]] = ("images",)
    """The kinds of inputs it can ask its question about."""
    numbers: ClassVar[tuple[Number, ...]] = ()
    """What a pipeline can gate on, its headline first."""

    @abstractmethod
    def plan(self, scope: Scope) -> Iterator[Cell]:
        """Yield the cells to measure.

        The part of a cell's task before a dot names the section that measures it. A section may plan another's cells:
        equal cells run once.
        """

    @abstractmethod
    def measure(self, cell: Cell, subject: Subject) -> Row:
        """Return the numbers of one cell."""

    def work(self, cell: Cell) -> Work:
        """Say what measuring a cell costs: here, a forward pass of its images after its shift."""
        return passes(cell)

    def needs(self, number: str, cell: Cell) -> bool:
        """Say whether a number is made of a cell, among others: where the cell was not measured, there is no number."""
        return True

    def per_image(self, results: Sequence[Result]) -> Mapping[str, NDArray[np.float64]]:
        """Return what each image adds to the numbers that are means over images, [N] each, by the number's name.

        Two audits of the same images are compared by these, image by image; other numbers have no interval there.
        """
        return {}

    @abstractmethod
    def view(self, results: Sequence[Result]) -> View:
        """Say what the results of the planned cells mean; those of failed cells have no row."""


def passes(cell: Cell) -> dict[str, float]:
    """Return the work of reading a cell's images, shifting them where it names a shift, and asking the model once."""
    given = cell.parameters
    images = cast(float, given["images"] if "images" in given else cast(int, given["stop"]) - cast(int, given["start"]))
    work = {"read": images, "forward": images}
    if isinstance(given.get("shift"), str) and given["shift"] != "clean":
        work[f"shift {given['shift']}"] = images
    return work
