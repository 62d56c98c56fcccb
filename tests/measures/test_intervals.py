"""Intervals: where they lie, that they never have zero width, and that they do not depend on what they must not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, ttest_1samp

from shiftproof.measures.intervals import (
    MIN_IMAGES,
    batch_interval,
    batch_intervals,
    difference_interval,
    mean_interval,
    mean_intervals,
    paired_intervals,
    proportion_intervals,
    student_interval,
)

FRACTIONS = st.lists(st.floats(0, 1), min_size=MIN_IMAGES, max_size=60)


@given(FRACTIONS, st.integers(1, 1000))
def test_a_mean_lies_in_its_interval_which_has_a_width(values, among):
    found = mean_interval(values, among=among)
    assert found is not None
    assert 0 <= found.low <= np.mean(values) + 1e-9
    assert np.mean(values) - 1e-9 <= found.high <= 1
    assert found.high - found.low > 0.05  # 60 images at most
    if among > 1:
        single = mean_interval(values)
        assert single is not None
        assert found.low <= single.low + 1e-6
        assert single.high <= found.high + 1e-6


@given(FRACTIONS, st.floats(-3, 3), st.floats(0.1, 5))
def test_intervals_of_means_move_and_stretch_with_the_values(values, start, scale):
    plain = mean_interval(values)
    moved = mean_interval(start + scale * np.array(values), start, start + scale)
    assert plain is not None
    assert moved == pytest.approx((start + scale * plain.low, start + scale * plain.high), abs=1e-4)


@given(FRACTIONS)
def test_what_is_wrong_has_the_interval_of_what_is_right_turned_round(values):
    right, wrong = mean_interval(values), mean_interval(1 - np.array(values))
    assert right is not None
    assert wrong == pytest.approx((1 - right.high, 1 - right.low), abs=1e-5)


def test_columns_are_told_as_by_themselves():
    table = np.random.default_rng(0).random((40, 3))
    for column, found in zip(table.T, mean_intervals(table), strict=True):
        assert mean_interval(column) == pytest.approx(tuple(found))


def test_images_may_come_sorted():
    """Half of the classes are known and half are not, one after another: bets must not know what comes next."""
    rng = np.random.default_rng(0)
    drawn = np.sort(rng.random((400, 300)) < 0.5, axis=0).astype(float)
    low, high = mean_intervals(drawn).T
    assert np.mean((low <= 0.5) & (high >= 0.5)) >= 0.93


@pytest.mark.parametrize("law", [(0.8, 1.2), (0.5, 0.5), (9.0, 1.0), (0.9, 0.1)])
@pytest.mark.parametrize("images", [1_000, 2_500])  # of more than a thousand, a bet stands for several
def test_of_many_images_betting_costs_little_width(law: tuple[float, float], images: int):
    """Bets fixed beforehand are 1.1 to 1.3 times as wide as Student's interval, on average."""
    draws = np.random.default_rng(5).beta(law[0], law[1], (images, 20))
    widths = np.diff(mean_intervals(draws))[:, 0]
    student = [one.high - one.low for one in map(student_interval, draws.T) if one]
    assert 0.95 < np.mean(widths / student) < 1.1


def test_a_mean_of_many_images_is_told_about_as_closely_as_by_the_normal_law():
    values = np.random.default_rng(0).beta(8, 2, 5000)
    found = mean_interval(values)
    assert found is not None
    assert found.high - found.low < 1.4 * 2 * 1.96 * values.std() / np.sqrt(5000)


def test_batches_have_students_interval_but_for_two_images():
    gains = np.random.default_rng(0).normal(0.1, 0.05, (40, 2))
    expected = ttest_1samp(gains, 0).confidence_interval(0.95)
    assert batch_intervals(gains, 1e9) == pytest.approx(np.stack([expected.low, expected.high], 1))
    wider, plain = batch_interval(gains[:, 0], 64), batch_interval(gains[:, 0], 1e9)
    assert wider is not None
    assert plain is not None
    assert wider.low < plain.low < plain.high < wider.high
    agreed = batch_interval([0.08] * 50, 64)
    assert agreed is not None
    assert agreed.high - agreed.low > 0.001


def test_few_are_too_few_to_say():
    assert mean_interval([0.5] * (MIN_IMAGES - 1)) is None
    assert batch_interval([0.5] * (MIN_IMAGES - 1), 64) is None
    assert difference_interval([0.0] * 9, [1.0] * 9) is None
    assert difference_interval([0.5] * 9, [0.25] * 9) is None


@given(st.integers(1, 300), st.floats(0, 1), st.floats(0, 1))
def test_a_paired_difference_lies_in_its_interval_which_has_a_width(n, share, part):
    differ = round(share * n)
    gained = round(part * differ)
    low, high = paired_intervals(gained, differ - gained, n)
    assert -1 <= low <= (2 * gained - differ) / n <= high <= 1
    assert high - low > 0.9 / n
    assert paired_intervals(differ - gained, gained, n) == pytest.approx([-high, -low])


def test_where_only_one_side_gains_it_is_as_a_share():
    """Then the difference is the share of images gained; what may yet be lost widens it below."""
    low, high = paired_intervals(30, 0, 100)
    expected = binomtest(30, 100).proportion_ci(0.95, method="exact")
    assert high == pytest.approx(expected.high)
    assert low < expected.low


def test_pairs_make_small_differences_visible():
    rng = np.random.default_rng(0)
    hard = (rng.random(400) < 0.5).astype(float)  # some images are wrong for both
    better = np.where(rng.random(400) < 0.05, 1.0, hard)
    found = difference_interval(hard, better)
    assert found is not None
    assert found.low > 0
    (_, one), (other, _) = proportion_intervals([hard.sum(), better.sum()], 400)
    assert one > other  # each by itself, the same difference drowns


def test_answers_are_counted_and_fractions_are_bet_on():
    one, other = np.array([0.0, 1.0] * 30), np.array([1.0, 1.0] * 30)
    assert difference_interval(one, other) == pytest.approx(tuple(paired_intervals(30, 0, 60)))
    assert difference_interval(one / 2, other / 2) == mean_interval((other - one) / 2, -1.0, 1.0)


@pytest.mark.parametrize("values", [[], [1.0, 2.0]])
def test_what_is_no_table_is_refused(values):
    with pytest.raises(ValueError, match="rows of numbers"):
        mean_intervals(values)


@pytest.mark.parametrize("value", [-0.01, 1.01, float("nan")])
def test_values_beyond_their_limits_are_refused(value):
    with pytest.raises(ValueError, match="between 0 and 1"):
        mean_interval([0.5] * 20 + [value])
