"""Averages of radii against scipy, and what they refuse."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t

from shiftproof.errors import DataError
from shiftproof.measures import average_radius, certified_accuracy, mean_average_radius

RADII = st.lists(st.floats(0, 4), min_size=2, max_size=50)


@given(RADII)
def test_the_interval_is_students(radii):
    found = average_radius(radii)
    low, high = t.interval(0.95, len(radii) - 1, np.mean(radii), np.std(radii, ddof=1) / np.sqrt(len(radii)) or 1e-300)
    assert found.value == pytest.approx(np.mean(radii))
    assert found.low == pytest.approx(max(0, low), abs=1e-9)
    assert found.high == pytest.approx(high, abs=1e-9)


def test_intervals_cover_as_often_as_they_say():
    rng = np.random.default_rng(0)
    draws = rng.exponential(0.5, (2000, 100)) * (rng.random((2000, 100)) < 0.7)
    inside = [found.low <= 0.35 <= found.high for found in map(average_radius, draws)]
    assert np.mean(inside) == pytest.approx(0.95, abs=0.02)


@given(RADII, st.floats(0, 4))
def test_certified_accuracy_counts(radii, at):
    assert certified_accuracy(radii, at).right == sum(radius > 0 and radius >= at for radius in radii)


def test_the_mean_over_shifts_is_over_the_same_images():
    found = mean_average_radius({"fog": [0.0, 1.0, 2.0], "snow": [2.0, 1.0, 0.0]})
    assert (found.value, found.low, found.high) == (1.0, 1.0, 1.0)
    with pytest.raises(DataError, match="same images"):
        mean_average_radius({"fog": [0.0, 1.0], "snow": [1.0]})
    with pytest.raises(DataError):
        mean_average_radius({})


@pytest.mark.parametrize("bad", [[], [-1.0], [float("nan")], [float("inf")], [[1.0]]])
def test_what_is_no_radius_is_refused(bad):
    with pytest.raises(DataError):
        average_radius(bad)
