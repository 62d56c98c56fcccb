"""The error to expect at a distance: a line through shifts whose errors are known (Schneider et al. 2020, C.5)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shiftproof.errors import DataError


@dataclass(frozen=True)
class ErrorLine:
    """A line from distance to error: `error = slope * distance + intercept` (section C.5).

    `fit` it on shifts whose errors are known, such as the hold-out corruption of a category, and `predict` the errors
    of others. `r_squared` is the share of the variance of the known errors that the line explains.

    Args:
        slope: Error per unit of distance.
        intercept: Error at distance 0.
        r_squared: Share of the variance that the line explains.

    >>> line = ErrorLine.fit([0.0, 1.0, 2.0], [0.1, 0.3, 0.5])
    >>> round(float(line.predict(3.0)), 6)
    0.7
    """

    slope: float
    intercept: float
    r_squared: float

    @classmethod
    def fit(cls, distances: ArrayLike, errors: ArrayLike) -> ErrorLine:
        """Return the least-squares line through distances and errors, [S] each, two of the distances apart."""
        x, y = np.asarray(distances, float), np.asarray(errors, float)
        if x.ndim != 1 or x.shape != y.shape or not np.isfinite([x, y]).all() or len(np.unique(x)) < 2:
            raise DataError(
                "No line can be fitted to these distances and errors.",
                expected="as many finite errors as distances, of two different distances at least",
                got=f"{x.size} distances and {y.size} errors",
            )
        around = x - x.mean()
        slope = float(around @ y / (around @ around))
        line = cls(slope, float(y.mean() - slope * x.mean()), math.nan)
        return cls(line.slope, line.intercept, line.score(x, y))

    def predict(self, distances: ArrayLike) -> NDArray[np.float64]:
        """Return the errors expected at distances of any shape; far from those fitted they can leave [0, 1]."""
        return self.slope * np.asarray(distances, float) + self.intercept

    def score(self, distances: ArrayLike, errors: ArrayLike) -> float:
        """Return R^2 of the line on these shifts: 1 is perfect, 0 no better than their mean error, less is worse."""
        errors = np.asarray(errors, float)
        missed = float(np.sum((errors - self.predict(distances)) ** 2))
        spread = float(np.sum((errors - errors.mean()) ** 2))
        if spread == 0:
            return 1.0 if math.isclose(missed, 0, abs_tol=1e-20) else 0.0
        return 1 - missed / spread
