"""The steady search against all paths, counted out one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from shiftproof.streams.ccc.paths import find_path, mean_count
from shiftproof.streams.ccc.steadiness import find_steady_path, straying
from tests.streams.ccc.test_paths import every_path, sides


def steadiness(grid, path, target, together):
    misses = [
        abs(sum(float(grid[place]) - target for place in path[first : first + together])) / together
        for first in range(len(path) - together + 1)
    ]
    return round(max(misses), 12), round(sum((float(grid[place]) - target) ** 2 for place in path) / len(path), 12)


accuracies = st.tuples(sides, sides).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.integers(0, 100).map(lambda percent: percent / 100))
)


@given(accuracies, st.integers(0, 100), st.sampled_from([1, 2]))
def test_the_steady_path_is_the_best_of_all(grid, percent, together):
    target = percent / 100
    found = find_steady_path(grid, target, together)
    assert found is not None
    best = min(steadiness(grid, path, target, together) for path in every_path(*grid.shape))
    assert steadiness(grid, found, target, together) == pytest.approx(best, abs=1e-9)
    assert straying([grid[place] for place in found], target, together) == pytest.approx(best[0], abs=1e-9)


@given(accuracies, st.data())
def test_a_steady_path_avoids_forbidden_places(grid, data):
    closed = data.draw(arrays(bool, grid.shape))
    found = find_steady_path(np.where(closed, np.nan, grid), 0.5, 2)
    allowed = [path for path in every_path(*grid.shape) if not any(closed[place] for place in path)]
    assert (found is None) == (not allowed)
    if found is not None:
        best = min(steadiness(grid, path, 0.5, 2) for path in allowed)
        assert steadiness(grid, found, 0.5, 2) == pytest.approx(best, abs=1e-9)


def test_a_mean_at_the_target_is_not_yet_a_steady_path():
    grid = np.array([[90, 60, 20, 20], [80, 20, 20, 20], [44, 20, 20, 20]])
    exact = find_path(grid, 50)
    steady = find_steady_path(grid / 100, 0.5)
    assert steady is not None
    assert exact is not None
    assert abs(mean_count(grid, exact) - 50) <= abs(mean_count(grid, steady) - 50)
    assert straying([grid[p] / 100 for p in steady], 0.5) <= straying([grid[p] / 100 for p in exact], 0.5)
