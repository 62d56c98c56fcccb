"""The mathematics of randomized smoothing: from counts to bounds, from bounds to radii (Cohen et al. 2019).

A classifier smoothed with Gaussian noise of standard deviation sigma answers c at x when c is what the base classifier
says most often of x with noise. If it says c with probability p > 1/2, the smoothed answer is c everywhere within the
L2 distance `sigma * ppf(p)` of x. All that is random is how p is bounded from counts, by
`measures.intervals.lower_bound` or the evidence in this module.
"""

from __future__ import annotations

from decimal import ROUND_FLOOR, Decimal
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaln
from scipy.stats import beta, binomtest, norm

FloatArray: TypeAlias = NDArray[np.float64]

DIGITS = 6
"""Decimals of a radius that is written down."""


def radius(bound: ArrayLike, sigma: float) -> FloatArray:
    """Return the certified L2 radius for a lower bound on p; 0 (abstain) if it does not exceed one half.

    Args:
        bound: Lower bounds on the probability of the class.
        sigma: Standard deviation of the noise.

    >>> radius([0.4, 0.5, 0.8413447460685429, 0.9772498680518208], sigma=0.25).round(6).tolist()
    [0.0, 0.0, 0.25, 0.5]
    """
    bound = np.asarray(bound, float)
    return np.where(bound > 0.5, sigma * norm.ppf(np.maximum(bound, 0.5)), 0.0)


def probability(distance: ArrayLike, sigma: float) -> FloatArray:
    """Return the p that a radius of `distance` needs: the inverse of `radius`."""
    return np.asarray(norm.cdf(np.asarray(distance, float) / sigma))


def log_evidence(hits: ArrayLike, n: ArrayLike, p: float) -> FloatArray:
    """Return the logarithm of the evidence, in hits out of n so far, that the probability exceeds p.

    It is the likelihood of the hits under a Krichevsky-Trofimov mixture, Beta(1/2, 1/2), restricted to (p, 1], over
    that under p. Where the probability is p or less, this ratio is a supermartingale that starts at 1, so by Ville's
    inequality it ever exceeds 1 / alpha with probability at most alpha, however often one looks.
    """
    hits, misses = np.asarray(hits, float), np.asarray(n, float) - np.asarray(hits, float)
    a, b = hits + 0.5, misses + 0.5
    with np.errstate(divide="ignore"):  # where next to nothing of the mixture is above p, the evidence is none
        mixed = betaln(a, b) + np.log(beta.sf(p, a, b)) - betaln(0.5, 0.5) - np.log(beta.sf(p, 0.5, 0.5))
    return np.asarray(mixed - hits * np.log(p) - misses * np.log1p(-p))


def is_majority(first: int, second: int, alpha: float) -> bool:
    """Whether the class counted `first` times is the likelier of two: wrong with probability at most alpha.

    The two-sided binomial test of `predict` (Cohen et al. 2019, after Hung & Fithian): the classes are the two counted
    most often, whichever they are.
    """
    return first + second > 0 and bool(binomtest(first, first + second, 0.5).pvalue <= alpha)


def round_down(value: float, digits: int = DIGITS) -> float:
    """Return a radius with so many decimals, never more than it is; one that has no more of them stays what it is.

    >>> round_down(0.9999999), round_down(0.3)
    (0.999999, 0.3)
    """
    # Of the shortest text that reads as the number: its floor cannot read as a larger one, since reading is monotone.
    return float(Decimal(repr(float(value))).quantize(Decimal(1).scaleb(-digits), ROUND_FLOOR))
