"""Tests that hold at every time: their test vectors, plain products of bets, and false alarms by simulation."""

import math

import numpy as np
import pytest

from shiftproof.measures.betting import (
    BETS,
    bet_again,
    log_capital,
    log_evidence,
    log_paired_evidence,
    lower,
    new_capital,
    paired_upper,
    upper,
)

ALPHA = 0.05
STREAMS, STEPS = 2000, 10_000


@pytest.mark.parametrize(
    ("errors", "labels", "low", "high"),
    [
        (0, 50, 0.0, 0.1031),
        (5, 50, 0.0194, 0.2946),
        (30, 100, 0.1749, 0.4522),
        (60, 250, 0.1647, 0.3309),
        (200, 1000, 0.1632, 0.2411),
        (2000, 10_000, 0.1878, 0.2125),
    ],
)
def test_bounds_are_those_of_the_reference(errors, labels, low, high):
    assert lower(errors, labels) == pytest.approx(low, abs=5e-5)
    assert upper(errors, labels) == pytest.approx(high, abs=5e-5)


def test_bounds_come_in_arrays():
    assert lower([0, 5], 50) == pytest.approx([0, 0.0194], abs=5e-5)
    assert log_evidence([30, 30], 100, [0.2, 0.4]).shape == (2,)
    assert float(log_evidence(30, 100, 0.2)) == pytest.approx(1.4683, abs=5e-5)


def test_evidence_is_the_mean_product_of_fixed_bets():
    outcomes = np.random.default_rng(0).random(60) < 0.4
    for rate in (0.1, 0.3, 0.7):
        products = [math.prod(1 + bet / rate * (wrong - rate) for wrong in outcomes) for bet in BETS]
        expected = math.log(sum(products) / len(products))
        assert float(log_evidence(outcomes.sum(), 60, rate)) == pytest.approx(expected, abs=1e-9)
    pairs = np.random.default_rng(1).choice([-1, 0, 1], 50, p=[0.2, 0.3, 0.5])
    products = [math.prod(1 + bet * pair for pair in pairs) for bet in BETS]
    found = log_paired_evidence((pairs == 1).sum(), (pairs == -1).sum())
    assert float(found) == pytest.approx(math.log(sum(products) / len(products)), abs=1e-9)


def test_the_bound_of_a_difference_is_where_the_bets_against_it_pay():
    """By a plain product over all images, most of which have no label."""
    random = np.random.default_rng(2)
    share = random.choice([0.1, 0.4], 400)
    difference = random.choice([-1, 0, 1], 400, p=[0.3, 0.6, 0.1])
    labelled = random.random(400) < share

    def capital(mean: float) -> float:
        products = np.ones(len(BETS))
        for each, coin, chance in zip(difference, labelled, share, strict=True):
            products *= 1 - BETS / 11 * ((each / chance if coin else 0.0) - mean)
        return float(products.mean())

    worse, better = ([((difference == side) & labelled & (share == s)).sum() for s in (0.1, 0.4)] for side in (1, -1))
    bound = paired_upper(worse, better, images=400, shares=[0.1, 0.4], alpha=ALPHA)
    assert capital(bound + 1e-6) >= 1 / ALPHA > capital(bound - 1e-6)
    assert bound > difference.mean()
    assert paired_upper([0], [0], images=0) == 1


def test_capital_that_comes_in_late_is_bet_from_then_on():
    """By its definition: capital of every start, each multiplied by what came after it."""
    outcomes = np.random.default_rng(3).uniform(-1, 1, 30)
    capital = new_capital()
    for outcome in outcomes:
        capital = bet_again(capital, outcome, horizon=40)
    expected = 0.5 * np.prod(1 + np.outer(outcomes, BETS), axis=0)
    for start in range(30):
        expected = expected + 0.5 / 40 * np.prod(1 + np.outer(outcomes[start:], BETS), axis=0)
    np.testing.assert_allclose(capital, expected, rtol=1e-12)
    assert log_capital(np.log(capital)) == pytest.approx(math.log(expected.mean()))


def test_late_capital_hears_a_late_change():
    outcomes = np.array([-1.0] * 300 + [1.0] * 30)
    capital = new_capital()
    for outcome in outcomes:
        capital = bet_again(capital, outcome, horizon=1000)
    assert log_capital(np.log(capital)) > math.log(1 / ALPHA) > log_paired_evidence(30, 300)


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.01, 0.05, 0.2, 0.5, 0.8])
def test_false_alarms_against_an_error_rate(rate):
    """At the very rate, looked at after every label: the hardest case of the claim."""
    random = np.random.default_rng(0)
    capital, most, errors = np.ones((STREAMS, len(BETS))), np.zeros(STREAMS), np.zeros(STREAMS)
    for _ in range(STEPS):
        wrong = random.random(STREAMS) < rate
        capital *= 1 + BETS / rate * (wrong - rate)[:, None]
        most = np.maximum(most, capital.mean(-1))
        errors += wrong
    np.testing.assert_allclose(np.log(capital.mean(-1)), log_evidence(errors, STEPS, rate), rtol=1e-6)
    assert 0.2 * ALPHA <= (most >= 1 / ALPHA).mean() <= ALPHA


@pytest.mark.slow
@pytest.mark.parametrize(("differ", "begin"), [(0.6, 0.0), (0.1, 0.0), (0.6, -0.3)])
def test_false_alarms_of_the_paired_test(differ, begin):
    """Two models that are as often right, from the beginning or after a time in which the first was better."""
    random = np.random.default_rng(1)
    capital, most = new_capital(STREAMS), np.zeros(STREAMS)
    for step in range(STEPS):
        lean = begin if step < STEPS // 2 else 0.0
        draw = random.random(STREAMS)
        outcomes = (draw < (differ + lean) / 2).astype(float) - ((draw >= (differ + lean) / 2) & (draw < differ))
        capital = bet_again(capital, outcomes, STEPS)
        most = np.maximum(most, capital.mean(-1))
    assert (most >= 1 / ALPHA).mean() <= ALPHA
    assert (most >= 2).any()  # it does bet


@pytest.mark.slow
def test_the_bound_of_a_difference_holds_at_every_time():
    """A stream that turns, an audit of one disagreement in ten: the bound is looked at after every thousand images."""
    random, broken = np.random.default_rng(2), 0
    for _ in range(200):
        means = np.repeat(random.uniform(-0.3, 0.3, 10), 1000)
        difference = (random.random(10_000) < 0.3 + means / 2) * 1 - (random.random(10_000) < 0.3 - means / 2)
        labelled = random.random(10_000) < 0.1
        ends = range(1000, 10_001, 1000)
        counts = [[int((labelled & (difference == side))[:end].sum()) for side in (1, -1)] for end in ends]
        bounds = [paired_upper(up, down, images=end, shares=0.1) for (up, down), end in zip(counts, ends, strict=True)]
        broken += any(bound < difference[:end].mean() for bound, end in zip(bounds, ends, strict=True))
    assert broken / 200 <= ALPHA
