"""What writes corrupted copies of a set of images, in tasks that can be lost and run again: a run of images, one shift.

Files (`file_copies`) and arrays (`array_copies`) differ in how images are read and written; the rest is here.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

from shiftproof.data import BadFile
from shiftproof.exports.suites import Target
from shiftproof.runs import Json, Result, Row, Task
from shiftproof.shifts.base import Shift

MANIFEST = "manifest.json"
SLICE_VALUES = 2**25
"""A cell holds so many values of images at most, unless one image alone has more."""


@dataclass(frozen=True)
class CopiedRun(Task["Copier"]):
    """A run of images under one shift; `target` is the shift's place in the order."""

    kind = "corrupt"
    shift: Shift
    target: int
    start: int
    stop: int

    @property
    def rows(self) -> range:
        """The places of the images."""
        return range(self.start, self.stop)

    def measure(self, subject: Copier) -> Row:
        """Write the images."""
        return subject.measure(self)


@dataclass(frozen=True, kw_only=True)
class Copies(ABC):
    """Copies of some images in the folder `out`, one for each target; it can be sent to worker processes."""

    slice_images: ClassVar[int]
    """A cell writes so many images at most."""

    out: Path
    targets: tuple[Target, ...]
    seed: int
    device: str

    @property
    @abstractmethod
    def values(self) -> Sequence[int]:
        """How many values each image has."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """16 hexadecimal digits that change with any image."""

    @property
    @abstractmethod
    def bad(self) -> tuple[BadFile, ...]:
        """The files that are left out."""

    @abstractmethod
    def prepare(self, begun: Sequence[CopiedRun]) -> None:
        """Make the folder ready for cells to be written, after those of an earlier run."""

    @abstractmethod
    def read(self, rows: range) -> Any:
        """Return a run of images, for `write`."""

    @abstractmethod
    def write(self, images: Any, rows: range, target: Target) -> Row:
        """Shift a run of images and write them, with the same result however often it is done.

        The row says how many `images` were written, the files `left_out`, and a `digest` of what was written.
        """

    @abstractmethod
    def digest(self, rows: range, target: Target, left_out: Collection[str]) -> str | None:
        """Return the `digest` that `write` noted, of what is on disk now; None where something is missing."""

    @abstractmethod
    def finish(self) -> None:
        """Complete the folder when all cells are written."""

    @abstractmethod
    def describe(self, left_out: Sequence[BadFile]) -> dict[str, Json]:
        """Return what a manifest says of the images."""

    @property
    def companions(self) -> tuple[int, int]:
        """How many images have a label map, and how many other files are copied."""
        return 0, 0

    def tasks(self) -> tuple[CopiedRun, ...]:
        """Return runs of images, every shift of one run before the next run, so that it is read once."""
        return tuple(
            CopiedRun(target.shift, number, start, stop)
            for start, stop in slices(self.values, self.slice_images)
            for number, target in enumerate(self.targets)
        )

    def intact(self, result: Result) -> bool:
        """Whether what a cell wrote is still as it was: a file may be gone, cut or overwritten since."""
        task, row = result.task, result.row
        if not isinstance(task, CopiedRun) or row is None or row.get("digest") is None:
            return False
        left_out = {bad[0] for bad in cast("list[list[str]]", row["left_out"])}
        return self.digest(task.rows, self.target(task), left_out) == row["digest"]

    def target(self, task: CopiedRun) -> Target:
        """Return what a task writes."""
        return self.targets[task.target]

    def __call__(self) -> Copier:
        """Return what writes cells in this process."""
        return Copier(self)


class Copier:
    """A worker of `runs`, which keeps the images of the last cell: the other shifts of these images come next."""

    def __init__(self, copies: Copies) -> None:
        self._copies = copies
        self._rows = range(0)
        self._images: Any = None

    def measure(self, task: CopiedRun) -> Row:
        """Write a run of images under one shift."""
        rows = task.rows
        if rows != self._rows:
            self._images = self._copies.read(rows)
            self._rows = rows
        return self._copies.write(self._images, rows, self._copies.target(task))


def digest_of(parts: Iterable[bytes | memoryview]) -> str:
    """Return 32 hexadecimal digits of BLAKE2 of several contents, in their order."""
    digests = (hashlib.blake2b(part, digest_size=16).digest() for part in parts)
    return hashlib.blake2b(b"".join(digests), digest_size=16).hexdigest()


def slices(values: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Cut images, given how many values each has, into runs of at most so many images that fit in memory.

    >>> list(slices([10, 10, 2**25, 10], most=64))
    [(0, 2), (2, 3), (3, 4)]
    """
    start = total = 0
    for index, count in enumerate(values):
        if index > start and (index - start == most or total + count > SLICE_VALUES):
            yield start, index
            start, total = index, 0
        total += count
    yield start, len(values)
