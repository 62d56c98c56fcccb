import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from shiftproof.measures import Accuracy


@given(st.integers(1, 10_000), st.floats(0, 1))
def test_the_interval_is_scipys_clopper_pearson_and_holds_the_value(images, share):
    accuracy = Accuracy(round(share * images), images)
    low, high = accuracy.interval()
    expected = binomtest(accuracy.right, images).proportion_ci(0.95, method="exact")
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-9)
    assert 0 <= low <= accuracy.value <= high <= 1
    assert low < high


@given(st.integers(1, 1_000), st.floats(0, 1), st.integers(2, 10**12))
def test_one_of_many_is_as_one_at_a_higher_confidence(images, share, among):
    accuracy = Accuracy(round(share * images), images)
    assert accuracy.interval(among=among) == pytest.approx(accuracy.interval(1 - 0.05 / among), abs=1e-3)
    (low, high), (single_low, single_high) = accuracy.interval(among=among), accuracy.interval()
    assert low <= single_low <= single_high <= high


def test_impossible_counts_are_refused():
    for right, images in ((-1, 3), (4, 3), (0, 0)):
        with pytest.raises(ValueError, match="0 <= right <= images"):
            Accuracy(right, images)
