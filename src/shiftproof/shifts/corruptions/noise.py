"""Noise: Gaussian, shot, impulse and speckle."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shiftproof.keyed import Keyed
from shiftproof.shifts import kernels
from shiftproof.shifts.image_shift import Shape
from shiftproof.shifts.tables import Parameters


class GaussianNoise:
    """Add independent normal noise to every value."""

    def sample(self, rng: Keyed, shape: Shape, p: Parameters) -> Tensor:
        """Draw the noise."""
        return rng.normal(std=p.sigma, shape=shape)

    def apply(self, images: Tensor, noise: Tensor, p: Parameters) -> Tensor:
        """Add it."""
        return images + noise


class SpeckleNoise:
    """Add normal noise in proportion to the value it falls on."""

    def sample(self, rng: Keyed, shape: Shape, p: Parameters) -> Tensor:
        """Draw the relative noise."""
        return rng.normal(std=p.sigma, shape=shape)

    def apply(self, images: Tensor, noise: Tensor, p: Parameters) -> Tensor:
        """Scale it by the image and add it."""
        return images + images * noise


class ImpulseNoise:
    """Set values to black or white, each with half of the amount; channels are independent."""

    def sample(self, rng: Keyed, shape: Shape, p: Parameters) -> Tensor:
        """Draw one uniform number per value, which decides whether it is hit and with what."""
        return rng.uniform(shape=shape)

    def apply(self, images: Tensor, unit: Tensor, p: Parameters) -> Tensor:
        """Numbers under amount / 2 are pepper, numbers under amount are salt."""
        if kernels.usable(images):
            from shiftproof.shifts.kernels.noise import hit

            return hit(images, unit, p.amount)
        # As arithmetic, because a random mask costs a processor a wrong guess at every change.
        kept = unit.clone().ge_(p.amount)
        salt = unit.clone().ge_(p.amount / 2).sub_(kept)
        return kept.mul_(images).add_(salt)


class ShotNoise:
    """Count light: a value becomes a Poisson draw with mean value * photons, divided by photons.

    Values are read at the nearest of the 256 levels of stored images, so one table holds every distribution.
    """

    def sample(self, rng: Keyed, shape: Shape, p: Parameters) -> Tensor:
        """Draw one uniform number of 24 bits per value, which decides its count."""
        return rng.uniform(shape=shape)

    def apply(self, images: Tensor, unit: Tensor, p: Parameters) -> Tensor:
        """Turn numbers into counts by the alias method: one look-up each, whatever the distribution."""
        table = photon_counts(p.photons, images.device)
        if kernels.usable(images):
            from shiftproof.shifts.kernels.noise import look_up_counts

            return look_up_counts(images, unit, *table)
        number = unit * table.columns
        column = number.floor()
        cell = images.mul(255).round_().mul_(table.columns).add_(column).to(torch.int32)
        entry = table.entries.index_select(0, cell.flatten()).view(unit.shape)
        other = entry.floor()
        # 1 where the column's own outcome is taken, 0 where the other one is.
        own = number.sub_(column).lt_(entry.sub_(other))
        return column.sub_(other).mul_(own).add_(other).mul_(table.value)


class PhotonCounts(NamedTuple):
    """The Poisson distributions of 256 levels as alias tables (Walker 1977), all of `columns` columns.

    A number in [0, 1) times `columns` is a column and a rest. The column's entry is another outcome and a threshold:
    the outcome is the column itself for a rest under the threshold and the other one elsewhere. Either stands for
    outcome * `value`. Numbers and entries have 24 bits, so that all of this is exact in float32; `entries` is
    [256 * columns].
    """

    entries: Tensor
    columns: int
    value: float


@lru_cache(maxsize=32)
def photon_counts(photons: float, device: torch.device) -> PhotonCounts:
    """Return the distributions of counts, when a white pixel receives so many photons on average."""
    from scipy.special import pdtr

    # Counts that would be stored at one level are one outcome; whatever is brighter than white is the last one.
    bundle = max(1.0, photons / 255)
    outcomes = int(np.ceil(photons / bundle - 1e-9)) + 1
    highest = np.ceil(np.arange(1, outcomes + 1) * bundle - 1e-9) - 1
    below = pdtr(highest, np.arange(256)[:, None] / 255 * photons)
    below[:, -1] = 1.0
    columns = 2 ** (outcomes - 1).bit_length()
    chances = np.zeros((256, columns))
    chances[:, :outcomes] = np.diff(below, axis=1, prepend=0.0)

    own, other = alias(chances)
    resolution = 2**24 // columns
    threshold = np.rint(own * resolution) / resolution
    # A column that is wholly its own is its own other, which leaves its threshold free.
    whole = threshold >= 1.0
    entries = np.where(whole, np.arange(columns), other + threshold)
    return PhotonCounts(torch.from_numpy(entries.ravel()).to(device, torch.float32), columns, bundle / photons)


def alias(chances: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return alias tables of distributions: [R, K] -> the share of each column that is its own, and who has the rest.

    Every column is worth 1 / K. The poorest are filled up by the richest, which, once poor itself, is filled up by the
    next richest.
    """
    rows, columns = np.arange(len(chances)), chances.shape[1]
    wealth = chances * columns
    order = np.argsort(wealth, axis=1)
    own, other = np.ones_like(wealth), np.tile(np.arange(columns), (len(rows), 1))
    poorest, richest = np.zeros_like(rows), np.full_like(rows, columns - 1)
    rich = order[rows, richest]
    left = wealth[rows, rich]
    for _ in range(columns - 1):
        spent = left < 1.0
        poor = np.where(spent, rich, order[rows, poorest])
        share = np.where(spent, left, wealth[rows, poor])
        poorest, richest = poorest + ~spent, richest - spent
        rich = order[rows, richest]
        own[rows, poor], other[rows, poor] = share, rich
        left = np.where(spent, wealth[rows, rich], left) - (1.0 - share)
    return own, other
