"""Intervals by resampling: how far a mean could have come out otherwise, had other images been drawn."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

RESAMPLES = 10_000
_PART = 500
"""Resamples drawn at a time, to bound memory."""


def bootstrap_means(values: ArrayLike, *, resamples: int = RESAMPLES, seed: int = 0) -> NDArray[np.float64]:
    """Return the means of `resamples` draws, with replacement, of the rows of values [N, Q]: [resamples, Q].

    All columns of a draw are of the same rows, so values of one image stay together (Efron and Tibshirani 1993).
    """
    table = np.asarray(values, float)
    if table.ndim != 2 or not len(table):
        raise ValueError(f"a bootstrap needs rows of numbers, [N, Q]; got an array of shape {table.shape}")
    count = len(table)
    rng = np.random.default_rng(seed)
    means = []
    for start in range(0, resamples, _PART):
        draws = rng.multinomial(count, np.full(count, 1 / count), size=min(_PART, resamples - start))
        means.append(draws @ table / count)
    return np.concatenate(means)


def paired_intervals(
    one: ArrayLike, other: ArrayLike, *, confidence: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> NDArray[np.float64]:
    """Return the interval of mean(other) - mean(one) for each column, [Q, 2], by a paired bootstrap over the rows.

    Both are [N, Q], row by row of the same images: what an image adds to both cancels, so that small differences show.
    The interval lies between percentiles of the resampled differences; equal inputs give exactly (0, 0).
    """
    differences = np.asarray(other, float) - np.asarray(one, float)
    tail = (1 - confidence) / 2
    found = np.quantile(bootstrap_means(differences, resamples=resamples, seed=seed), [tail, 1 - tail], axis=0)
    return np.ascontiguousarray(found.T)
