"""Tests and bounds that hold at every moment of a stream, by betting against them with fixed bets.

A share of a capital of 1 is bet on every label that comes in. Where the claim bet against holds, the capital reaches
1 / alpha with probability alpha at most, however often it is looked at (Ville 1939; Waudby-Smith and Ramdas 2024). The
bets are fixed beforehand and the capital is spread over them, so that a claim about the *running mean* of all labels so
far is tested, under any drift: bets that follow the past test a claim about every single moment.

Labels may be a sample: flip a coin for every image, independent of everything else. Then the claim is about all images
so far, whoever predicts, learns or switches in between, and whatever order they come in.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]

BETS: FloatArray = np.asarray(0.9 * 0.5 ** np.arange(8), float)
"""The shares of the capital that are bet, each with an eighth of it."""
HALVINGS = 40


def log_evidence(errors: ArrayLike, labels: ArrayLike, rate: ArrayLike) -> FloatArray:
    """Return the logarithm of the capital won against "the running error rate is at most `rate`", in (0, 1).

    >>> float(log_evidence(30, 100, 0.2).round(4))
    1.4683
    """
    wrong, right, rate = np.broadcast_arrays(*_arrays(errors, np.subtract(labels, errors), rate))
    return log_capital(_each(wrong) * np.log1p(BETS * _each((1 - rate) / rate)) + _each(right) * np.log1p(-BETS))


def lower(errors: ArrayLike, labels: ArrayLike, alpha: float = 0.05) -> FloatArray:
    """Return the lower bound of the running error rate: P(it is above the rate at some time) <= alpha.

    >>> [round(float(bound(30, 100)), 4) for bound in (lower, upper)]
    [0.1749, 0.4522]
    """
    wrong, count = np.broadcast_arrays(*_arrays(errors, labels))
    low, high = np.zeros(wrong.shape), np.ones(wrong.shape)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        refuted = log_evidence(wrong, count, middle) >= -np.log(alpha)
        low, high = np.where(refuted, middle, low), np.where(refuted, high, middle)
    return low


def upper(errors: ArrayLike, labels: ArrayLike, alpha: float = 0.05) -> FloatArray:
    """Return the upper bound of the running error rate: P(it is below the rate at some time) <= alpha."""
    return 1 - lower(np.subtract(labels, errors), labels, alpha)


def log_paired_evidence(worse: ArrayLike, better: ArrayLike) -> FloatArray:
    """Return the logarithm of the capital won against "the first model made no more errors than the second".

    Of the labelled images the first alone was wrong on `worse` and the second alone on `better`; where both answered
    alike there is nothing to bet on, so those need no label.
    """
    worse, better = np.broadcast_arrays(*_arrays(worse, better))
    return log_capital(_each(worse) * np.log1p(BETS) + _each(better) * np.log1p(-BETS))


def paired_upper(
    worse: ArrayLike, better: ArrayLike, images: int, shares: ArrayLike = 1.0, alpha: float = 0.05
) -> float:
    """Return the upper bound of error_first - error_second over all images so far, valid at every time.

    `worse` and `better` count the labelled images that the first alone, and the second alone, got wrong, one number for
    each of the `shares`: the probabilities with which disagreements were labelled. An image stands for 1 / share.

    >>> round(paired_upper([10], [40], images=5000, shares=[0.02]), 3)
    -0.092
    """
    if not images:
        return 1.0
    worse, better, shares = (np.atleast_1d(each) for each in np.broadcast_arrays(*_arrays(worse, better, shares)))
    silent = images - worse.sum() - better.sum()
    bets = BETS / (1 / shares.min() + 1)  # so that the largest loss, 1 / share + 1, leaves something

    def refuted(mean: float) -> bool:
        """Whether the capital bet against "the mean difference is at least `mean`" is large enough."""
        won = worse[:, None] * np.log1p(-bets * (1 / shares[:, None] - mean))
        lost = better[:, None] * np.log1p(bets * (1 / shares[:, None] + mean))
        return bool(log_capital((won + lost).sum(0) + silent * np.log1p(bets * mean)) >= -np.log(alpha))

    low, high = -1.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if refuted(middle) else (middle, high)
    return high


def new_capital(*shape: int) -> FloatArray:
    """Return the capital of tests at their start, [*shape, bets]: half of it, the rest comes in over the horizon."""
    return np.full((*shape, len(BETS)), 0.5)


def bet_again(capital: FloatArray, outcomes: ArrayLike, horizon: int) -> FloatArray:
    """Return the capital, [..., bets], after one more outcome, [...] in [-1, 1], against "outcomes are at most 0".

    A capital that was bet from the beginning has lost much by the time that things change. So only half is bet from the
    beginning, and the other half comes in evenly over `horizon` outcomes. Where the mean of the outcomes since any
    start is at most 0, the probability that the capital reaches 1 / alpha within the horizon is at most alpha, and each
    further horizon adds half of that.
    """
    return (capital + 0.5 / horizon) * (1 + BETS * _each(np.asarray(outcomes, float)))


def log_capital(logs: FloatArray) -> FloatArray:
    """Return the logarithm of the mean of exp(logs) over the bets, the last axis."""
    top = logs.max(-1)
    return np.asarray(top + np.log(np.exp(logs - top[..., None]).mean(-1)))


def _arrays(*values: ArrayLike) -> tuple[FloatArray, ...]:
    return tuple(np.asarray(value, float) for value in values)


def _each(values: FloatArray) -> FloatArray:
    """Return values with an axis for the bets."""
    return values[..., None]
