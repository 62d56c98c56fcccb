"""Certified robustness over images: average certified radius and certified accuracy, with intervals over images.

An image's certified radius counts where its certified class is its label; wrong classes and abstentions count 0. So
everything here is a function of one number per image: `radii`, [N], 0 where nothing right is certified.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shiftproof.errors import DataError
from shiftproof.measures.accuracy import Accuracy
from shiftproof.measures.intervals import CONFIDENCE, Interval, mean_interval


@dataclass(frozen=True)
class MeanRadius:
    """An average certified radius (ACR) over images, and its interval for images drawn like these, where it has one.

    Args:
        value: The average certified radius.
        interval: Its confidence interval, where there is one.
        images: Number of images.
    """

    value: float
    interval: Interval | None
    images: int


def average_radius(
    radii: ArrayLike, largest: float | None = None, *, confidence: float = CONFIDENCE, among: float = 1
) -> MeanRadius:
    """Return the average certified radius of images, with a betting interval where radii have a limit.

    `largest` is the largest radius that the samples can show (`Rule.reach`): without it, one image that is not among
    these could have any radius, and there is no interval. There is none of fewer than 10 images.

    Args:
        radii: Certified radii; 0 where an image is wrong or not certified.
        largest: The largest radius that the samples can show.
        confidence: That of the interval.
        among: How many intervals shall hold together.

    >>> average_radius([0.0, 0.5, 1.0]).value
    0.5
    """
    radii = _checked(radii)
    interval = mean_interval(radii, 0.0, largest, confidence=confidence, among=among) if largest else None
    return MeanRadius(float(radii.mean()), interval, len(radii))


def mean_average_radius(
    radii: Mapping[str, ArrayLike], largest: float | None = None, *, confidence: float = CONFIDENCE
) -> MeanRadius:
    """Return the mean over shifts of the average certified radius (mACR), of the same images under each shift.

    The interval is over images: an image counts with its mean radius over shifts.

    Args:
        radii: Certified radii of the same images, by shift.
        largest: The largest radius that the samples can show.
        confidence: That of the interval.

    >>> mean_average_radius({"fog": [0.0, 1.0], "snow": [1.0, 1.0]}).value
    0.75
    """
    if not radii:
        raise DataError("There are no radii.", expected="radii by shift", got="no shift at all")
    columns = [_checked(each) for each in radii.values()]
    if len({len(column) for column in columns}) > 1:
        counts = ", ".join(f"{name}: {len(column)}" for name, column in zip(radii, columns, strict=True))
        raise DataError("A mean over shifts needs the same images under each.", got=counts)
    return average_radius(np.mean(columns, axis=0), largest, confidence=confidence)


def certified_accuracy(radii: ArrayLike, at: float) -> Accuracy:
    """Return the certified accuracy at a radius; at 0, the share of correct images with any certificate.

    Args:
        radii: Certified radii; 0 where an image is wrong or not certified.
        at: The distance.

    >>> certified_accuracy([0.0, 0.25, 0.5], at=0.25)
    Accuracy(right=2, images=3)
    """
    radii = _checked(radii)
    return Accuracy(int(((radii > 0) & (radii >= at)).sum()), len(radii))


def certified_curve(radii: ArrayLike, at: Sequence[float]) -> list[Accuracy]:
    """Return the certified accuracy at each of some distances.

    Args:
        radii: Certified radii; 0 where an image is wrong or not certified.
        at: The distances.
    """
    return [certified_accuracy(radii, distance) for distance in at]


def _checked(radii: ArrayLike) -> NDArray[np.float64]:
    """Return radii as an array; refuse none, and numbers that are no radii."""
    values = np.asarray(radii, float)
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all() or (values < 0).any():
        raise DataError(
            "These are not certified radii.",
            expected="one finite number of 0 or more per image, 0 where nothing right is certified",
            got=f"an array of shape {values.shape}",
        )
    return values
