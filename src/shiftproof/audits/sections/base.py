"""What a section is: it plans cells, measures one, and says what the results mean."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from shiftproof.audits.settings import Settings
from shiftproof.audits.view import View
from shiftproof.data import ImageSet
from shiftproof.models import Model
from shiftproof.runs import Cell, Result, Row


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


class Section(ABC):
    """One question of an audit."""

    name: ClassVar[str]
    title: ClassVar[str]
    question: ClassVar[str]
    takes: ClassVar[tuple[str, ...]] = ("images",)
    """The kinds of inputs it can ask its question about."""

    @abstractmethod
    def plan(self, scope: Scope) -> Iterator[Cell]:
        """Yield the cells to measure.

        The part of a cell's task before a dot names the section that measures it. A section may plan another's cells:
        equal cells run once.
        """

    @abstractmethod
    def measure(self, cell: Cell, subject: Subject) -> Row:
        """Return the numbers of one cell."""

    @abstractmethod
    def view(self, results: Sequence[Result]) -> View:
        """Say what the results of the planned cells mean; those of failed cells have no row."""
