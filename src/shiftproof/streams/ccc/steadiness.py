"""Paths that stay near a target all along, through a grid of accuracies over two severities.

A path is as in `measures.paths`: it starts at some (i, 0) with i > 0, each step lowers i or raises j by one, and it
ends where i is 0. There its mean shall be at the target; here no stretch of it shall be far from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from shiftproof.streams.ccc.paths import Path, Place

Values: TypeAlias = NDArray[np.float64]

ROUNDING = 1e-12
"""Accuracies that differ by less are the same: their sums depend on the order of adding."""


def find_steady_path(accuracy: Values, target: float, together: int = 1) -> Path | None:
    """Return the path that stays nearest to the target; None where no path is allowed, NaN being a forbidden place.

    It is judged by the means of `together` places in a row, 1 or 2. Its worst is as near to the target as can be; of
    the paths with no worse one it has the least mean of squared distances of its places.

    >>> find_steady_path(np.array([[0.9, 0.6, 0.2], [0.8, 0.5, 0.1], [0.4, 0.3, 0.0]]), 0.5)
    ((2, 0), (2, 1), (1, 1), (0, 1))
    """
    distance = accuracy - target
    worst = _least_worst(distance, together)
    return None if worst is None else _least_squares(distance, together, worst + ROUNDING)


def straying(accuracy: Sequence[float], target: float, together: int = 1) -> float:
    """Return how far the mean of `together` accuracies in a row, 1 or 2, is from the target at most.

    >>> round(straying([0.4, 0.6, 0.5, 0.6], 0.5, together=2), 3)
    0.05
    """
    rows = zip(*(accuracy[first:] for first in range(together)), strict=False)
    return float(max(abs(sum(row) - together * target) / together for row in rows))


def _least_worst(distance: Values, together: int) -> float | None:
    """Return how far from 0 the worst stretch of a path is at least."""
    known: dict[Place, float] = {}
    for place, ways in _ways_on(distance, together):
        worst = [max(miss, 0.0 if way is None else known[way]) for way, miss in ways if way is None or way in known]
        if worst:
            known[place] = min(worst)
    return min((worst for (i, j), worst in known.items() if i > 0 and j == 0), default=None)


def _least_squares(distance: Values, together: int, bound: float) -> Path:
    """Return the path with the least mean square, of those without a stretch beyond the bound, of which there are."""
    known: dict[Place, dict[int, tuple[float, Path]]] = {}  # the best from each place, by length
    for place, ways in _ways_on(distance, together):
        here: dict[int, tuple[float, Path]] = {}
        for way, miss in ways:
            rests = {0: (0.0, ())} if way is None else known.get(way, {})
            for length, (cost, rest) in rests.items() if miss <= bound else ():
                found = cost + float(distance[place]) ** 2, (place, *rest)
                here[length + 1] = min(here.get(length + 1, found), found)
        known[place] = here
    starts = [known.get((i, 0), {}) for i in range(1, len(distance))]
    means = [(cost / length, path) for start in starts for length, (cost, path) in start.items()]
    return min(means)[1]


def _ways_on(distance: Values, together: int) -> Iterator[tuple[Place, list[tuple[Place | None, float]]]]:
    """Yield every allowed place after those it leads to, and its ways on with how bad the stretch begun here is.

    At the end of a path the way on is None, and a stretch of two has no second place, and is not bad.
    """
    rows, columns = distance.shape
    for i in range(rows):
        for j in reversed(range(columns)):
            if np.isnan(distance[i, j]):
                continue
            ways: list[Place | None] = [None] if i == 0 else [(i - 1, j), *([(i, j + 1)] if j + 1 < columns else [])]
            yield (i, j), [(way, _miss(distance, (i, j), way, together)) for way in ways]


def _miss(distance: Values, place: Place, way: Place | None, together: int) -> float:
    if together == 1:
        return abs(float(distance[place]))
    return 0.0 if way is None else abs(float(distance[place] + distance[way])) / 2
