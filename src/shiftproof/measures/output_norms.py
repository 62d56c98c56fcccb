"""Norms of outputs that move with accuracy: the nuclear norm (Deng et al. 2023) and MaNo (Xie et al. 2024)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from shiftproof.measures.estimation import Array, probabilities

POWER = 4
CRITERION = 5.0
"""MaNo's power, and the cross-entropy to uniform targets up to which it takes the softmax for too sure of itself."""


def nuclear_norm(p: Array) -> float:
    """Return the sum of the singular values of probabilities [N, K] over its largest possible value, in (0, 1].

    It is large where predictions are both sure and spread over the classes.

    >>> nuclear_norm(np.eye(4))
    1.0
    """
    count, classes = p.shape
    products = p @ p.T if count < classes else p.T @ p  # whose eigenvalues are squares, many times as fast to find
    singular = np.sqrt(np.maximum(np.linalg.eigvalsh(products), 0.0))
    return float(singular.sum() / np.sqrt(count * min(count, classes)))


def mano_rows(logits: ArrayLike, temperature: float = 1.0) -> Array:
    """Return the mean fourth power of normalised logits of each input, [N]: MaNo is the fourth root of their mean.

    Logits are normalised by the softmax, or by a Taylor expansion of it where outputs are so close to uniform that the
    softmax would drown them in errors of calibration.
    """
    values = np.asarray(logits, np.float64) / temperature
    p = probabilities(values)
    uniform = float(-np.log(np.maximum(p, 1e-300)).mean())
    if uniform <= CRITERION:
        raised = 1 + values + values**2 / 2
        raised = raised - raised.min(1, keepdims=True)
        p = raised / np.maximum(raised.sum(1, keepdims=True), 1e-300)
    found: Array = (np.abs(p) ** POWER).mean(1)
    return found
