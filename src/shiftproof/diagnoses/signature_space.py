"""Where signatures of sets are compared: in errors of one image from the source, less what a class mix can do.

A coordinate is the difference of a channel's means in standard deviations of the source, or the logarithm of the ratio
of its standard deviations. Directions in which images of one class differ much count less by as much: otherwise content
hides a shift that the model hardly minds. Signatures are averages, so that those of any class mix of the source are
known exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shiftproof.diagnoses.explaining import Floats
from shiftproof.diagnoses.signatures import Signatures

MIX_DIRECTIONS = 15
"""Directions of a change of class mix that are left out of account, at most."""
MIXABLE = 5
"""A class needs so many images for a mix to be made of it."""
SMALLEST = 1e-6
"""Channels whose variance is below this share of the median are dead."""
ROUNDS = 6
IMAGES_A_DIRECTION = 40
"""One direction of content is known for so many images of the source; of fewer, chance would be taken for content."""


class Mix(NamedTuple):
    """A class mix of the source: the share of every class, and where its signature is."""

    shares: Floats
    place: Floats

    def error(self, counts: NDArray[np.int64]) -> float:
        """Return the squared error of its signature, of a source with so many images of each class."""
        return float((self.shares**2 / np.maximum(counts, 1)).sum())


@dataclass(frozen=True, eq=False)
class SignatureSpace:
    """The moments of a labelled source, class by class [K, 2 C], the error of each coordinate, and what mixes change.

    `live` are the channels that vary; `mixing` [M, D] is an orthonormal basis of what class mixes change, to first
    order. `content` [Q, D] are the orthonormal directions in which images of a class differ most, and `reach` [Q] how
    many times as far as in others: along them places are divided by it.
    """

    live: NDArray[np.int64]
    mean: Floats
    variance: Floats
    error: Floats
    content: Floats
    reach: Floats
    mixing: Floats
    moments: Floats
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, source: Signatures, labels: NDArray[np.int64]) -> SignatureSpace:
        """Take the space of a labelled source, [N, 2 C]."""
        rows = source.astype(np.float64)
        half = rows.shape[1] // 2
        variances = rows[:, half:].mean(0) - rows[:, :half].mean(0) ** 2
        live = np.nonzero(variances > SMALLEST * np.median(variances))[0]
        rows = rows[:, np.concatenate([live, live + half])]
        first, second = rows[:, : len(live)], rows[:, len(live) :]
        mean, variance = first.mean(0), variances[live]
        # What an image adds to the coordinates of a set, to first order.
        influence = np.concatenate(
            [(first - mean) / np.sqrt(variance), ((second - 2 * mean * first + mean**2) / variance - 1) / 2], 1
        )
        counts = np.bincount(labels)
        present = np.nonzero(counts)[0]
        centres = np.zeros((len(counts), influence.shape[1]))
        moments = np.zeros((len(counts), rows.shape[1]))
        for number in present:
            centres[number], moments[number] = influence[labels == number].mean(0), rows[labels == number].mean(0)
        within = influence - centres[labels]
        error = np.maximum(within.std(0), 1e-6)
        content, reach, rest = _content(within / error)
        error = error * rest
        between = _along((centres[present] - influence.mean(0)) / error, content, 1 / reach)
        _, sizes, directions = np.linalg.svd(np.sqrt(counts[present] / len(labels))[:, None] * between, False)
        kept = sizes[:MIX_DIRECTIONS] > 1e-6 * max(sizes[0], 1e-12)
        return cls(live, mean, variance, error, content, reach, directions[:MIX_DIRECTIONS][kept], moments, counts)

    @property
    def dimensions(self) -> int:
        """Coordinates, less those that mixes take."""
        return len(self.error) - len(self.mixing)

    def coordinates(self, averages: NDArray[np.floating]) -> Floats:
        """Return where averages of signatures [..., 2 C] are, in errors of one image, [..., D]; the source is at 0."""
        half = averages.shape[-1] // 2
        return self._place(averages[..., self.live].astype(float), averages[..., self.live + half].astype(float))

    def without_mix(self, changes: Floats) -> Floats:
        """Return changes without what a class mix can explain of them, to first order."""
        return np.asarray(changes - (changes @ self.mixing.T) @ self.mixing)

    def as_it_is(self) -> Mix:
        """Return the mix of the source itself."""
        return Mix(self.counts / self.counts.sum(), np.zeros(len(self.error)))

    def nearest_mix(self, place: Floats) -> Mix:
        """Return the mix of the source's classes that is nearest to a place; its own where classes are too small."""
        from scipy.optimize import nnls

        here = self.as_it_is()
        present = np.nonzero(self.counts)[0]
        if len(present) > len(self.error) // 2 or self.counts[present].min() < MIXABLE:
            return here
        heavy = 100 * np.abs(place).max() + 100  # on the shares' sum being 1
        for _ in range(ROUNDS):
            slopes = self._slopes(here.shares @ self.moments)[present]
            wanted = place - here.place + here.shares[present] @ slopes
            table = np.concatenate([slopes.T, np.full((1, len(present)), heavy)])
            found, _ = nnls(table, np.append(wanted, heavy))
            shares = np.zeros(len(self.counts))
            shares[present] = found / found.sum()
            here = Mix(shares, self._place(*np.split(shares @ self.moments, 2)))
        return here

    def _place(self, means: Floats, squares: Floats) -> Floats:
        variances = np.maximum(squares - means**2, SMALLEST * self.variance)
        moved = (means - self.mean) / np.sqrt(self.variance), np.log(variances / self.variance) / 2
        return _along(np.concatenate(moved, -1) / self.error, self.content, 1 / self.reach)

    def _slopes(self, at: Floats) -> Floats:
        """Return how the place moves with the share of each class, [K, D]."""
        means, squares = np.split(at, 2)
        variances = np.maximum(squares - means**2, SMALLEST * self.variance)
        first, second = np.split(self.moments, 2, axis=1)
        moved = first / np.sqrt(self.variance), (second - 2 * means * first) / (2 * variances)
        return _along(np.concatenate(moved, 1) / self.error, self.content, 1 / self.reach)


def _content(within: Floats) -> tuple[Floats, Floats, float]:
    """Return the directions in which images differ most, how many times as far as in the others, and how far in those.

    Probabilistic principal components (Tipping and Bishop 1999) of [N, D].
    """
    count = min(len(within) // IMAGES_A_DIRECTION, within.shape[1] // 4)
    products = within @ within.T if len(within) < within.shape[1] else within.T @ within
    values, vectors = (part[..., ::-1][..., :count] for part in np.linalg.eigh(products / len(within)))
    if len(within) < within.shape[1]:
        vectors = within.T @ vectors / np.sqrt(np.maximum(values, 1e-12) * len(within))
    rest = float((within**2).sum() / len(within) - values.sum()) / (within.shape[1] - count)
    return vectors.T, np.sqrt(values / rest), float(np.sqrt(rest))


def _along(places: Floats, directions: Floats, times: Floats) -> Floats:
    """Return places that are so many times as far along some orthonormal directions."""
    return np.asarray(places + (places @ directions.T * (times - 1)) @ directions)
