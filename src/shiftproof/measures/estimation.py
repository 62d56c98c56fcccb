"""What is known of a classifier without labels, as numbers: scores, thresholds, invariance, and how estimates fare.

Logits are [N, K], scores come one per input, estimates are accuracies in [0, 1]. `shiftproof.estimators` runs models
and turns these numbers into estimates with intervals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shiftproof.errors import DataError
from shiftproof.registry import unknown

Array: TypeAlias = NDArray[np.float64]
Score: TypeAlias = Literal["confidence", "entropy"]

KEPT_DRAWS = 8_000_000
"""Bootstrap samples of so many inputs together, at most, are kept between statistics of one set: 32 MB."""


def confidence(logits: ArrayLike, temperature: float = 1.0) -> Array:
    """Return the probability of the predicted class, [N], for logits [N, K] divided by a temperature."""
    best: Array = np.exp(_log_probabilities(logits, temperature).max(1))
    return best


def negative_entropy(logits: ArrayLike, temperature: float = 1.0) -> Array:
    """Return sum_k p_k log p_k, [N], from -log K (no idea) to 0 (certain), for logits [N, K] over a temperature."""
    log = _log_probabilities(logits, temperature)
    total: Array = (np.exp(log) * log).sum(1)
    return total


def probabilities(logits: ArrayLike, temperature: float = 1.0) -> Array:
    """Return the softmax of logits [N, K] over a temperature."""
    found: Array = np.exp(_log_probabilities(logits, temperature))
    return found


def entropy(shares: ArrayLike) -> Array:
    """Return the entropy of distributions [..., K], in nats."""
    from scipy.special import entr

    total: Array = entr(np.asarray(shares, np.float64)).sum(-1)
    return total


SCORES: Mapping[str, Callable[..., Array]] = {"confidence": confidence, "entropy": negative_entropy}
"""Name -> score of logits, higher where the model is surer."""


def score(logits: ArrayLike, kind: str, temperature: float = 1.0) -> Array:
    """Return how sure a model is of each input, [N]: its `confidence`, or its negative `entropy`."""
    if kind not in SCORES:
        raise unknown("score", kind, SCORES)
    return SCORES[kind](logits, temperature)


def fit_temperature(logits: ArrayLike, labels: ArrayLike) -> float:
    """Return the temperature in [0.05, 20] that makes labelled logits likeliest (Guo et al. 2017).

    Where no answer is wrong it is 1 at least: the surer, the likelier, and nothing says how sure is too sure.
    """
    from scipy.optimize import minimize_scalar

    values, rows = np.asarray(logits, np.float64), np.asarray(labels, np.int64)

    def surprise(log_temperature: float) -> float:
        log = _log_probabilities(values, math.exp(log_temperature))
        return -float(log[np.arange(len(rows)), rows].mean())

    limits = (math.log(0.05) if (values.argmax(1) != rows).any() else 0.0, math.log(20.0))
    return math.exp(float(minimize_scalar(surprise, bounds=limits, method="bounded").x))


def atc_threshold(source_scores: ArrayLike, source_correct: ArrayLike) -> float:
    """Return the threshold of average thresholded confidence: the share of source scores below it is the source error.

    Garg et al. 2022. Of n scores with e errors it is the score of rank e, below which lie e others. Equal scores may
    make that impossible; then it is the score (or infinity, above all of them) with the nearest number below it, the
    lower one of two. Without an error it is minus infinity: nothing says which scores are too low.

    >>> atc_threshold([0.9, 0.4, 0.8, 0.6], [True, False, True, True])
    0.6
    """
    scores, correct = _checked("source scores", source_scores), np.asarray(source_correct, bool)
    if correct.shape != scores.shape:
        raise DataError(
            "Every source score needs a truth value.",
            expected=f"{len(scores)} truth values",
            got=f"shape {correct.shape}",
        )
    errors = int((~correct).sum())
    if errors == 0:
        return -math.inf
    candidates = np.append(np.unique(scores), math.inf)
    below = np.searchsorted(np.sort(scores), candidates, side="left")
    return float(candidates[np.abs(below - errors).argmin()])


def share_at_least(threshold: float, scores: ArrayLike) -> float:
    """Return the share of scores at or above a threshold."""
    return float((_checked("target scores", scores) >= threshold).mean())


def decision_shares(votes: ArrayLike, classes: int) -> Array:
    """Return how often each class was predicted in a neighbourhood, [N, K], for votes [N, views] (equation 1).

    >>> decision_shares([[0, 0, 0, 2]], classes=3)
    array([[0.75, 0.  , 0.25]])
    """
    cast = np.asarray(votes, np.int64)
    places = cast + classes * np.arange(len(cast))[:, None]
    counts = np.bincount(places.ravel(), minlength=classes * len(cast)).reshape(len(cast), classes)
    shares: Array = counts / cast.shape[1]
    return shares


def modal_share(shares: Array) -> Array:
    """Return the share of the most common prediction, [N], from 1/K to 1: neighbourhood invariance (equation 2)."""
    best: Array = shares.max(1)
    return best


def decision_negative_entropy(shares: Array) -> Array:
    """Return the negative entropy of the decision distribution, [N], from -log K to 0 (section B.3)."""
    return -entropy(shares)


def kendall_tau(x: ArrayLike, y: ArrayLike) -> float | None:
    """Return Kendall's rank correlation (tau-b), or None where one of the two does not vary."""
    from scipy.stats import kendalltau

    x, y = np.asarray(x, float), np.asarray(y, float)
    if len(np.unique(x)) < 2 or len(np.unique(y)) < 2:
        return None
    return float(kendalltau(x, y).statistic)


def spearman_rho(x: ArrayLike, y: ArrayLike) -> float | None:
    """Return Spearman's rank correlation, or None where one of the two does not vary."""
    from scipy.stats import spearmanr

    x, y = np.asarray(x, float), np.asarray(y, float)
    if len(np.unique(x)) < 2 or len(np.unique(y)) < 2:
        return None
    return float(spearmanr(x, y).statistic)


def r_squared(predicted: ArrayLike, actual: ArrayLike) -> float | None:
    """Return the share of the variance of `actual` that is predicted: 1 is all, less than 0 worse than its mean.

    None where `actual` does not vary.
    """
    predicted, actual = np.asarray(predicted, float), np.asarray(actual, float)
    if len(np.unique(actual)) < 2:  # told by the values: the sum of squares around a rounded mean is not quite 0
        return None
    return 1 - float(np.sum((actual - predicted) ** 2) / np.sum((actual - actual.mean()) ** 2))


def squared_correlation(x: ArrayLike, y: ArrayLike) -> float | None:
    """Return the square of Pearson's correlation, in [0, 1], or None where one of the two does not vary."""
    x, y = np.asarray(x, float), np.asarray(y, float)
    if len(np.unique(x)) < 2 or len(np.unique(y)) < 2:
        return None
    return float(np.corrcoef(x, y)[0, 1] ** 2)


def mean_absolute_error(predicted: ArrayLike, actual: ArrayLike) -> float:
    """Return the mean distance between predicted and actual."""
    return float(np.abs(np.asarray(predicted, float) - np.asarray(actual, float)).mean())


def auroc(inside: ArrayLike, outside: ArrayLike) -> float:
    """Return how often a score from `inside` is above one from `outside`, equal ones counting half.

    It is the area under the curve of true against false alarms when inputs with low scores are called strange.

    >>> auroc([0.9, 0.8], [0.8, 0.1])
    0.875
    """
    from scipy.stats import mannwhitneyu

    one, other = _checked("scores", inside), _checked("scores", outside)
    return float(mannwhitneyu(one, other).statistic) / (len(one) * len(other))


def bootstrap_means(values: ArrayLike, *, draws: int, seed: int = 0) -> Array:
    """Return the means of bootstrap samples of values [N, ...], [draws, ...]; sets of one size are resampled alike."""
    held = np.asarray(values, np.float64)
    if draws * len(held) > KEPT_DRAWS:
        rng = np.random.default_rng([seed, len(held)])
        return np.array([held[rng.integers(0, len(held), len(held))].mean(0) for _ in range(draws)])
    found: Array = _bootstrap_counts(len(held), draws, seed) @ held.reshape(len(held), -1) / len(held)
    return found.reshape(draws, *held.shape[1:])


@lru_cache(maxsize=2)
def _bootstrap_counts(inputs: int, draws: int, seed: int) -> NDArray[np.float32]:
    """Return how often each input is in each bootstrap sample, [draws, N]: every statistic of a set asks for them."""
    rng = np.random.default_rng([seed, inputs])
    counts = [np.bincount(rng.integers(0, inputs, inputs), minlength=inputs) for _ in range(draws)]
    return np.array(counts, np.float32)


def percentile_interval(values: ArrayLike, confidence: float = 0.95) -> tuple[float, float]:
    """Return the interval that holds the middle share of bootstrap values."""
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.asarray(values, float), (tail, 1 - tail))
    return float(low), float(high)


def _log_probabilities(logits: ArrayLike, temperature: float) -> Array:
    values = np.asarray(logits, np.float64)
    if values.ndim != 2 or values.shape[1] < 2 or not np.isfinite(values).all():
        raise DataError(
            "These are not logits.",
            expected="finite scores of two or more classes, N x K",
            got=f"shape {values.shape}" if np.isfinite(values).all() else "NaN or infinity",
        )
    log = values / temperature
    log -= log.max(1, keepdims=True)  # in place: copies of many scores take longer than the logarithms
    log -= np.log(np.exp(log).sum(1, keepdims=True))
    return log


def _checked(what: str, values: ArrayLike) -> Array:
    """Return scores as numbers; refuse none at all, and NaN."""
    scores = np.asarray(values, np.float64)
    if scores.ndim != 1 or scores.size == 0:
        raise DataError(f"There are no {what}.", expected="one score per input", got=f"shape {scores.shape}")
    if np.isnan(scores).any():
        raise DataError(
            f"Some {what} are not numbers.",
            expected="one score per input",
            got=f"NaN for {int(np.isnan(scores).sum())} of {len(scores)}",
        )
    return scores
