"""Figures of single classes without labels (CBPE): from calibrated probabilities, under the class mix that is found."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shiftproof.estimators.mixing import Mixing
from shiftproof.estimators.results import ClassEstimate
from shiftproof.measures.expected_confusion import class_figures, expected_confusion

MIN_SUPPORT = 10.0
"""Of classes with fewer expected inputs there are no figures."""


def by_class(mixing: Mixing, logits: NDArray[np.float32], classes: Sequence[str]) -> tuple[ClassEstimate, ...]:
    """Return what to expect of each class; right only where nothing but the class mix has changed."""
    found = class_figures(expected_confusion(mixing.posteriors(logits), logits.argmax(1)))

    def figure(values: NDArray[np.float64], k: int) -> float | None:
        enough = found.support[k] >= MIN_SUPPORT and np.isfinite(values[k])
        return float(values[k]) if enough else None

    return tuple(
        ClassEstimate(
            classes[k] if k < len(classes) else str(k),
            float(found.support[k]),
            figure(found.precision, k),
            figure(found.recall, k),
            figure(found.f1, k),
        )
        for k in range(logits.shape[1])
    )
