import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiftproof.measures import Accuracy


@given(st.integers(1, 10_000), st.floats(0, 1))
def test_wilson_interval_is_the_closed_form_and_holds_the_value(images, share):
    accuracy = Accuracy(round(share * images), images)
    low, high = accuracy.interval()
    z, p = 1.959963984540054, accuracy.value
    centre = (p + z * z / (2 * images)) / (1 + z * z / images)
    half = z * np.sqrt(p * (1 - p) / images + z * z / (4 * images**2)) / (1 + z * z / images)
    assert (low, high) == pytest.approx((centre - half, centre + half), abs=1e-12)
    assert low - 1e-12 <= p <= high + 1e-12


def test_impossible_counts_are_refused():
    for right, images in ((-1, 3), (4, 3), (0, 0)):
        with pytest.raises(ValueError, match="0 <= right <= images"):
            Accuracy(right, images)
