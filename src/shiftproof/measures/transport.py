"""Optimal transport between predictions and labels: COT and COTT (Lu et al. 2023)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shiftproof.measures.estimation import Array

BATCH = 500
"""Inputs are matched in batches of at most so many, as the work grows with the cube of their number."""


def matched_costs(p: Array, mix: Array) -> Array:
    """Return what it costs to match each probability vector with a label, [N], if labels come in the shares `mix`.

    The cost of matching p with class k is |p - e_k|_1 / 2 = 1 - p_k; the matching is the cheapest in which each class
    takes its share. The mean cost is the error that COT estimates.

    >>> matched_costs(np.array([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3]]), np.array([2, 1])).round(1)
    array([0.1, 0.2, 0.7])
    """
    parts = np.array_split(p, -(-len(p) // BATCH))
    return np.concatenate([_matched(part, mix) for part in parts])


def cott_threshold(costs: Array, errors: int) -> float:
    """Return the cost below which all but as many source inputs lie as the model gets wrong (COTT)."""
    ranked = np.sort(costs)[::-1]
    return float(ranked[errors]) if errors < len(ranked) else -1.0


def _matched(p: Array, mix: Array) -> Array:
    from scipy.optimize import linear_sum_assignment

    count = len(p)
    places = np.repeat(np.arange(p.shape[1]), _places(mix, count))
    rows, columns = linear_sum_assignment(1.0 - p[:, places])
    found = np.empty(count)
    found[rows] = 1.0 - p[rows, places[columns]]
    return found


def _places(mix: ArrayLike, count: int) -> NDArray[np.int64]:
    """Return how many of `count` places each class gets: its share, rounded so that they add up."""
    wanted = np.asarray(mix, np.float64) / np.sum(mix) * count
    whole: NDArray[np.int64] = np.floor(wanted).astype(np.int64)
    rest = np.argsort(whole - wanted, kind="stable")[: count - int(whole.sum())]
    whole[rest] += 1
    return whole
