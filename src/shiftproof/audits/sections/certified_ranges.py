"""Ranges of brightness, contrast, blur and translation within which the smoothed model is provably stable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shiftproof.audits.sections.wording import interval, listed, percent
from shiftproof.certificates.laws import LAWS
from shiftproof.measures import certified_accuracy
from shiftproof.reports.view import Column, Sentence, Table

TOLD = {
    "brightness": "brightness ±{0:g}",
    "contrast+brightness": "contrast ±{1:.0f}% with brightness ±{0:g}",
    "blur": "Gaussian blur of a variance up to {0:g} square pixels",
    "translation": "cyclic shifts of less than {0:g} pixels",
}
"""How a range is written."""
PLACE = 2
"""Which of a transformation's distances is told in words: the middle one."""


@dataclass(frozen=True)
class CertifiedRange:
    """The ranges of one transformation within which images are right and provably stable, 0 for none."""

    against: str
    sigma: float
    radii: tuple[float, ...]

    @property
    def name(self) -> str:
        """What the number is called."""
        return self.against.partition("+")[0]

    @property
    def mean(self) -> float:
        """The mean range."""
        return sum(self.radii) / len(self.radii)

    def written(self, distance: float) -> str:
        """Return a range in words."""
        return TOLD[self.against].format(distance, 100 * distance)


def range_verdict(ranges: Sequence[CertifiedRange]) -> tuple[Sentence, ...]:
    """Say on how many images the smoothed model is provably stable, for one range of each transformation."""
    if not ranges:
        return ()
    said = []
    for each in ranges:
        distance = LAWS[each.against].distances[PLACE]
        share = certified_accuracy(each.radii, distance)
        said.append(f"{percent(share.value)} ({interval(share, len(ranges))}) for {each.written(distance)}")
    return (
        Sentence(f"Smoothed over the transformation itself, its certified accuracy on clean images is {listed(said)}."),
    )


def range_tables(ranges: Sequence[CertifiedRange]) -> tuple[Table, ...]:
    """Return a table with a row for each transformation and range."""
    if not ranges:
        return ()
    body = tuple(
        (each.written(distance), f"{each.sigma:g}", len(each.radii), certified_accuracy(each.radii, distance).value)
        for each in ranges
        for distance in LAWS[each.against].distances
    )
    return (
        Table(
            "Provably stable ranges",
            (
                Column("transformation"),
                Column("noise (sigma)"),
                Column("images", "number"),
                Column("certified accuracy", "percent", heat=(0.0, 1.0)),
            ),
            body,
            caption="Of the model smoothed over that transformation (shiftproof certify --against). "
            "Brightness and contrast are not clipped to [0, 1], nothing is rounded to 256 levels, shifts are cyclic: "
            "real changes that do these are not covered.",
        ),
    )
