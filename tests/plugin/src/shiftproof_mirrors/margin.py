"""A method of label-free estimation: a line over the mean margin between the two likeliest classes."""

from __future__ import annotations

import numpy as np

from shiftproof.estimators import EstimationMethod
from shiftproof.estimators.evidence import Evidence
from shiftproof.estimators.references import Reference, Statistic
from shiftproof.measures.estimation import Array, probabilities


def _margins(found: Evidence, source: Reference) -> Array:
    ranked = np.sort(probabilities(found.logits, source.temperature), axis=1)
    return np.asarray(ranked[:, -1] - ranked[:, -2])


MARGIN = EstimationMethod("a line over the mean margin of the two likeliest classes", statistic=Statistic(_margins))
