"""Paths of constant difficulty through a grid of severities (Press et al. 2023, appendix B).

A grid holds how many of the calibration images a model gets right, `counts[i][j]`, with the first corruption at level i
and the second at level j. A path starts at some (i, 0) with i > 0; each step lowers i or raises j by one; it ends where
i is 0. Its mean count shall be as near to a target as can be. Counts are whole numbers, so sums of them are exact.
A path can have the right mean and be far from it all along: `measures.steadiness` seeks the one that never is.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Grid: TypeAlias = NDArray[np.int64]
Place: TypeAlias = tuple[int, int]
Path: TypeAlias = tuple[Place, ...]
Variant: TypeAlias = Literal["exact", "release"]

FORBIDDEN = -1
"""A count that says: no path may pass here. So does any below 0."""

_NEVER = np.iinfo(np.int64).max // 2


class _End(NamedTuple):
    """Paths that share their start row, their last column and the sum of their counts."""

    row: int
    column: int
    total: int

    @property
    def length(self) -> int:
        return self.row + self.column + 1


def find_path(counts: Grid, target: Fraction | float, variant: Variant = "exact") -> Path | None:
    """Return the path whose mean count is nearest to the target; None where no path is allowed.

    Of the paths with that mean it is the steadiest, that with the least sum of squared distances to the target.
    `variant="release"` is the search of the released generator, which decides place by place and can miss the best.

    >>> find_path(np.array([[9, 6, 2], [7, 5, 1], [4, 3, 0]]), 5)
    ((2, 0), (2, 1), (1, 1), (0, 1))
    """
    grid = np.asarray(counts, dtype=np.int64)
    goal = target if isinstance(target, Fraction) else Fraction(target).limit_denominator(10**6)
    if variant == "release":
        return _decide_by_place(grid, goal)
    nearest = _nearest(grid, goal)
    if not nearest:
        return None
    if nearest[0].total == goal * nearest[0].length:
        return _steadiest(
            grid * goal.denominator, goal.numerator, None
        )  # of any length: without drift, all have this mean
    # Paths to one end have one length and one sum: the steadiest about the goal is the steadiest about any number.
    found = [_steadiest(grid, round(goal), end) for end in nearest]
    return min(found, key=lambda path: sum((int(grid[place]) - goal) ** 2 for place in path))


def mean_count(counts: Grid, path: Path) -> Fraction:
    """Return the mean count along a path.

    >>> mean_count(np.array([[9, 6], [7, 5]]), ((1, 0), (0, 0)))
    Fraction(8, 1)
    """
    return Fraction(sum(int(counts[place]) for place in path), len(path))


def _nearest(grid: Grid, goal: Fraction) -> list[_End]:
    """Return the ends whose mean is nearest to the goal, over all paths.

    The sums that the paths from a place can have, by length, are the bits of a number: going to a place shifts all of
    them by its count.
    """
    rows, columns = grid.shape
    found: dict[Fraction, list[_End]] = {}
    below: list[dict[int, int]] = []
    for i in range(rows):
        here: list[dict[int, int]] = [{} for _ in range(columns + 1)]
        for j in reversed(range(columns)):
            count = int(grid[i, j])
            if count < 0:
                continue
            tails = {0: 1} if i == 0 else dict(below[j])
            if i > 0:
                for length, sums in here[j + 1].items():
                    tails[length] = tails.get(length, 0) | sums
            here[j] = {length + 1: sums << count for length, sums in tails.items()}
        if i > 0:
            for length, sums in here[0].items():
                for total in _neighbours(sums, goal * length):
                    miss = abs(Fraction(total, length) - goal)
                    found.setdefault(miss, []).append(_End(i, length - 1 - i, total))
        below = here
    return found[min(found)] if found else []


def _neighbours(sums: int, goal: Fraction) -> Iterator[int]:
    """Yield the set bits next to a number: the highest at or under it, and the lowest over it."""
    floor = goal.numerator // goal.denominator
    low = sums & ((1 << (floor + 1)) - 1) if floor >= 0 else 0
    if low:
        yield low.bit_length() - 1
    high = sums >> max(floor + 1, 0)
    if high:
        yield max(floor + 1, 0) + (high & -high).bit_length() - 1


def _steadiest(grid: Grid, goal: int, end: _End | None) -> Path:
    """Return the path with the least sum of squared distances to a goal: to an end, or (None) to any without drift.

    The drift of a path is the sum of its distances with their signs. Dynamic programming over (place, drift of the
    rest) within a window is exact as soon as leaving the window costs more than the best inside: going beyond it by w
    and back, in at most L steps, costs at least 4 w^2 / L.
    """
    drift = 0 if end is None else end.total - end.length * goal
    longest = sum(grid.shape)
    farthest = int(np.abs(grid - goal).max()) * longest
    window = max(64, farthest // 64)
    while True:
        cost, path = _within(grid, goal, end, drift, window)
        if window >= farthest or cost * longest <= 4 * window**2:
            return path
        window *= 2


def _within(grid: Grid, goal: int, end: _End | None, drift: int, window: int) -> tuple[int, Path]:
    """Return the least cost and its path, of those whose drift leaves the way from 0 to its end by a window at most."""
    rows, columns = (grid.shape[0], grid.shape[1]) if end is None else (end.row + 1, end.column + 1)
    low, width = min(0, drift) - window, abs(drift) + 2 * window + 1
    best = np.full((rows, columns + 1, width), _NEVER)
    for i in range(rows):
        for j in reversed(range(columns)):
            if grid[i, j] < 0 or (i == 0 and end is not None and j != end.column):
                continue
            if i > 0:
                rest = np.minimum(best[i - 1, j], best[i, j + 1])
            else:
                rest = np.full(width, _NEVER)
                rest[-low] = 0
            step = int(grid[i, j]) - goal
            kept = width - abs(step)
            if kept > 0:
                moved = rest[max(0, -step) :][:kept]
                best[i, j, max(0, step) :][:kept] = np.minimum(moved + step**2, _NEVER)
    starts = range(1, rows) if end is None else [end.row]
    i, j, left = min(starts, key=lambda row: int(best[row, 0, drift - low])), 0, drift - low
    cost = int(best[i, 0, left])
    if cost == _NEVER:
        return _NEVER, ()
    path = [(i, j)]
    while i > 0:
        left -= int(grid[i, j]) - goal
        i, j = (i - 1, j) if best[i - 1, j, left] <= best[i, j + 1, left] else (i, j + 1)
        path.append((i, j))
    return cost, tuple(path)


def _decide_by_place(grid: Grid, goal: Fraction) -> Path | None:
    """Search as the released generator does: each place keeps the one of its two ways on with the nearer mean."""
    rows, columns = grid.shape
    known: dict[Place, tuple[int, Path]] = {}
    for i in range(rows):
        for j in reversed(range(columns)):
            count = int(grid[i, j])
            if count < 0:
                continue
            if i == 0:
                known[i, j] = count, ((i, j),)
                continue
            ways = [known[way] for way in ((i, j + 1), (i - 1, j)) if way in known]  # of equal ones, the first
            if ways:
                total, rest = min(ways, key=lambda way: abs(Fraction(way[0] + count, len(way[1]) + 1) - goal))
                known[i, j] = total + count, ((i, j), *rest)
    starts = [known[i, 0] for i in range(1, rows) if (i, 0) in known]
    if not starts:
        return None
    return min(starts, key=lambda found: abs(Fraction(found[0], len(found[1])) - goal))[1]
