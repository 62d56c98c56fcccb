"""Rolling accuracy, area and collapse against sums done by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiftproof.measures.windows import area_against, collapse, rolling_accuracy

batches = st.lists(st.integers(1, 20).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))), min_size=1)


@given(batches, st.integers(1, 60))
def test_rolling_accuracy_is_that_of_the_last_images(pairs, window):
    images, right = zip(*pairs, strict=True)
    ends, accuracy = rolling_accuracy(right, images, window)
    expected = []
    for last in range(len(images)):
        if sum(images[: last + 1]) < window:
            continue
        first = max(first for first in range(last + 1) if sum(images[first : last + 1]) >= window)
        expected.append((sum(images[: last + 1]), sum(right[first : last + 1]) / sum(images[first : last + 1])))
    assert ends.tolist() == [end for end, _ in expected]
    assert accuracy == pytest.approx([value for _, value in expected])


def test_area_is_the_mean_difference():
    assert area_against([3, 4, 1], [2, 2, 2], [4, 4, 2]) == pytest.approx(2 / 10)


def test_a_model_that_falls_for_good_collapses_at_the_end_of_its_last_good_window():
    images = [10] * 40
    source = [5] * 40
    right = [8] * 20 + [1] * 20
    # the rolling accuracy over two batches is last at the source's in the window of batches 19 and 20 (index)
    assert collapse(right, source, images, window=20) == 200
    assert collapse([1] * 40, source, images, window=20) == 0


@pytest.mark.parametrize(
    "right",
    [
        pytest.param([8] * 20 + [1] * 10 + [8] * 10, id="it comes back"),
        pytest.param([8] * 39 + [1], id="too short to tell"),
        pytest.param([5] * 40, id="equal"),
        pytest.param([6] * 40, id="better"),
    ],
)
def test_what_is_no_collapse(right):
    assert collapse(right, [5] * 40, [10] * 40, window=20) is None


def test_slightly_worse_is_not_collapsed():
    images, source = [1000] * 40, [500] * 40
    assert collapse([495] * 40, source, images, window=2000) is None
    assert collapse([480] * 40, source, images, window=2000) == 0


def test_a_short_trace_has_no_window():
    ends, accuracy = rolling_accuracy([1, 2], [4, 4], window=100)
    assert len(ends) == len(accuracy) == 0
    assert collapse([0, 0], [4, 4], [4, 4], window=100) is None
    assert np.isfinite(accuracy).all()
