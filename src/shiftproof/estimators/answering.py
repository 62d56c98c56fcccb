"""Every method's answer for a set, from what a model said of it and a calibration: no model is needed for that."""

from __future__ import annotations

from dataclasses import replace

from shiftproof.estimators.calibration import Calibration
from shiftproof.estimators.catalogue import needs
from shiftproof.estimators.evidence import Evidence
from shiftproof.estimators.invariance import destroyed
from shiftproof.estimators.mixing import ClassMix
from shiftproof.estimators.per_class import by_class
from shiftproof.estimators.references import common_class, doubts
from shiftproof.estimators.results import LEVEL, Estimate


def answers_of(
    calibration: Calibration, found: Evidence, *, level: float = LEVEL, seed: int = 0
) -> dict[str, Estimate]:
    """Return the answers by method, `auto` first, with caveats and what is said of the class mix."""
    mix = None if calibration.mixing is None else calibration.mixing.find(found)
    values = calibration.values(found, mix)
    place = calibration.familiar(calibration.profile(found))
    caveats = calibration.doubts + doubts(common_class(found), calibration.source)
    able = [name for name in calibration.methods() if set(needs(name)) <= set(values)]
    answers = {}
    for name in (*(["auto"] if able else []), *able):
        made = calibration.estimate(name, values, inputs=len(found), seed=seed, level=level, place=place)
        own = caveats
        if made.method.startswith("invariance"):
            own += destroyed(found.entropy_difference, str(calibration.neighborhood))
        answers[name] = replace(made, warnings=made.warnings + own, notes=_notes(mix, calibration))
    if "auto" in answers and mix is not None and mix.alone and calibration.mixing is not None:
        told = by_class(calibration.mixing, found.logits, calibration.classes)
        answers["auto"] = replace(answers["auto"], by_class=told)
    return answers


def _notes(mix: ClassMix | None, calibration: Calibration) -> tuple[str, ...]:
    said = "" if mix is None else mix.told(calibration.classes)
    return (said,) if said else ()
