"""Whether a classifier knows when it is wrong: calibration, selective prediction, conformal sets, and strange inputs.

Scores come one per input, higher where the model is surer; `right` says which answers were right.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shiftproof.errors import DataError
from shiftproof.measures.estimation import Array

BINS = 15
"""Bins of confidence, of equal width, as in Guo et al. 2017."""

NEIGHBORS = 50
"""The neighbour whose distance counts in a source of 1,000 inputs or more (Sun et al. 2022); one in twenty of fewer."""


@dataclass(frozen=True)
class Reliability:
    """Answers in bins of confidence: how many, their mean confidence and their accuracy; empty bins are left out."""

    inputs: NDArray[np.int64]
    confidence: Array
    accuracy: Array

    @classmethod
    def of(cls, confidences: ArrayLike, right: ArrayLike, bins: int = BINS) -> Reliability:
        """Sort answers into bins."""
        sure, hits = _pair(confidences, right)
        places = np.clip(np.ceil(sure * bins).astype(int) - 1, 0, bins - 1)
        inputs = np.bincount(places, minlength=bins)
        some = inputs > 0
        sums = (np.bincount(places, each, bins)[some] / inputs[some] for each in (sure, hits))
        return cls(inputs[some], *sums)

    @property
    def error(self) -> float:
        """The expected calibration error: the mean distance between confidence and accuracy of a bin, by inputs."""
        return float(np.average(np.abs(self.confidence - self.accuracy), weights=self.inputs))


def calibration_error(confidences: ArrayLike, right: ArrayLike, bins: int = BINS) -> float:
    """Return the expected calibration error (ECE).

    >>> calibration_error([0.9, 0.9, 0.6, 0.6], [True, True, True, False])
    0.1
    """
    return round(Reliability.of(confidences, right, bins).error, 12)


def calibration_error_of_chance(confidences: ArrayLike, *, bins: int = BINS, draws: int = 200, seed: int = 0) -> float:
    """Return the mean ECE that a perfectly calibrated model with these confidences shows on so few inputs."""
    sure = np.asarray(confidences, np.float64)
    rng = np.random.default_rng([seed, len(sure)])
    return float(np.mean([Reliability.of(sure, rng.random(len(sure)) < sure, bins).error for _ in range(draws)]))


def accuracy_at_coverage(scores: ArrayLike, right: ArrayLike, coverage: float) -> float:
    """Return the accuracy on the share of inputs with the highest scores: selective prediction.

    At least one input is answered. Where scores at the limit are equal, it is the mean over which of them are taken.

    >>> accuracy_at_coverage([0.9, 0.8, 0.4, 0.3], [True, True, False, True], coverage=0.5)
    1.0
    """
    sure, hits = _pair(scores, right)
    kept = max(1, math.ceil(coverage * len(sure) - 1e-9))
    limit = np.sort(sure)[len(sure) - kept]
    above, at = sure > limit, sure == limit
    return float((hits[above].sum() + (kept - above.sum()) * hits[at].mean()) / kept)


def conformal_threshold(true_probabilities: ArrayLike, level: float) -> float:
    """Return the least probability at which a class is in its prediction set, so that sets hold the truth at a level.

    Split conformal prediction with the score 1 - p (Sadinle et al. 2019): of n labelled inputs, the ceil((n + 1) level)
    -th largest probability of the true class. 0, so that sets hold every class, where n is too small for the level.
    """
    held = np.sort(np.asarray(true_probabilities, np.float64))[::-1]
    rank = math.ceil((len(held) + 1) * level - 1e-9)
    return float(held[rank - 1]) if rank <= len(held) else 0.0


def energy(logits: ArrayLike) -> Array:
    """Return the negative energy of logits [N, K]: their log-sum-exp, low for strange inputs (Liu et al. 2020)."""
    from scipy.special import logsumexp

    found: Array = logsumexp(np.asarray(logits, np.float64), axis=1)
    return found


def neighbor_scores(features: ArrayLike, source: ArrayLike) -> Array:
    """Return minus the distance to the k-th nearest of the source's features, both [., F] and made unit vectors.

    k is 50, or one in twenty of a source of fewer than 1,000 (Sun et al. 2022).
    """
    one, other = (_units(np.asarray(each, np.float64)) for each in (features, source))
    k = max(1, min(NEIGHBORS, len(other) // 20))
    squared = np.maximum(0.0, 2 - 2 * one @ other.T)
    found: Array = -np.sqrt(np.partition(squared, k - 1, axis=1)[:, k - 1])
    return found


def _units(rows: Array) -> Array:
    found: Array = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return found


def _pair(scores: ArrayLike, right: ArrayLike) -> tuple[Array, Array]:
    one, other = np.asarray(scores, np.float64), np.asarray(right, np.float64)
    if one.ndim != 1 or not len(one) or one.shape != other.shape or np.isnan(one).any():
        raise DataError(
            "Every answer needs a score and a truth value.",
            expected="as many scores as truth values, one or more",
            got=f"shapes {one.shape} and {other.shape}",
        )
    return one, other
