"""Statistics: numbers that describe what a model says of a set of inputs, and move with its accuracy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from shiftproof.estimators.evidence import Evidence
from shiftproof.estimators.results import DRAWS
from shiftproof.measures.estimation import (
    Array,
    Score,
    atc_threshold,
    bootstrap_means,
    decision_negative_entropy,
    entropy,
    modal_share,
    probabilities,
    score,
)

ONE_CLASS = 0.9
"""A model that gives one answer to more than this share of the inputs has likely stopped looking at them."""


def common_class(found: Evidence) -> float:
    """Return the share of the class that is predicted most often."""
    return float(np.bincount(found.logits.argmax(1)).max() / len(found))


@dataclass(frozen=True)
class Reference:
    """What the clean source set says: its accuracy, and what statistics and doubts are measured against.

    `common_class` is the share of the class that is predicted most often.
    """

    accuracy: float
    confidence: float
    confidence_threshold: float
    entropy_threshold: float
    temperature: float = 1.0
    common_class: float = 0.0

    @classmethod
    def of(cls, source: Evidence, *, temperature: float = 1.0) -> Reference:
        """Take the reference of a labelled set, whose logits are divided by a temperature."""
        sure = {kind: score(source.logits, kind, temperature) for kind in ("confidence", "entropy")}
        return cls(
            accuracy=source.accuracy,
            confidence=float(sure["confidence"].mean()),
            confidence_threshold=atc_threshold(sure["confidence"], source.correct),
            entropy_threshold=atc_threshold(sure["entropy"], source.correct),
            temperature=temperature,
            common_class=common_class(source),
        )

    @property
    def one_class(self) -> float:
        """The share from which on one answer is given too often: 0.9, or half-way from what is common to all."""
        return max(ONE_CLASS, (1 + self.common_class) / 2)


@dataclass(frozen=True)
class Statistic:
    """A number that describes a set: `finish` of the mean of `values`, which are one row per input.

    Values come from what the model said of the set and the source's reference; there are none where it is not known.
    """

    values: Callable[[Evidence, Reference], Array]
    finish: Callable[[Array], Array] = np.asarray

    def of(self, values: Array) -> float:
        """Return the statistic of a set's values."""
        return float(self.finish(values.mean(0)))

    def bootstrap(self, values: Array, seed: int) -> Array:
        """Return the statistic of bootstrap samples of a set's values, [draws]."""
        return self.finish(bootstrap_means(values, draws=DRAWS, seed=seed))


def _above(kind: Score) -> Callable[[Evidence, Reference], Array]:
    def values(found: Evidence, source: Reference) -> Array:
        threshold = source.confidence_threshold if kind == "confidence" else source.entropy_threshold
        return (score(found.logits, kind, source.temperature) >= threshold).astype(np.float64)

    return values


STATISTICS: Mapping[str, Statistic] = {
    "confidence": Statistic(lambda found, source: score(found.logits, "confidence", source.temperature)),
    "confident": Statistic(_above("confidence")),
    "certain": Statistic(_above("entropy")),
    "balance": Statistic(lambda found, source: probabilities(found.logits, source.temperature), entropy),
    "invariance": Statistic(lambda found, _: modal_share(found.shares)),
    "decision_entropy": Statistic(lambda found, _: decision_negative_entropy(found.shares)),
    "drift": Statistic(lambda found, _: np.array([] if found.drift is None else [found.drift])),
}
"""Name -> statistic. `confident` and `certain` are the shares above ATC's thresholds, `balance` is the entropy of the
mean prediction (low when a model falls back on few classes), `drift` the distance of its normalisation statistics."""


def values_of(found: Evidence, source: Reference) -> dict[str, Array]:
    """Return the values of every statistic that is known of a set, by its name."""
    values = {name: statistic.values(found, source) for name, statistic in STATISTICS.items()}
    return {name: rows for name, rows in values.items() if len(rows)}


def summarize(values: Mapping[str, Array]) -> dict[str, float]:
    """Return the statistics of values."""
    return {name: STATISTICS[name].of(rows) for name, rows in values.items()}


def doubts(largest: float, source: Reference) -> tuple[str, ...]:
    """Return caveats of any estimate on a set whose most common answer has a share: that it is too large."""
    if largest <= source.one_class:
        return ()
    return (
        f"The model gives the same answer to {100 * largest:.0f}% of the inputs: it may have stopped looking at them, "
        "which every estimator takes for certainty.",
    )
