"""Label shift as numbers: the class mix of unlabelled inputs, and what follows from it for accuracy.

Under label shift the classes come in other shares while each class looks as it did. P [N, K] are calibrated
probabilities of target inputs, `mix` [K] the shares of the classes in the source, as the mean of its own calibrated
probabilities: then data that did not shift give the mix back exactly.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shiftproof.errors import DataError
from shiftproof.measures.estimation import Array

ABSENT = 1e-9
"""The weight of a class, as a share of the largest, at which the mix has none of it."""
MAX_WEIGHT = 10.0
"""Inputs of rare classes are weighed at most so many times when a set is brought to the mix of the source."""


class Scaling(NamedTuple):
    """Bias-corrected temperature scaling: probabilities are softmax(logits / temperature + biases)."""

    temperature: float
    biases: Array

    def __call__(self, logits: ArrayLike) -> Array:
        """Return calibrated probabilities, [N, K]."""
        found: Array = np.asarray(logits, np.float64) / self.temperature
        found += self.biases
        found -= found.max(1, keepdims=True)
        np.exp(found, out=found)
        found /= found.sum(1, keepdims=True)
        return found


def fit_scaling(logits: ArrayLike, labels: ArrayLike, *, pull: float = 1.0) -> Scaling:
    """Return the scaling that makes labelled logits likeliest (Alexandari et al. 2020, BCTS).

    `pull` is the strength of a prior on the biases, in inputs: few inputs of a class must not make a large bias. Where
    no answer is wrong, the temperature is 1 at least: nothing says how sure is too sure.
    """
    from scipy.optimize import minimize
    from scipy.special import log_softmax

    values, rows = np.asarray(logits, np.float64), np.asarray(labels, np.int64)
    truth = np.eye(values.shape[1])[rows]

    def surprise(at: Array) -> tuple[float, Array]:
        heat, biases = np.exp(-at[0]), at[1:]
        log = log_softmax(values * heat + biases, axis=1)
        gap = (np.exp(log) - truth) / len(rows)
        loss = -float((log * truth).sum()) / len(rows) + pull * float(biases @ biases) / len(rows)
        slope = np.concatenate([[-heat * float((gap * values).sum())], gap.sum(0) + 2 * pull * biases / len(rows)])
        return loss, slope

    coldest = np.log(0.05) if (values.argmax(1) != rows).any() else 0.0
    limits = [(coldest, np.log(20.0)), *[(-5.0, 5.0)] * values.shape[1]]
    found = minimize(surprise, np.zeros(values.shape[1] + 1), jac=True, method="L-BFGS-B", bounds=limits).x
    return Scaling(float(np.exp(found[0])), found[1:] - found[1:].mean())


def em_mix(p: Array, mix: Array, *, steps: int = 100, tolerance: float = 1e-6) -> Array:
    """Return the likeliest class mix of a target, [K] (Saerens et al. 2002).

    >>> em_mix(np.array([[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.9, 0.1]]), np.array([0.5, 0.5])).round(2)
    array([0.81, 0.19])
    """
    _check(p, mix)
    found = mix.copy()
    for _ in range(steps):
        before, found = found, _adjusted_mean(p, mix, found)
        if float(np.abs(found - before).max()) < tolerance:
            break
    return found


def _adjusted_mean(p: Array, mix: Array, target: Array) -> Array:
    """Return the mean over inputs of `adjusted`, [K], without making it: two products with a vector."""
    weights = np.divide(target, mix, out=np.zeros_like(target), where=mix > 0)
    total = p @ weights
    known = total > 0
    made: Array = weights * (np.divide(1.0, total, out=np.zeros_like(total), where=known) @ p)
    return (made + p[~known].sum(0) if not known.all() else made) / len(p)


def adjusted(p: Array, mix: Array, target: Array) -> Array:
    """Return the probabilities of inputs whose classes come in the shares `target`, [N, K]."""
    weights = np.divide(target, mix, out=np.zeros_like(target), where=mix > 0)
    raised = p * weights
    total = raised.sum(1, keepdims=True)
    made: Array = np.divide(raised, total, out=p.copy(), where=total > 0)
    return made


def to_source_mix(posteriors: Array, mix: Array, target: Array) -> Array:
    """Return weights of inputs, [N] with mean 1, under which they come in the source's mix; at most 10 each."""
    ratio = np.divide(mix, target, out=np.full_like(mix, MAX_WEIGHT), where=MAX_WEIGHT * target > mix)
    weights = np.minimum(posteriors @ ratio, MAX_WEIGHT)
    made: Array = weights / weights.mean()
    return made


def effective(weights: ArrayLike) -> float:
    """Return how many inputs of equal weight say as much: (sum w)^2 / sum w^2."""
    held = np.asarray(weights, np.float64)
    held = held / held.max()  # squares of tiny weights would vanish
    return float(held.sum() ** 2 / (held**2).sum())


class MixByConfusion(NamedTuple):
    """A class mix and the least singular value of the confusion it was solved with; near 0 it says nothing."""

    mix: Array
    least_singular: float


def bbse_mix(source: Array, labels: ArrayLike, target: Array) -> MixByConfusion:
    """Return the class mix of target probabilities by the soft confusion of the source (Lipton et al. 2018, BBSE).

    Solves A q = mean target probability by least squares over q >= 0, where column k of A is the mean probability on
    source inputs of class k. A class without a source input gets none of the target.
    """
    from scipy.optimize import nnls

    rows = np.asarray(labels, np.int64)
    classes = np.unique(rows)
    confusion = np.stack([source[rows == k].mean(0) for k in classes], 1)
    solved = nnls(confusion, target.mean(0))[0]
    mix = np.zeros(source.shape[1])
    mix[classes] = solved / solved.sum()
    return MixByConfusion(mix, float(np.linalg.svd(confusion, compute_uv=False)[-1]))


def weighted_ks(source: ArrayLike, weights: ArrayLike, target: ArrayLike) -> float:
    """Return the p-value that target scores are drawn like source scores [N] with weights [N].

    Kolmogorov and Smirnov's two-sample test, in which the source counts as many inputs as its weights are worth.
    """
    from scipy.stats import kstwobign

    one, other = np.asarray(source, np.float64), np.sort(np.asarray(target, np.float64))
    held = np.asarray(weights, np.float64)
    order = one.argsort(kind="stable")
    one, share = one[order], np.concatenate([[0.0], held[order].cumsum() / held.sum()])
    places = np.concatenate([one, other])
    gap = 0.0
    for side in ("left", "right"):
        below = share[np.searchsorted(one, places, side)] - np.searchsorted(other, places, side) / len(other)
        gap = max(gap, float(np.abs(below).max()))
    count = effective(held)
    return float(kstwobign.sf(gap * np.sqrt(count * len(other) / (count + len(other)))))


def output_scores(logits: ArrayLike, scaling: Scaling) -> Array:
    """Return how sure a model is in three ways, [N, 3]: largest probability, log-sum-exp of the logits, and margin."""
    p, values = scaling(logits), np.asarray(logits, np.float64) / scaling.temperature
    largest, margin = p.max(1), p.max(1)
    p[np.arange(len(p)), p.argmax(1)] = -1.0
    margin -= p.max(1)
    top = values.max(1)
    values -= top[:, None]
    found: Array = np.stack([largest, top + np.log(np.exp(values, out=values).sum(1)), margin], 1)
    return found


def mix_explains(scores: Array, labels: NDArray[np.int64], weights: Array, target: Array) -> float:
    """Return the p-value that another class mix is all that changed: sources scores [N, S] weighed by their class.

    The least of Kolmogorov-Smirnov's over the scores, times their number (Bonferroni), at most 1. 0 where no source
    input is of a class that the mix has, rounding aside: nothing of the source can stand for the target.
    """
    each = np.where(weights > ABSENT * weights.max(), weights, 0.0)[labels]
    if not each.any():
        return 0.0
    found = [weighted_ks(scores[:, k], each, target[:, k]) for k in range(scores.shape[1])]
    return min(1.0, len(found) * min(found))


def _check(p: Array, mix: Array) -> None:
    if p.ndim != 2 or p.shape[1:] != mix.shape or not len(p):
        raise DataError(
            "Probabilities and class mix do not fit.",
            expected="probabilities N x K of one input or more, and K shares",
            got=f"shapes {p.shape} and {mix.shape}",
        )
