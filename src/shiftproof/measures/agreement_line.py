"""Agreement on the line: accuracies of several models without labels, from how often pairs of them agree.

Where accuracies of many models under shift lie on a line over those on the source (in probits), agreements of pairs lie
on the same line (Baek et al. 2022): its slope and offset are found without labels.
"""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shiftproof.errors import DataError
from shiftproof.measures.estimation import Array, squared_correlation

MIN_MODELS = 3
"""Of two models there is one agreement, and no line."""

RELIABLE = 0.95
"""The line is to be trusted where agreements lie on it with such a squared correlation (Baek et al. 2022)."""


class AgreementLine(NamedTuple):
    """Accuracies of models on the target by ALine-S and ALine-D, [M] each, and how well agreements lie on a line."""

    by_line: Array
    by_pairs: Array
    slope: float
    offset: float
    r2: float | None

    @property
    def reliable(self) -> bool:
        """Whether agreements lie on a line."""
        return self.r2 is not None and self.r2 > RELIABLE


def agreement_line(source: NDArray[np.int64], labels: ArrayLike, target: NDArray[np.int64]) -> AgreementLine:
    """Return the accuracies to expect of models whose predictions are [M, N] on the source and [M, T] on the target.

    ALine-S puts the models' source accuracies on the line of agreements. ALine-D solves for accuracies whose mean over
    each pair lies as far from the pair's agreement as on the source, along the slope, by least squares.
    """
    from scipy.stats import norm

    models = len(source)
    if models < MIN_MODELS or len(target) != models:
        raise DataError(
            "Agreement on the line needs several models.",
            expected=f"predictions of {MIN_MODELS} models or more, on the source and on the target",
            got=f"{models} and {len(target)}",
        )

    def probit(shares: ArrayLike, count: int) -> Array:
        held = np.clip(np.asarray(shares, np.float64), 0.5 / count, 1 - 0.5 / count)
        found: Array = norm.ppf(held)
        return found

    pairs = list(combinations(range(models), 2))
    before = probit([(source[i] == source[j]).mean() for i, j in pairs], source.shape[1])
    after = probit([(target[i] == target[j]).mean() for i, j in pairs], target.shape[1])
    slope, offset = np.polyfit(before, after, 1) if np.ptp(before) > 1e-9 else (1.0, float((after - before).mean()))
    known = probit((source == np.asarray(labels)).mean(1), source.shape[1])
    by_line: Array = norm.cdf(slope * known + offset)
    rows = np.zeros((len(pairs), models))
    for place, (i, j) in enumerate(pairs):
        rows[place, [i, j]] = 0.5
    sums = after + slope * (rows @ known - before)
    by_pairs: Array = norm.cdf(np.linalg.lstsq(rows, sums, rcond=None)[0])
    return AgreementLine(by_line, by_pairs, float(slope), float(offset), squared_correlation(before, after))
