"""The mean of a number per image, or per shift, with its interval."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike


@dataclass(frozen=True)
class Mean:
    """A mean and its interval for things drawn like these."""

    value: float
    low: float
    high: float


def mean(values: ArrayLike, confidence: float = 0.95) -> Mean:
    """Return the mean of values [N] with Student's t interval; one value alone has an interval without bounds.

    Values that belong together, such as those of one image under several shifts, are averaged first: they are not
    independent.

    >>> mean([0.0, 0.5, 1.0]).value
    0.5
    """
    found = np.asarray(values, float)
    if found.ndim != 1 or not len(found):
        raise ValueError(f"a mean needs one number or more in a row; got an array of shape {found.shape}")
    middle = float(found.mean())
    if len(found) == 1:
        return Mean(middle, float("-inf"), float("inf"))
    from scipy.stats import t

    reach = float(t.ppf((1 + confidence) / 2, len(found) - 1) * found.std(ddof=1) / np.sqrt(len(found)))
    return Mean(middle, middle - reach, middle + reach)
