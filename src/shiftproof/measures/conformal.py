"""Conformal quantiles over groups: intervals and p-values that hold for a whole group nobody has seen.

Scores of one group are alike, so that a thousand scores of ten groups are worth ten. The guarantee is marginal, over a
new group that is exchangeable with those at hand: as different from them as they are from one another.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from shiftproof.measures.estimation import Array


def largest_level(groups: int) -> float:
    """Return the largest level so many groups support, K / (K + 1): 80% needs 4 groups, 90% 9, 95% 19."""
    return groups / (groups + 1)


def grouped_quantile(scores: ArrayLike, groups: Sequence[Hashable], level: float) -> float:
    """Return the score that a new one, of a group nobody has seen, exceeds with probability 1 - level at most.

    Each of K groups weighs 1 / (K + 1), shared among its scores, and infinity weighs as much as a group (Lee, Barber &
    Willett 2023): infinite where the groups are too few for the level.

    >>> grouped_quantile([1.0, 2.0, 3.0, 9.0], ["a", "a", "b", "c"], level=0.5)
    3.0
    >>> grouped_quantile([1.0, 2.0, 3.0, 9.0], ["a", "a", "b", "c"], level=0.8)
    inf
    """
    held = np.asarray(scores, np.float64)
    order = held.argsort(kind="stable")
    reached = _weights(groups)[order].cumsum() >= level - 1e-12
    return float(held[order][reached.argmax()]) if reached.any() else math.inf


def grouped_p_value(score: float, scores: ArrayLike, groups: Sequence[Hashable]) -> float:
    """Return how common scores as large as this one are in a group nobody has seen; 1 / (K + 1) at least.

    >>> grouped_p_value(5.0, [1.0, 2.0, 3.0, 9.0], ["a", "a", "b", "c"])
    0.5
    """
    weights = _weights(groups)
    own = 1.0 / (1 + len(set(groups)))
    return float(own + weights[np.asarray(scores, np.float64) >= score].sum())


def _weights(groups: Sequence[Hashable]) -> Array:
    sizes = Counter(groups)
    return np.array([1.0 / ((len(sizes) + 1) * sizes[group]) for group in groups])
