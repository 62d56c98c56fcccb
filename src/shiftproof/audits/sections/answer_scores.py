"""What is kept of every single answer of a set: whether it was right, and how sure and how strange it looked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray

from shiftproof.estimators.evidence import Evidence
from shiftproof.measures.estimation import Array, confidence, fit_temperature, probabilities
from shiftproof.measures.self_knowledge import conformal_threshold, energy, neighbor_scores
from shiftproof.models.outputs import are_probabilities

LEVEL = 0.95
"""How often prediction sets hold the true class on inputs like the labelled ones."""

LEAST = 1e-12


@dataclass(frozen=True, eq=False)
class LabelledHalf:
    """What answers of the other half are compared with.

    The labelled half's `features` (its logits where there are none), the `temperature` that suits it, and the
    `threshold`: the least probability of a class in a prediction set.
    """

    features: Array
    temperature: float
    threshold: float

    @classmethod
    def of(cls, found: Evidence) -> LabelledHalf:
        """Learn from the labelled half."""
        assert found.labels is not None  # it is the labelled half
        logits = _logits(found)
        true = probabilities(logits)[np.arange(len(logits)), found.labels]
        return cls(_features(found), fit_temperature(logits, found.labels), conformal_threshold(true, LEVEL))


@dataclass(frozen=True, eq=False)
class AnswerScores:
    """Scores of the answers of a set, [N] each, all but the size higher where the model is surer.

    `confidence`, the same after temperature scaling on the labelled half (`scaled`), the negative `energy`, minus the
    distance to the k-th nearest of the labelled half (`neighbors`), and of the prediction set whether it `holds` the
    true class, and its `size`. Where nothing is right, as of foreign inputs, `right` and `holds` are 0.
    """

    right: Array
    confidence: Array
    scaled: Array
    energy: Array
    neighbors: Array
    holds: Array
    size: Array

    @classmethod
    def of(cls, found: Evidence, half: LabelledHalf, *, foreign: bool = False) -> AnswerScores:
        """Take the scores of a set from what the model said of it."""
        logits = _logits(found)
        p = probabilities(logits)
        labels = None if foreign else found.labels
        within = p >= half.threshold
        within[np.arange(len(p)), p.argmax(1)] = True  # a set is never empty: it holds the answer at least
        nothing = np.zeros(len(p))
        return cls(
            right=nothing if labels is None else found.correct.astype(np.float64),
            confidence=p.max(1),
            scaled=confidence(logits, half.temperature),
            energy=energy(logits),
            neighbors=neighbor_scores(_features(found), half.features),
            holds=nothing if labels is None else within[np.arange(len(p)), labels].astype(np.float64),
            size=within.sum(1).astype(np.float64),
        )

    @classmethod
    def joined(cls, parts: Sequence[AnswerScores]) -> AnswerScores:
        """Return the answers of several sets as one."""
        return cls(*(np.concatenate([getattr(part, each.name) for part in parts]) for each in fields(cls)))

    def __len__(self) -> int:
        return len(self.right)

    def to_row(self) -> dict[str, str]:
        """Return the scores as texts: float32 numbers as hexadecimal digits."""
        return {each.name: getattr(self, each.name).astype("<f4").tobytes().hex() for each in fields(self)}

    @classmethod
    def from_row(cls, row: Mapping[str, str]) -> AnswerScores:
        """Return the scores that `to_row` wrote."""
        return cls(*(np.frombuffer(bytes.fromhex(row[each.name]), "<f4").astype(np.float64) for each in fields(cls)))


def _logits(found: Evidence) -> NDArray[np.float64]:
    """Return logits, or logarithms where the model gives probabilities."""
    held = np.asarray(found.logits, np.float64)
    return np.log(np.maximum(held, LEAST)) if are_probabilities(torch.from_numpy(found.logits)) else held


def _features(found: Evidence) -> Array:
    return np.asarray(found.logits if found.features is None else found.features, np.float64)
