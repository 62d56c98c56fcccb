import numpy as np
import pytest
from scipy import stats

from shiftproof.measures.means import mean


def test_is_students_interval():
    values = np.random.default_rng(0).normal(3, 2, 50)
    found = mean(values, 0.9)
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.9)
    assert (found.value, found.low, found.high) == pytest.approx((values.mean(), expected.low, expected.high))


def test_covers_the_truth_as_often_as_it_says():
    drawn = np.random.default_rng(1).normal(0.7, 0.2, (2_000, 8))
    covered = [found.low <= 0.7 <= found.high for found in map(mean, drawn)]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.02)


def test_one_value_says_nothing_of_others():
    assert (mean([0.5]).low, mean([0.5]).high) == (-np.inf, np.inf)


@pytest.mark.parametrize("values", [[], 0.5, [[1.0]]])
def test_nothing_has_no_mean(values):
    with pytest.raises(ValueError, match="one number or more"):
        mean(values)
