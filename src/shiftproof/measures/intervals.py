"""Intervals that hold at the sizes they are told at: of shares and their differences, of means over images and batches.

They are about images drawn like these. Each holds with its `confidence` at every number of images, where the bootstrap
and Student's t fail with few images or an accuracy near 1 (docs/design/intervals.md has the simulated coverage). None
has zero width, however well a few images agree. With `among` intervals to choose from, each of them is made wider, so
that all hold together (Bonferroni): whoever quotes the lowest of 75 accuracies quotes an interval that is one of 75.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray: TypeAlias = NDArray[np.float64]

CONFIDENCE = 0.95
MIN_IMAGES = 10
"""Fewer images, or batches of them, are too few to say: an interval would span almost everything."""
TOO_FEW = "interval: too few to say"
"""What is written in place of an interval there."""
LARGEST_BET = 0.9
"""The share of the capital that is put at risk at most."""
MAX_STAGES = 1_000
"""Bets are set anew after every image, or after every so many of them where there are more images than this."""
CANDIDATES, ROUNDS = 16, 5
"""Means that are bet against at a time, and how often they are drawn closer: a bound is within 1e-6 of the range."""


class Interval(NamedTuple):
    """Where a number lies on images drawn like these."""

    low: float
    high: float


def lower_bound(hits: ArrayLike, n: ArrayLike, alpha: float) -> FloatArray:
    """One-sided Clopper-Pearson bound: P(bound > p) <= alpha for hits ~ Binomial(n, p).

    Args:
        hits: Successes.
        n: Trials.
        alpha: The probability that the bound is wrong.

    >>> float(lower_bound(1000, 1000, 0.001).round(6))  # 0.001 ** (1 / 1000)
    0.993116
    """
    from scipy.stats import beta

    hits, n = np.asarray(hits, float), np.asarray(n, float)
    return np.where(hits > 0, beta.ppf(alpha, np.maximum(hits, 1), n - hits + 1), 0.0)


def upper_bound(hits: ArrayLike, n: ArrayLike, alpha: float) -> FloatArray:
    """One-sided Clopper-Pearson bound from above: P(bound < p) <= alpha for hits ~ Binomial(n, p).

    Args:
        hits: Successes.
        n: Trials.
        alpha: The probability that the bound is wrong.
    """
    return 1.0 - lower_bound(np.asarray(n) - np.asarray(hits), n, alpha)


def proportion_intervals(
    hits: ArrayLike, n: ArrayLike, *, confidence: float = CONFIDENCE, among: float = 1
) -> FloatArray:
    """Return Clopper-Pearson intervals of shares of n, [..., 2]: exact, so never too narrow.

    >>> proportion_intervals([10, 9], 10).round(3).tolist()
    [[0.692, 1.0], [0.555, 0.997]]
    """
    tail = (1 - confidence) / 2 / among
    return np.stack([lower_bound(hits, n, tail), upper_bound(hits, n, tail)], axis=-1)


def paired_intervals(
    gained: ArrayLike, lost: ArrayLike, n: ArrayLike, *, confidence: float = CONFIDENCE, among: float = 1
) -> FloatArray:
    """Return intervals of the difference of two shares of the same n images, (gained - lost) / n, [..., 2].

    Some images are right for the second model alone (gained), some for the first alone (lost). The Clopper-Pearson
    limits of these two shares are combined by Newcombe's square-and-add rule (1998, method 10, with these shares in
    place of the accuracies) and their correlation, which is negative: an image cannot be both. Newcombe's own covers
    86% where two models differ on few images; this one at least 95% in simulation.

    >>> paired_intervals(0, 0, 100).round(3).tolist()  # the same answers, of no more than 100 images
    [-0.036, 0.036]
    """
    up, down, n = (np.asarray(each, float) for each in (gained, lost, n))
    (low_up, high_up), (low_down, high_down) = (
        np.moveaxis(proportion_intervals(each, n, confidence=confidence, among=among), -1, 0) for each in (up, down)
    )
    together = np.sqrt(up * down / np.maximum((n - up) * (n - down), 1.0))
    up, down = up / n, down / n

    def added(one: FloatArray, other: FloatArray) -> FloatArray:
        sums: FloatArray = np.sqrt(one**2 + other**2 + 2 * together * one * other)
        return sums

    low = up - down - added(up - low_up, high_down - down)
    high = up - down + added(high_up - up, down - low_down)
    return np.stack([np.maximum(low, -1.0), np.minimum(high, 1.0)], axis=-1)


def mean_intervals(
    values: ArrayLike, low: float = 0.0, high: float = 1.0, *, confidence: float = CONFIDENCE, among: float = 1
) -> FloatArray:
    """Return betting intervals of the means of the columns of values [N, Q], all between low and high, [Q, 2].

    A mean m is refused where somebody who bets against it, image by image, would have multiplied a capital by
    2 / alpha at some time; by Ville's inequality that happens to the true mean with probability alpha at most,
    whatever the values are like between their limits (Waudby-Smith and Ramdas 2024). Each bet is the one that would
    bring the capital there with the least luck, given what it is now and how many images are left (Voracek and
    Orabona 2025), which makes intervals about as wide as Student's where that one holds. Rows must be independent:
    what belongs to one image is averaged first.

    >>> mean_intervals([[1.0]] * 20 + [[0.5]] * 20).round(3).tolist()
    [[0.647, 0.833]]
    """
    table = np.asarray(values, float)
    if table.ndim != 2 or not len(table):
        raise ValueError(f"means need rows of numbers, [N, Q]; got an array of shape {table.shape}")
    unit = (table - low) / (high - low)
    if not (np.abs(unit - 0.5) <= 0.5 + 1e-9).all():
        raise ValueError(f"the values must lie between {low:g} and {high:g}; got {table.min():g} to {table.max():g}")
    # Images may come sorted, by class for instance. A bet may not know what comes next, so they are shuffled: always
    # in the same way, that the same images give the same interval.
    unit = np.clip(unit, 0.0, 1.0)[np.random.default_rng(0).permutation(len(unit))]
    wanted = np.log(2 * among / (1 - confidence))
    bounds = _betting_bounds(np.concatenate([unit, 1.0 - unit], axis=1), wanted)
    below, above = np.split(bounds, 2)
    found = np.stack([below, 1.0 - above], axis=-1)
    return low + (high - low) * found


def mean_interval(
    values: ArrayLike, low: float = 0.0, high: float = 1.0, *, confidence: float = CONFIDENCE, among: float = 1
) -> Interval | None:
    """Return the interval of the mean of values [N] between low and high; None where they are too few to say.

    >>> interval = mean_interval([1.0, 0.8, 0.9, 1.0] * 20)
    >>> round(interval.low, 3), round(interval.high, 3)
    (0.876, 0.945)
    """
    table = np.asarray(values, float)[:, None]
    if len(table) < MIN_IMAGES:
        return None
    return _told(mean_intervals(table, low, high, confidence=confidence, among=among)[0])


def difference_interval(
    one: ArrayLike, other: ArrayLike, low: float = -1.0, high: float = 1.0, *, among: float = 1
) -> Interval | None:
    """Return the interval of mean(other - one), image by image, [N] each; differences lie between low and high.

    Right and wrong answers, 1 and 0, are counted; numbers between are bet on. None where there are too few to say.

    >>> interval = difference_interval([0.0] * 6 + [1.0] * 94, [1.0] * 100)
    >>> round(interval.low, 3), round(interval.high, 3)
    (0.008, 0.126)
    """
    before, after = np.asarray(one, float), np.asarray(other, float)
    if len(before) < MIN_IMAGES:
        return None
    if np.isin(before, (0.0, 1.0)).all() and np.isin(after, (0.0, 1.0)).all():
        gained, lost = int((after > before).sum()), int((after < before).sum())
        return _told(paired_intervals(gained, lost, len(before), among=among))
    return mean_interval(after - before, low, high, among=among)


def student_interval(values: ArrayLike, *, confidence: float = CONFIDENCE, among: float = 1) -> Interval | None:
    """Return Student's interval of the mean of values [N] without limits; None where they are too few to say.

    >>> interval = student_interval([1.0, 0.8, 0.9, 1.0] * 20)
    >>> round(interval.low, 3), round(interval.high, 3)
    (0.906, 0.944)
    """
    from scipy.stats import t

    table = np.asarray(values, float)
    if len(table) < MIN_IMAGES:
        return None
    reach = t.ppf(1 - (1 - confidence) / 2 / among, len(table) - 1) * table.std(ddof=1) / np.sqrt(len(table))
    return Interval(float(table.mean() - reach), float(table.mean() + reach))


def batch_intervals(gains: ArrayLike, batch: float, *, confidence: float = CONFIDENCE, among: float = 1) -> FloatArray:
    """Return Student's intervals of the mean gain in accuracy over batches of so many images, [N, Q] to [Q, 2].

    The mean of a batch is near enough to normal where that of an image is not, and gains that follow a course of easy
    and hard batches only make it wider. One more image gained and one more lost are reckoned in, so that batches that
    agree have a width.

    >>> batch_intervals([[0.0]] * 50, batch=64).round(4).tolist()
    [[-0.0009, 0.0009]]
    """
    from scipy.stats import t

    table = np.asarray(gains, float)
    count = len(table)
    squares = ((table - table.mean(0)) ** 2).sum(0) + 2 / batch**2
    reach = t.ppf(1 - (1 - confidence) / 2 / among, count - 1) * np.sqrt(squares / (count - 1) / count)
    return np.stack([table.mean(0) - reach, table.mean(0) + reach], axis=-1)


def batch_interval(gains: ArrayLike, batch: float, *, among: float = 1) -> Interval | None:
    """Return the interval of the mean gain over batches, [N], of so many images; None where they are too few to say."""
    table = np.asarray(gains, float)[:, None]
    return _told(batch_intervals(table, batch, among=among)[0]) if len(table) >= MIN_IMAGES else None


def _told(bounds: FloatArray) -> Interval:
    return Interval(float(bounds[0]), float(bounds[1]))


def _betting_bounds(unit: FloatArray, wanted: float) -> FloatArray:
    """Return the largest mean, [Q], that bets on a larger one refute, of values [N, Q] between 0 and 1.

    It is the last of a grid of means, drawn ever closer, below which all are refuted; it is never above their own mean.
    """
    low, high = np.zeros(unit.shape[1]), unit.mean(0)
    variances = _variances(unit)
    for _ in range(ROUNDS):
        means = np.linspace(low, high, CANDIDATES + 2)
        refuted = _refuted(unit, variances, means[1:-1], wanted)
        last = np.logical_and.accumulate(refuted, axis=0).sum(0)
        low, high = (np.take_along_axis(means, place[None], 0)[0] for place in (last, last + 1))
    return low


def _variances(unit: FloatArray) -> FloatArray:
    """Return the variance of the values before each, [N, Q], begun with one of 1/4."""
    seen = np.arange(2, len(unit) + 2)[:, None]
    means = (0.5 + unit.cumsum(0)) / seen
    found = (0.25 + ((unit - means) ** 2).cumsum(0)) / seen
    return np.concatenate([np.full_like(unit[:1], 0.25), found[:-1]])


def _refuted(unit: FloatArray, variances: FloatArray, means: FloatArray, wanted: float) -> NDArray[np.bool_]:
    """Return which of the means [G, Q] lose a bet against them: its log capital reaches what is wanted.

    To gain g more over k images of variance v by constant bets b takes a sum of g / b + b k v / 2, least where
    b = sqrt(2 g / k v). It is set so whenever there are new images to learn g and v from, and is 0 from the goal on.
    """
    count = len(unit)
    most = LARGEST_BET / np.maximum(means, 1e-12)
    capital = np.zeros_like(means)
    for start in range(0, count, step := -(-count // MAX_STAGES)):
        left = (count - start) * variances[start]
        bets = np.minimum(np.sqrt(2 * np.maximum(wanted - capital, 0.0) / left), most)
        capital += np.log1p(bets * (unit[start : start + step, None] - means)).sum(0)
    refuted: NDArray[np.bool_] = capital >= wanted
    return refuted
