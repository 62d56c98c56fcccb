"""Several models at once: what to expect of each on unlabelled inputs, from how often they agree."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from shiftproof.estimators.confidence import few
from shiftproof.estimators.results import Estimate
from shiftproof.measures.agreement_line import RELIABLE, agreement_line


def agreement_on_the_line(
    source: Mapping[str, ArrayLike], labels: ArrayLike, target: Mapping[str, ArrayLike]
) -> dict[str, Estimate]:
    """Estimate the accuracy of three or more models by agreement-on-the-line (ALine-D; Baek et al. 2022).

    All models must be evaluated on the same inputs. The interval spans ALine-D and ALine-S; a warning says if the
    agreements do not lie on a line. Models should differ by more than the last steps of one training run.

    Args:
        source: Logits [N, K] on labelled inputs, by model.
        labels: Their classes, [N].
        target: Logits on unlabelled inputs, by model.

    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(0, 3, 400)
    >>> logits = {f"m{k}": np.eye(3)[labels] * k + rng.normal(size=(400, 3)) for k in (1, 2, 3, 4)}
    >>> found = agreement_on_the_line(logits, labels, logits)
    >>> round(found["m1"].accuracy, 1), round(found["m4"].accuracy, 1)
    (0.7, 1.0)
    """
    names = list(source)
    before, after = (np.stack([np.asarray(held[name]).argmax(1) for name in names]) for held in (source, target))
    found = agreement_line(before, labels, after)
    warnings = few(after.shape[1], "inputs")
    if not found.reliable:
        said = "do not vary" if found.r2 is None else f"have a squared correlation of {found.r2:.2f}"
        warnings += (f"Agreements of the models on source and target {said}, not above {RELIABLE}: there is no line.",)
    return {
        name: Estimate(
            float(value),
            float(min(value, other)),
            float(max(value, other)),
            "agreement_on_the_line",
            after.shape[1],
            warnings=warnings,
            facts={"slope": found.slope, "offset": found.offset},
        )
        for name, value, other in zip(names, found.by_pairs, found.by_line, strict=True)
    }
