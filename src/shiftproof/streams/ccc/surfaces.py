"""Accuracy over a grid of two severities, fitted to counts: each place borrows from those around it.

A share of right answers over n images has a standard error of sqrt(p (1 - p) / n), more than a point for n = 2000, and
whoever picks the places that look best picks the lucky ones. Accuracy changes little from one severity to the next, so
neighbours tell of each other: Gaussian process regression (Rasmussen & Williams 2006, chapters 2 and 5) weighs what
was counted at a place against what was counted near it, fills the places between, and says how sure it is of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np

from shiftproof.streams.ccc.paths import Path, Place
from shiftproof.streams.ccc.steadiness import Values

SPREAD = 0.3
"""Standard deviation of accuracies over a grid, before anything is counted."""
LENGTHS = (3.0, 6.0, 12.0, 24.0)
"""Levels over which accuracy stays alike, along each axis: those that make the counts likeliest are taken."""
ROUGHNESS = (0.02, 0.05)
"""Standard deviations of what is a place's own: severities of some corruptions go in steps, not smoothly. With less
than 2 points a kink is smoothed away and errors are larger than told; with them a place needs counts of its own."""


class Counted(NamedTuple):
    """Right answers among so many images."""

    right: int
    images: int

    @property
    def error(self) -> float:
        """The standard error of their share; none or all of them is not a certainty."""
        hedged = (self.right + 1) / (self.images + 2)
        return float(np.sqrt(hedged * (1 - hedged) / self.images))


@dataclass(frozen=True)
class Surface:
    """Accuracy over a grid and its standard error, [rows, columns] each, and how errors at places go together."""

    accuracy: Values
    error: Values
    fit: _Fit

    def errors_along(self, path: Path, together: int = 1) -> tuple[float, ...]:
        """Return the standard error of the mean over every so many places in a row."""
        shared = self.fit.covariance_at(np.array(path, dtype=np.float64))
        rows = (slice(first, first + together) for first in range(len(path) - together + 1))
        return tuple(float(np.sqrt(max(shared[here, here].mean(), 0.0))) for here in rows)


def fit_surface(counted: Mapping[Place, Counted], shape: tuple[int, int]) -> Surface:
    """Fit accuracy over a grid to counts at some of its places.

    The covariance is a Matern 5/2 kernel per axis; its lengths, and how rough the surface is from place to place, are
    those of a small table under which the counts are likeliest.

    >>> few = {(0, 0): Counted(90, 100), (0, 2): Counted(70, 100)}
    >>> fit_surface(few, (1, 3)).accuracy.round(2).tolist()
    [[0.9, 0.8, 0.71]]
    """
    places = np.array(list(counted), dtype=np.float64).reshape(-1, 2)
    right, images = np.array(list(counted.values()), dtype=np.float64).reshape(-1, 2).T
    share = right / images
    noise = np.array([each.error**2 for each in counted.values()])
    level = float(np.average(share, weights=images))
    fits = (_Fit(places, share - level, noise, *chosen) for chosen in product(LENGTHS, LENGTHS, ROUGHNESS))
    best = max(fits, key=lambda fit: fit.likelihood)
    grid = np.array(list(np.ndindex(shape)), dtype=np.float64)
    mean, error = best.at(grid)
    return Surface((level + mean).clip(0, 1).reshape(shape), error.reshape(shape), best)


class _Fit:
    """A Gaussian process through values with known noise, [n] each, at places [n, 2]."""

    def __init__(
        self, places: Values, values: Values, noise: Values, first: float, second: float, roughness: float
    ) -> None:
        self.places, self.lengths, self.roughness = places, (first, second), roughness
        self.root = np.linalg.cholesky(self.covariance(places, places) + np.diag(noise))
        self.white = np.linalg.solve(self.root, values)
        self.likelihood = -0.5 * float(self.white @ self.white) - float(np.log(self.root.diagonal()).sum())

    def covariance(self, some: Values, others: Values) -> Values:
        """Return how alike the accuracies at some places and at others are, [n, m]."""
        alike = np.full((len(some), len(others)), SPREAD**2)
        same = np.ones_like(alike, dtype=bool)
        for axis, length in enumerate(self.lengths):
            apart = np.abs(some[:, None, axis] - others[None, :, axis])
            scaled = np.sqrt(5.0) * apart / length
            alike *= (1 + scaled + scaled**2 / 3) * np.exp(-scaled)
            same &= apart == 0
        return alike + self.roughness**2 * same

    def at(self, places: Values) -> tuple[Values, Values]:
        """Return the values at places, and their standard errors, [m] each."""
        across = np.linalg.solve(self.root, self.covariance(self.places, places))
        before = SPREAD**2 + self.roughness**2
        return across.T @ self.white, np.sqrt(np.maximum(before - (across**2).sum(0), 0))

    def covariance_at(self, places: Values) -> Values:
        """Return how the errors of the values at places go together, [m, m]."""
        across = np.linalg.solve(self.root, self.covariance(self.places, places))
        shared: Values = self.covariance(places, places) - across.T @ across
        return shared
