"""Estimates from how sure a model is: average thresholded confidence, mean confidence, and what two models agree on.

All of them read outputs alone. They are as good as the model's calibration under the shift, which is often poor:
`shiftproof.estimators.calibration` tells how far off they are on shifted copies of the source.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shiftproof.errors import DataError
from shiftproof.estimators.results import DRAWS, Estimate
from shiftproof.measures.estimation import (
    Array,
    Score,
    atc_threshold,
    bootstrap_means,
    percentile_interval,
    score,
    share_at_least,
)

FEW = 50
"""Sets of fewer inputs than this say little."""

TIED = 0.02
"""ATC's threshold should leave the source error below it; it may miss it by so much."""


def atc(
    source_scores: ArrayLike,
    source_correct: ArrayLike,
    target_scores: ArrayLike,
    *,
    score: Score = "confidence",
    seed: int = 0,
) -> Estimate:
    """Estimate accuracy by average thresholded confidence (ATC-MC or ATC-NE; Garg et al. 2022).

    The threshold is set so that as many source scores fall below it as there are source errors; the estimate is the
    share of `target_scores` at or above it.

    Args:
        source_scores: Scores [N] or logits [N, K] of labelled inputs.
        source_correct: Whether each of them was predicted correctly, [N].
        target_scores: Scores or logits of unlabelled inputs.
        score: Score computed from logits: `confidence` (ATC-MC) or `entropy` (ATC-NE).
        seed: The seed of the bootstrap.

    >>> round(atc([0.9, 0.8, 0.7, 0.4], [True, True, True, False], [0.95, 0.5, 0.75]).accuracy, 3)
    0.667
    """
    source, target = _scores(source_scores, score), _scores(target_scores, score)
    correct = np.asarray(source_correct, bool)
    threshold = atc_threshold(source, correct)
    value = share_at_least(threshold, target)
    warnings = few(len(target), "inputs") + few(len(source), "source inputs") + threshold_doubts(source, correct)

    def draw(rng: np.random.Generator) -> float:
        some = rng.integers(0, len(source), len(source))
        again = rng.integers(0, len(target), len(target))
        return float((target[again] >= atc_threshold(source[some], correct[some])).mean())

    return _estimate(value, f"atc_{score}", len(target), draw, seed, warnings, {"threshold": threshold})


def threshold_doubts(source_scores: Array, source_correct: NDArray[np.bool_]) -> tuple[str, ...]:
    """Return caveats of ATC's threshold on a labelled source."""
    if source_correct.all():
        return ("The model makes no error on the source: nothing says which scores are too low.",)
    below = source_scores < atc_threshold(source_scores, source_correct)
    if abs(float(below.mean()) - float((~source_correct).mean())) > TIED:
        return ("Many source scores are equal, so that no threshold leaves the source error below it.",)
    return ()


def average_confidence(target_scores: ArrayLike, *, seed: int = 0) -> Estimate:
    """Estimate accuracy as the mean confidence, which is correct if the model is calibrated on the target.

    Args:
        target_scores: Confidences [N] or logits [N, K] of unlabelled inputs.
        seed: The seed of the bootstrap.
    """
    target = _scores(target_scores, "confidence")
    low, high = percentile_interval(bootstrap_means(target, draws=DRAWS, seed=seed))
    warnings = few(len(target), "inputs")
    return Estimate(float(target.mean()), low, high, "average_confidence", len(target), warnings=warnings)


def difference_of_confidences(
    source_scores: ArrayLike, source_correct: ArrayLike, target_scores: ArrayLike, *, seed: int = 0
) -> Estimate:
    """Estimate accuracy as source accuracy minus the drop in mean confidence (DoC; Guillory et al. 2021).

    Args:
        source_scores: Confidences [N] or logits [N, K] of labelled inputs.
        source_correct: Whether each of them was predicted correctly, [N].
        target_scores: Confidences or logits of unlabelled inputs.
        seed: The seed of the bootstrap.
    """
    source, target = _scores(source_scores, "confidence"), _scores(target_scores, "confidence")
    correct = np.asarray(source_correct, bool)
    if correct.shape != source.shape:
        raise DataError("Each source score needs a correctness flag.", got=f"{correct.shape} for {source.shape}")
    gap = correct - source
    value = float(np.clip(gap.mean() + target.mean(), 0, 1))
    warnings = few(len(target), "inputs") + few(len(source), "source inputs")

    def draw(rng: np.random.Generator) -> float:
        some = rng.integers(0, len(source), len(source))
        again = rng.integers(0, len(target), len(target))
        return float(np.clip(gap[some].mean() + target[again].mean(), 0, 1))

    return _estimate(value, "difference_of_confidences", len(target), draw, seed, warnings, {})


def agreement(logits: ArrayLike, other_logits: ArrayLike, *, seed: int = 0) -> Estimate:
    """Estimate accuracy as the agreement of two models (Jiang et al. 2022).

    The models should have the same architecture and be trained independently: with different seeds or on different
    samples of the data.

    Args:
        logits: Logits of one model, [N, K].
        other_logits: Logits of the other model on the same inputs.
        seed: The seed of the bootstrap.
    """
    one, other = np.asarray(logits), np.asarray(other_logits)
    if one.shape != other.shape or one.ndim != 2:
        raise DataError(
            "The outputs of the two models do not match.",
            expected="logits N x K of two models on the same inputs",
            got=f"shapes {one.shape} and {other.shape}",
        )
    same = (one.argmax(1) == other.argmax(1)).astype(np.float64)
    low, high = percentile_interval(bootstrap_means(same, draws=DRAWS, seed=seed))
    return Estimate(float(same.mean()), low, high, "agreement", len(same), warnings=few(len(same), "inputs"))


def few(count: int, what: str) -> tuple[str, ...]:
    """Return the warning that there are few inputs, if there are."""
    counted = f"{count} {what.removesuffix('s') if count == 1 else what}"
    return () if count >= FEW else (f"Only {counted}: fewer than {FEW} say little.",)


def _estimate(
    value: float,
    method: str,
    inputs: int,
    draw: Callable[[np.random.Generator], float],
    seed: int,
    warnings: tuple[str, ...],
    facts: dict[str, float],
) -> Estimate:
    rng = np.random.default_rng([seed, inputs])
    low, high = percentile_interval([draw(rng) for _ in range(DRAWS)])
    kept = {name: fact for name, fact in facts.items() if np.isfinite(fact)}
    return Estimate(value, min(low, value), max(high, value), method, inputs, warnings=warnings, facts=kept)


def _scores(values: ArrayLike, kind: Score) -> Array:
    """Return scores [N]; those of logits [N, K] are taken first."""
    given = np.asarray(values, np.float64)
    if given.ndim == 2:
        given = score(given, kind)
    if given.size == 0 or np.isnan(given).any():
        got = "none" if given.size == 0 else f"NaN for {int(np.isnan(given).sum())} of {len(given)}"
        raise DataError("Invalid scores.", expected="one number per input", got=got)
    return given
