"""The numbers of estimation against brute force, scipy and closed forms."""

import math

import numpy as np
import pytest
import scipy.special
import scipy.stats
from hypothesis import assume, given
from hypothesis import strategies as st

from shiftproof.errors import DataError, ShiftproofError
from shiftproof.measures import estimation

scored = st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=1, max_size=40)
"""Source scores with many ties, and who was right."""


def brute_force_threshold(scores, correct):
    """Try every threshold that can matter, each score and above all: the nearest count wins, the lower one first."""
    errors = sum(not right for right in correct)
    if errors == 0:
        return -math.inf
    least, found = math.inf, math.inf
    for threshold in [*sorted(set(scores)), math.inf]:
        missed = abs(sum(score < threshold for score in scores) - errors)
        if missed < least:
            least, found = missed, threshold
    return found


@given(scored, st.lists(st.integers(-2, 14), min_size=1, max_size=40))
def test_atc_is_its_definition_by_brute_force(source, target):
    scores, correct = zip(*source, strict=True)
    threshold = estimation.atc_threshold(scores, correct)
    assert threshold == brute_force_threshold(scores, correct)
    assert estimation.share_at_least(threshold, target) == sum(one >= threshold for one in target) / len(target)


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=60, unique=True), st.data())
def test_without_ties_the_share_below_the_threshold_is_the_source_error(scores, data):
    correct = data.draw(st.lists(st.booleans(), min_size=len(scores), max_size=len(scores)))
    threshold = estimation.atc_threshold(scores, correct)
    assert sum(score < threshold for score in scores) == len(scores) - sum(correct)
    assert estimation.share_at_least(threshold, scores) == sum(correct) / len(scores)


def test_perfect_and_zero_source_accuracy_are_carried_over():
    assert estimation.share_at_least(estimation.atc_threshold([0.5, 0.6], [True, True]), [0.0, 1.0]) == 1.0
    assert estimation.share_at_least(estimation.atc_threshold([0.5, 0.6], [False, False]), [0.0, 1.0]) == 0.0


def test_scores_are_those_of_the_softmax():
    logits = np.random.default_rng(0).normal(size=(50, 7)) * 4
    p = scipy.special.softmax(logits / 1.7, axis=1)
    np.testing.assert_allclose(estimation.confidence(logits, 1.7), p.max(1))
    np.testing.assert_allclose(estimation.negative_entropy(logits, 1.7), -scipy.stats.entropy(p, axis=1))
    np.testing.assert_allclose(estimation.probabilities(logits, 1.7), p)


def test_a_fitted_temperature_recovers_the_one_that_made_the_labels():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(20_000, 5)) * 3
    p = scipy.special.softmax(logits / 2.5, axis=1)
    labels = (p.cumsum(1) > rng.random((len(p), 1))).argmax(1)
    assert estimation.fit_temperature(logits, labels) == pytest.approx(2.5, rel=0.05)
    right = np.eye(3)[[0, 1, 2, 1]] * 4
    assert estimation.fit_temperature(right, [0, 1, 2, 1]) == pytest.approx(1, abs=1e-4)  # nothing is wrong


@given(st.lists(st.lists(st.integers(0, 3), min_size=5, max_size=5), min_size=1, max_size=20))
def test_decisions_are_counted(votes):
    shares = estimation.decision_shares(votes, 4)
    for row, share in zip(votes, shares, strict=True):
        assert share.tolist() == [row.count(label) / 5 for label in range(4)]
    np.testing.assert_allclose(estimation.modal_share(shares), [max(map(row.count, row)) / 5 for row in votes])
    np.testing.assert_allclose(
        estimation.decision_negative_entropy(shares), -scipy.stats.entropy(shares, axis=1), atol=1e-12
    )


numbers = st.lists(st.tuples(st.integers(-5, 5), st.integers(-5, 5)), min_size=2, max_size=30)


@given(numbers)
def test_rank_correlations_are_scipys(pairs):
    x, y = zip(*pairs, strict=True)
    if len(set(x)) < 2 or len(set(y)) < 2:
        assert estimation.kendall_tau(x, y) is None
        assert estimation.spearman_rho(x, y) is None
        return
    concordant = sum(np.sign(a - c) * np.sign(b - d) for i, (a, b) in enumerate(pairs) for c, d in pairs[:i])
    different = [math.sqrt(sum(a != c for i, a in enumerate(values) for c in values[:i])) for values in (x, y)]
    assert estimation.kendall_tau(x, y) == pytest.approx(concordant / math.prod(different))
    assert estimation.kendall_tau(x, y) == pytest.approx(scipy.stats.kendalltau(x, y).statistic)
    ranks = [scipy.stats.rankdata(values) for values in (x, y)]
    assert estimation.spearman_rho(x, y) == pytest.approx(np.corrcoef(ranks[0], ranks[1])[0, 1])


@given(numbers)
def test_r_squared_and_mean_absolute_error_are_their_closed_forms(pairs):
    predicted, actual = zip(*pairs, strict=True)
    assert estimation.mean_absolute_error(predicted, actual) == pytest.approx(
        sum(abs(a - b) for a, b in pairs) / len(pairs)
    )
    if len(set(actual)) < 2:
        assert estimation.r_squared(predicted, actual) is None
        return
    missed = sum((a - b) ** 2 for a, b in pairs)
    assert estimation.r_squared(predicted, actual) == pytest.approx(1 - missed / (len(actual) * np.var(actual)))


def test_r_squared_of_what_does_not_vary_is_none():
    assert np.mean([0.1] * 3) != 0.1  # rounding must not pass for variance
    assert estimation.r_squared([0.2, 0.3, 0.4], [0.1] * 3) is None


def test_r_squared_of_a_fitted_line_is_the_squared_correlation():
    rng = np.random.default_rng(0)
    x = rng.normal(size=40)
    y = 2 * x + rng.normal(size=40)
    line = np.polynomial.Polynomial.fit(x, y, 1)
    assert estimation.r_squared(line(x), y) == pytest.approx(scipy.stats.pearsonr(x, y).statistic ** 2)
    assert estimation.squared_correlation(x, y) == pytest.approx(scipy.stats.pearsonr(x, y).statistic ** 2)
    assert estimation.squared_correlation(x, [1.0] * len(x)) is None


@given(st.lists(st.integers(0, 6), min_size=1, max_size=15), st.lists(st.integers(0, 6), min_size=1, max_size=15))
def test_auroc_counts_pairs(inside, outside):
    pairs = [(a > b) + (a == b) / 2 for a in inside for b in outside]
    assert estimation.auroc(inside, outside) == pytest.approx(sum(pairs) / len(pairs))


def test_bootstrap_intervals_of_a_mean_are_nearly_the_normal_ones():
    values = np.random.default_rng(0).normal(size=2_000)
    low, high = estimation.percentile_interval(estimation.bootstrap_means(values, draws=2_000))
    half = 1.96 * values.std() / math.sqrt(len(values))
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.15 * half)
    assert estimation.bootstrap_means(np.ones((7, 3)), draws=5).shape == (5, 3)


@given(st.integers(2, 6))
def test_entropy_is_largest_where_all_are_equal(classes):
    assert estimation.entropy(np.full(classes, 1 / classes)) == pytest.approx(math.log(classes))
    assume(classes > 2)
    assert estimation.entropy(np.eye(classes)).tolist() == [0.0] * classes


def test_bad_scores_are_refused():
    with pytest.raises(DataError, match="no source scores"):
        estimation.atc_threshold([], [])
    with pytest.raises(DataError, match="not numbers"):
        estimation.atc_threshold([0.1, math.nan], [True, False])
    with pytest.raises(DataError, match="truth value"):
        estimation.atc_threshold([0.1, 0.2], [True])
    with pytest.raises(DataError, match="not logits"):
        estimation.confidence([[0.1, math.nan]])
    with pytest.raises(ShiftproofError, match="no score named"):
        estimation.score([[0.1, 0.2]], "margin")


@pytest.mark.parametrize("shape", [(30,), (30, 4)])
def test_bootstrap_samples_are_the_same_whether_they_are_kept_or_not(shape, monkeypatch):
    values = np.random.default_rng(1).normal(size=shape)
    kept = estimation.bootstrap_means(values, draws=50, seed=3)
    monkeypatch.setattr(estimation, "KEPT_DRAWS", 0)
    np.testing.assert_allclose(kept, estimation.bootstrap_means(values, draws=50, seed=3), atol=1e-12)
    assert kept.shape == (50, *shape[1:])
