"""What a model said of every image of a task, kept in its row: the class and the confidence, packed."""

from __future__ import annotations

import base64
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from shiftproof.runs import Json, Row

PREDICTED, CONFIDENCES = "predictions", "confidences"


class PackedAnswers(NamedTuple):
    """Predicted classes and confidences, each [n]; a confidence that is not known is not a number."""

    predicted: NDArray[np.int64]
    confidence: NDArray[np.float64]


def packed_answers(predicted: Tensor, confidences: Tensor) -> dict[str, Json]:
    """Return predicted classes and confidences, each [n], as two fields of a row."""
    return {
        PREDICTED: _packed(predicted.cpu().numpy().astype("<i4")),
        CONFIDENCES: _packed(confidences.cpu().numpy().astype("<f4")),
    }


def answers_of(row: Row) -> PackedAnswers | None:
    """Return what a row holds of single images; None of a run that kept only who was right."""
    if PREDICTED not in row:
        return None
    held = ((PREDICTED, "<i4"), (CONFIDENCES, "<f4"))
    predicted, confidence = (np.frombuffer(base64.b64decode(str(row[name])), kind) for name, kind in held)
    return PackedAnswers(predicted.astype(np.int64), confidence.astype(np.float64).round(6))


def _packed(values: NDArray[np.generic]) -> str:
    return base64.b64encode(values.tobytes()).decode()
