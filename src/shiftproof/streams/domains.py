"""Sets of images one after another, as they are: one's own folders, or the parts of a published suite."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from shiftproof.data import Dataset, as_images
from shiftproof.data.images.joining import JoinedSet
from shiftproof.errors import DataError
from shiftproof.keyed import Keyed
from shiftproof.models.identity import digest
from shiftproof.runs import Json
from shiftproof.shifts.image_shift import ImageShift, Shape
from shiftproof.streams.stream import Shifted, Stream


@dataclass(frozen=True)
class AsFound(ImageShift):
    """No change: images of a domain as they are, under its name."""

    severity: float = 0.0
    moves: ClassVar[bool | None] = False

    @property
    def label(self) -> str:
        """The name of the domain."""
        return self.name

    def draw(self, rng: Keyed, shape: Shape) -> None:
        """Draw nothing."""

    def transform(self, images: Tensor, drawn: None) -> Tensor:
        """Return the images."""
        return images.clone()


class Domains(Stream):
    """The domains of joined sets (`folders:day,night`, `suite:CIFAR-10-C`) one after another, all images of each.

    Folders come in the order given, the corruptions of a suite in one drawn by the seed, as in CIN-C; images of a
    domain come in a random order. A longer stream goes round again.

    Args:
        data: Joined sets.
        length: Number of images; by default all.
        options: Those of `Stream`.

    >>> from PIL import Image
    >>> from shiftproof import load_data
    >>> for name in ("day/cat", "day/dog", "night/cat", "night/dog"):
    ...     (folder / name).mkdir(parents=True)
    ...     Image.new("RGB", (32, 32)).save(folder / name / "1.png")
    >>> len(Domains(load_data(f"folders:{folder}/day,{folder}/night")))
    4
    """

    kind: ClassVar[str] = "domains"

    def __init__(self, data: Dataset, *, length: int | None = None, **options: Any) -> None:
        if not isinstance(data, JoinedSet):
            got = as_images(data).name
            raise DataError(
                "A stream over domains needs several sets.", expected="folders:day,night or suite:CIFAR-10-C", got=got
            )
        super().__init__(data, length=length or len(data), **options)
        self.domains, self.ordered = data.domains, data.ordered
        if not isinstance(self.data, JoinedSet):
            raise TypeError("a part of joined sets knows its domains")
        self.domain = self.data.domain
        self.shifts = tuple(AsFound(name) for name in self.domains)

    @property
    def shift_names(self) -> tuple[str, ...]:
        """The domains in the order of the first round, as far as the stream goes."""
        turns = self.turns(0)
        images = torch.bincount(self.domain, minlength=len(turns))[turns]
        return tuple(self.domains[place] for place in turns[images.cumsum(0) - images < self.length].tolist())

    @property
    def notes(self) -> tuple[str, ...]:
        """How many of the sets the stream reaches, where it is too short for all."""
        reached, count = len(self.shift_names), len(self.domains)
        if reached == count:
            return ()
        return (f"The stream reaches {reached} of {count} sets: all of them take {len(self.domain):,} images.",)

    def turns(self, number: int) -> Tensor:
        """Return the domains in the order in which round `number` goes over them, [D]."""
        count = len(self.domains)
        return torch.arange(count) if self.ordered else Keyed(self.seed, [number]).fork("rounds").permutation(count)[0]

    def order(self, number: int) -> Tensor:
        """Return the rows of a pass, domain after domain."""
        mixed = super().order(number)
        return mixed[self.turns(number).argsort()[self.domain[mixed]].argsort(stable=True)]

    def shifts_at(self, positions: Tensor) -> Shifted:
        """Return the domains that the positions are in."""
        return Shifted(self.shifts, self.domain[self.rows_at(positions)])

    def describe(self) -> dict[str, Json]:
        """Return the domains, and which images are of which."""
        return {"domains": list(self.domains), "ordered": self.ordered, "of": digest(self.domain)}
