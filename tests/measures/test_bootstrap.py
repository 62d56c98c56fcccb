"""Intervals by resampling: they agree with theory, keep pairs together, and bound what they should."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from shiftproof.measures.bootstrap import bootstrap_means, paired_intervals


def test_intervals_agree_with_scipy():
    rng = np.random.default_rng(0)
    one, other = rng.random(60), rng.random(60)
    ours = paired_intervals(one[:, None], other[:, None])[0]
    theirs = stats.bootstrap((other - one,), np.mean, method="percentile", n_resamples=10_000, rng=1)
    assert ours == pytest.approx([theirs.confidence_interval.low, theirs.confidence_interval.high], abs=0.01)


def test_pairs_make_small_differences_visible():
    rng = np.random.default_rng(0)
    hard = (rng.random(400) < 0.5).astype(float)  # some images are wrong for both
    better = np.where(rng.random(400) < 0.03, 1.0, hard)
    (low, high), *_ = paired_intervals(hard[:, None], better[:, None])
    assert 0 < low < high
    apart = bootstrap_means(better[:, None], seed=1) - bootstrap_means(hard[:, None], seed=2)
    assert np.quantile(apart, 0.025) < 0  # without pairing the same difference drowns


@given(st.integers(1, 30), st.integers(1, 4), st.integers(0, 2**32))
def test_equal_inputs_have_an_interval_of_exactly_zero(rows, columns, seed):
    values = np.random.default_rng(seed).random((rows, columns))
    assert np.array_equal(paired_intervals(values, values, resamples=50), np.zeros((columns, 2)))


def test_coverage_is_near_what_is_promised():
    rng = np.random.default_rng(3)
    held = 0
    for seed in range(200):
        difference = rng.choice([-1.0, 0.0, 1.0], p=[0.1, 0.6, 0.3], size=(80, 1))
        low, high = paired_intervals(np.zeros((80, 1)), difference, resamples=400, seed=seed)[0]
        held += low <= 0.2 <= high
    assert 0.89 <= held / 200 <= 0.99


@pytest.mark.parametrize("shape", [(0, 2), (3,)])
def test_what_is_no_table_is_refused(shape):
    with pytest.raises(ValueError, match="rows of numbers"):
        bootstrap_means(np.zeros(shape))
