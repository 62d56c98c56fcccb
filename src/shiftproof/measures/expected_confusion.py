"""Expected figures of a classifier from calibrated probabilities alone: the confusion, and what is read off it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shiftproof.measures.estimation import Array


class ClassFigures(NamedTuple):
    """Expected precision, recall and F1 of classes, [K] each; NaN where the class is not expected at all."""

    support: Array
    precision: Array
    recall: Array
    f1: Array


def expected_confusion(posteriors: Array, predicted: NDArray[np.int64]) -> Array:
    """Return how many inputs of each class [column] are expected among those predicted as each [row], [K, K].

    >>> expected_confusion(np.array([[0.75, 0.25], [0.5, 0.5]]), np.array([0, 1]))
    array([[0.75, 0.25],
           [0.5 , 0.5 ]])
    """
    found: Array = np.eye(posteriors.shape[1])[predicted].T @ posteriors
    return found


def class_figures(confusion: Array) -> ClassFigures:
    """Return what an expected confusion says of each class."""
    right, answered, there = np.diag(confusion), confusion.sum(1), confusion.sum(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return ClassFigures(there, right / answered, right / there, 2 * right / (answered + there))
