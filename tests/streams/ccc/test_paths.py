"""The exact search against all paths, counted out one by one, and against the released search."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from shiftproof.streams.ccc.paths import FORBIDDEN, find_path, mean_count


def every_path(rows, columns):
    def onward(path):
        i, j = path[-1]
        if i == 0:
            yield path
            return
        yield from onward((*path, (i - 1, j)))
        if j + 1 < columns:
            yield from onward((*path, (i, j + 1)))

    for start in range(1, rows):
        yield from onward(((start, 0),))


def found_path(grid, target, variant="exact"):
    path = find_path(grid, target, variant)
    assert path is not None
    return path


def badness(grid, path, target):
    cells = [int(grid[place]) for place in path]
    return abs(Fraction(sum(cells), len(cells)) - target), sum((cell - target) ** 2 for cell in cells)


sides = st.integers(2, 5)
grids = st.tuples(sides, sides).flatmap(lambda shape: arrays(np.int64, shape, elements=st.integers(0, 40)))
targets = st.fractions(min_value=-2, max_value=45, max_denominator=8)


@given(grids, targets)
def test_the_exact_path_is_the_best_of_all(grid, target):
    found = find_path(grid, target)
    best = min(badness(grid, path, target) for path in every_path(*grid.shape))
    assert badness(grid, found, target) == best


@given(grids, targets, st.data())
def test_forbidden_places_are_not_passed(grid, target, data):
    closed = data.draw(arrays(bool, grid.shape))
    grid = np.where(closed, FORBIDDEN, grid)
    found = find_path(grid, target)
    allowed = [path for path in every_path(*grid.shape) if not any(closed[place] for place in path)]
    if not allowed:
        assert found is None
        assert find_path(grid, target, "release") is None
    else:
        assert badness(grid, found, target) == min(badness(grid, path, target) for path in allowed)
        assert not any(closed[place] for place in found_path(grid, target, "release"))


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1), st.floats(0.01, 0.99))
def test_it_is_never_worse_than_the_released_search_on_a_full_grid(seed, target):
    rng = np.random.default_rng(seed)
    surface = np.minimum.accumulate(np.minimum.accumulate(rng.uniform(0, 1, (21, 21)) ** 0.05, 0), 1)
    grid = (500 * surface).astype(np.int64)
    goal = Fraction(500 * target).limit_denominator(1000)
    exact, release = found_path(grid, goal), found_path(grid, goal, "release")
    assert abs(mean_count(grid, exact) - goal) <= abs(mean_count(grid, release) - goal)


@pytest.mark.parametrize("variant", ["exact", "release"])
def test_paths_step_as_they_must(variant):
    rng = np.random.default_rng(1)
    grid = np.sort(rng.integers(0, 500, (21, 21)), axis=None).reshape(21, 21)[::-1, ::-1]
    path = found_path(grid, 170, variant)
    assert path[0][1] == 0
    assert path[0][0] > 0
    assert path[-1][0] == 0
    assert all(place[0] > 0 for place in path[:-1])
    for (i, j), after in pairwise(path):
        assert after in ((i - 1, j), (i, j + 1))


def test_the_released_search_can_miss_what_the_exact_one_finds():
    grid = np.array([[0, 6, 0], [0, 0, 6], [4, 2, 0]])
    misses = [abs(mean_count(grid, found_path(grid, 3, variant)) - 3) for variant in ("exact", "release")]
    assert misses[0] <= misses[1]
    worse = 0
    rng = np.random.default_rng(0)
    for _ in range(50):
        grid = rng.integers(0, 100, (6, 6))
        exact, release = (abs(mean_count(grid, found_path(grid, 34, v)) - 34) for v in ("exact", "release"))
        worse += release > exact
    assert worse > 5


def test_an_unreachable_target_gets_the_nearest_path():
    grid = np.full((4, 4), 90)
    grid[3, 0] = 80
    path = found_path(grid, 10)
    best = min(abs(mean_count(grid, path) - 10) for path in every_path(4, 4))
    assert path[0] == (3, 0)
    assert abs(mean_count(grid, path) - 10) == best
