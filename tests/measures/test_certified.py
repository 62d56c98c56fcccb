"""Averages of radii against scipy, and what they refuse."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiftproof.errors import DataError
from shiftproof.measures import average_radius, certified_accuracy, mean_average_radius
from shiftproof.measures.intervals import mean_interval

RADII = st.lists(st.floats(0, 4), min_size=2, max_size=50)


@given(RADII)
def test_the_interval_is_that_of_a_mean_between_0_and_the_largest(radii):
    found = average_radius(radii, 4.0)
    assert found.value == pytest.approx(np.mean(radii))
    assert found.interval == mean_interval(radii, 0.0, 4.0)
    assert found.interval is None or found.interval.low - 1e-9 <= found.value <= found.interval.high + 1e-9


def test_without_a_largest_radius_there_is_no_interval():
    assert average_radius([0.1] * 100).interval is None


@given(RADII, st.floats(0, 4))
def test_certified_accuracy_counts(radii, at):
    assert certified_accuracy(radii, at).right == sum(radius > 0 and radius >= at for radius in radii)


def test_the_mean_over_shifts_is_over_the_same_images():
    found = mean_average_radius({"fog": [0.0, 1.0, 2.0], "snow": [2.0, 1.0, 0.0]})
    assert (found.value, found.interval, found.images) == (1.0, None, 3)
    many = mean_average_radius({"fog": [0.0, 1.0, 2.0] * 20, "snow": [2.0, 1.0, 0.0] * 20}, 2.0)
    assert many.interval == mean_interval([1.0] * 60, 0.0, 2.0)
    with pytest.raises(DataError, match="same images"):
        mean_average_radius({"fog": [0.0, 1.0], "snow": [1.0]})
    with pytest.raises(DataError):
        mean_average_radius({})


@pytest.mark.parametrize("bad", [[], [-1.0], [float("nan")], [float("inf")], [[1.0]]])
def test_what_is_no_radius_is_refused(bad):
    with pytest.raises(DataError):
        average_radius(bad)
