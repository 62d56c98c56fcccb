from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from shiftproof.errors import DataError
from shiftproof.measures import ErrorLine
from tests.measures.layers import RNG


def test_the_line_is_that_of_least_squares():
    distances, errors = RNG.uniform(0, 3, 20), RNG.uniform(0, 1, 20)
    line, expected = ErrorLine.fit(distances, errors), stats.linregress(distances, errors)
    assert (line.slope, line.intercept) == pytest.approx((expected.slope, expected.intercept), rel=1e-10)
    assert line.r_squared == pytest.approx(expected.rvalue**2, rel=1e-9)
    np.testing.assert_allclose(
        line.predict([[0.0], [2.0]]), expected.intercept + expected.slope * np.array([[0.0], [2.0]])
    )


@given(st.floats(-1, 1), st.floats(0, 1), st.lists(st.floats(0, 10), min_size=2, max_size=9))
def test_errors_on_a_line_are_predicted(slope, intercept, distances):
    assume(np.ptp(distances) > 1e-2)
    x = np.array(distances)
    line = ErrorLine.fit(x, slope * x + intercept)
    np.testing.assert_allclose(line.predict([0, 5]), [intercept, 5 * slope + intercept], atol=1e-9)
    assert line.score([1, 2, 4], slope * np.array([1, 2, 4]) + intercept) == pytest.approx(1) or abs(slope) < 1e-6


def test_scores_of_a_line():
    line = ErrorLine.fit([0, 1, 2], [0.1, 0.2, 0.3])
    assert line.score([0, 2], [0.2, 0.2]) == 0  # no spread to explain
    assert line.score([0, 2], [0.3, 0.1]) == pytest.approx(-3)
    assert ErrorLine.fit([0, 1], [0.5, 0.5]) == ErrorLine(slope=0, intercept=0.5, r_squared=1)


@pytest.mark.parametrize(("distances", "errors"), [([1, 1], [0, 1]), ([1, 2], [0]), ([], []), ([1, 2], [0, math.nan])])
def test_no_line_through_too_little(distances, errors):
    with pytest.raises(DataError, match="No line"):
        ErrorLine.fit(distances, errors)
