"""What images are certified under: as they are, under shifts, or under all sets of a published benchmark."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from shiftproof.certificates.frequencies import BANDS, band
from shiftproof.errors import ConfigurationError
from shiftproof.shifts import Corruption, Shift, as_shift, corruption, facts, families, names
from shiftproof.shifts.spectral.waves import PowerLaw, frequency_sets

SuiteName: TypeAlias = Literal["cifar-c", "imagenet-c", "cifar-f"]

SUITES: Mapping[str, str] = {
    "cifar-c": "15 corruptions at severities 1 to 5, at CIFAR's strengths (Hendrycks & Dietterich 2019)",
    "imagenet-c": "the same at ImageNet's strengths",
    "cifar-f": "192 sets of noise around a frequency (Sun et al. 2022); other sizes scale frequencies and norms",
}
SEVERITIES = (1.0, 2.0, 3.0, 4.0, 5.0)
CLEAN = "clean"
PUBLISHED_SIDE = 32
"""The side of the images that CIFAR-F was made of."""


def conditions(
    shift: Sequence[str | Shift], severities: Sequence[float] | None, suite: str | None, shape: tuple[int, int, int]
) -> list[Shift | None]:
    """Return the shifts that are named, None for clean images: those come first where a family or a suite is asked for.

    A family, such as common, and a corruption without a severity stand for each of the severities.
    """
    if suite is not None and (shift or severities is not None):
        raise ConfigurationError(
            "suite= cannot be combined with shift= or severities=.", got=f"suite={suite!r} with a shift or severities"
        )
    if suite is not None:
        return [None, *_suite(suite, shape)]
    found: list[Shift | None] = []
    for each in shift:
        if each == CLEAN:
            found.append(None)
        elif isinstance(each, str) and each in families():
            found += [None, *_at(names(each), severities)]
        elif severities is not None and isinstance(each, str) and each in _tabled():
            found += _at([each], severities)
        else:
            found.append(as_shift(each))
    unique: dict[str, Shift | None] = {label_of(each): each for each in found}
    return list(unique.values())


def _at(corruptions: Sequence[str], severities: Sequence[float] | None) -> list[Shift]:
    return [corruption(name, float(level)) for name in corruptions for level in severities or SEVERITIES]


def _tabled() -> tuple[str, ...]:
    return tuple(name for family in ("common", "holdout", "bar", "plugins") for name in names(family))


def _suite(suite: str, shape: tuple[int, int, int]) -> list[Shift]:
    if suite != "cifar-f":
        preset = suite.partition("-")[0]
        return [corruption(name, level, preset) for name in names("common") for level in SEVERITIES]
    side = math.sqrt(shape[1] * shape[2])
    grow = side / PUBLISHED_SIDE
    return [PowerLaw(each.eps * grow, each.center * grow, each.alpha) for each in frequency_sets(PUBLISHED_SIDE)]


def label_of(shift: Shift | None) -> str:
    """Return what a condition is called."""
    return CLEAN if shift is None else shift.label


def groups_of(shifts: Sequence[Shift | None], side: float) -> dict[str, tuple[str, ...]]:
    """Return which conditions are averaged together, by name of the group: by frequency, and severity or alpha."""
    found: dict[str, list[str]] = {}
    for shift in shifts:
        for group in _groups(shift, side):
            found.setdefault(group, []).append(label_of(shift))
    order: list[str] = [*BANDS, *sorted(found)]
    return {name: tuple(found[name]) for name in order if name in found}


def _groups(shift: Shift | None, side: float) -> list[str]:
    if isinstance(shift, PowerLaw):
        part = band(shift.center, side)
        return [part, f"alpha {shift.alpha:g}", f"{part}, alpha {shift.alpha:g}"]
    if isinstance(shift, Corruption):
        return [str(facts(shift.name)["frequency"]), f"severity {shift.severity:g}"]
    return []
