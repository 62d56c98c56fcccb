"""What a corruption at a severity of a suite is measured on, as far as a plan and a report know it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shiftproof.runs.content import digest

CLEAN, PARTS = "clean", "parts"
"""What cells with the same images have in common: the clean set has them too, or the suite's parts alone."""


@dataclass(frozen=True)
class SuiteCell:
    """What a corruption at a severity of a suite is measured on: so many images with this fingerprint.

    Cells of one `group` have the same images in the same order. `imagenet` says that they are of all of ImageNet's
    classes. It has the facts that tables want of a `Shift`.
    """

    name: str
    severity: float
    images: int
    content: str
    group: str
    imagenet: bool = False

    notes = ()
    acts_on = "images"

    @property
    def label(self) -> str:
        """What it is called: `fog@3`."""
        return f"{self.name}@{self.severity:g}"

    def __str__(self) -> str:
        return self.label


def fingerprint_of(cells: Sequence[SuiteCell]) -> str:
    """Return a digest of all that a suite is measured on."""
    return digest([cell.content for cell in cells])[:16]
