"""From what a model said of a labelled source and its shifted copies to a calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from shiftproof.estimators import families
from shiftproof.estimators.calibration import Calibration
from shiftproof.estimators.confidence import few
from shiftproof.estimators.evidence import Evidence
from shiftproof.estimators.mixing import Mixing
from shiftproof.estimators.neighborhoods import NeighborhoodLike
from shiftproof.estimators.references import Reference
from shiftproof.estimators.source_copies import CLEAN, Copy, mixes
from shiftproof.measures.estimation import fit_temperature
from shiftproof.shifts import Shift

CROSSED = 2
"""Of so many families, the first shift is also copied in other class mixes."""


@dataclass(frozen=True)
class CalibrationPlan:
    """What a calibration will take, once for a model: copies of so many families, and forward passes of one input."""

    copies: int
    families: int
    passes: int

    def __str__(self) -> str:
        return (
            f"calibration on {self.copies} shifted copies in {self.families} families, "
            f"{self.passes:,} forward passes of one input"
        )


def begin(
    clean: Evidence,
    labels: NDArray[np.int64],
    *,
    temperature: float | None = None,
    neighborhood: NeighborhoodLike | None = None,
    n: int = 10,
    others: Sequence[str] = (),
    classes: Sequence[str] = (),
) -> Calibration:
    """Return what the labelled source as it is teaches: a calibration without copies."""
    heat = fit_temperature(clean.logits, labels) if temperature is None else temperature
    return Calibration(
        Reference.of(clean, temperature=heat),
        (),
        neighborhood,
        n,
        tuple(others),
        Mixing.of(clean, labels),
        tuple(classes),
        few(len(clean), "source inputs"),
    )


def copies_of(
    begun: Calibration, shift: Shift | str | None, found: Evidence, *, crossed: Sequence[Shift] = (), seed: int = 0
) -> list[Copy]:
    """Return the copies that a pass over the source gives: itself, and resampled to other class mixes where wanted.

    None is the source as it is; a text is the name of a set of the user's own, which is a family.
    """
    label = shift.label if isinstance(shift, Shift) else shift or CLEAN
    family = families.family_of(shift) if isinstance(shift, Shift) else label
    made = [begun.copy_of(label, family, found)]
    if shift is None or shift in crossed:
        made += [begun.copy_of(name, families.CLASS_MIX, one) for name, one in mixes(found, label, seed)]
    return made


def finish(begun: Calibration, copies: Sequence[Copy]) -> Calibration:
    """Return the calibration with its copies."""
    return replace(begun, copies=tuple(copies))


def crossed_shifts(chosen: Sequence[Shift]) -> tuple[Shift, ...]:
    """Return the shifts that are also copied in other class mixes: the first of the first families."""
    first: dict[str, Shift] = {}
    for shift in chosen:
        first.setdefault(families.family_of(shift), shift)
    return tuple(first.values())[:CROSSED]
