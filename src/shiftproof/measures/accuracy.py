"""Accuracy as a count, with its interval."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from shiftproof.measures.intervals import Interval, proportion_intervals


@dataclass(frozen=True)
class Accuracy:
    """An accuracy as counts: correct predictions out of all images.

    Args:
        right: Number of correct predictions.
        images: Number of images.

    >>> Accuracy(90, 100).value
    0.9
    >>> Accuracy.sum([Accuracy(1, 2), Accuracy(3, 4)])
    Accuracy(right=4, images=6)
    """

    right: int
    images: int

    def __post_init__(self) -> None:
        if not 0 <= self.right <= self.images or self.images == 0:
            raise ValueError(f"an accuracy needs 0 <= right <= images and images > 0; got {self.right}, {self.images}")

    @classmethod
    def sum(cls, parts: Iterable[Accuracy]) -> Accuracy:
        """Return the accuracy over all images of the parts."""
        parts = tuple(parts)
        return cls(sum(part.right for part in parts), sum(part.images for part in parts))

    @property
    def value(self) -> float:
        """The accuracy, as a fraction."""
        return self.right / self.images

    def interval(self, confidence: float = 0.95, among: float = 1) -> Interval:
        """Return the Clopper-Pearson interval of the accuracy on images drawn like these.

        With `among` accuracies to choose from, such as the lowest of them, all intervals hold together.
        """
        low, high = proportion_intervals(self.right, self.images, confidence=confidence, among=among)
        return Interval(float(low), float(high))
