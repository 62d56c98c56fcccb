"""How hard a stream shall be: an accuracy of the source model, or a name that means as much for every model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from shiftproof.errors import ConfigurationError
from shiftproof.shifts.catalogue import names

Target: TypeAlias = float | str

SHARES: Mapping[str, float] = {"easy": 0.45, "medium": 0.22, "hard": 0.025}
"""Of the way from chance to the accuracy on clean images. ResNet-50, at 76.1% of 1,000 classes, gets the published
targets of 34, 17 and 2% (Press et al. 2023); a model at 93% of 10 classes gets 47, 28 and 12%."""


RELEASED_HARD = ("gaussian_noise", "shot_noise", "impulse_noise", "contrast")
"""The corruptions of the released generator below its medium target."""


def read_target(target: Target) -> Target:
    """Return a target as it is meant: a name, or a number, also where it came as text."""
    if target in SHARES:
        return target
    try:
        accuracy = float(target)
    except ValueError:
        accuracy = -1.0
    if not 0 < accuracy < 1:
        raise ConfigurationError(
            "The target must be an accuracy.",
            expected=f"between 0 and 1, such as 0.34, or {', '.join(SHARES)}",
            got=target if isinstance(target, str) else f"{target:g}",
        )
    return accuracy


def accuracy_at(target: Target, *, clean: float, classes: int) -> float:
    """Return the accuracy a target stands for, for a model with this accuracy on clean images of so many classes.

    >>> [round(accuracy_at(name, clean=0.761, classes=1000), 2) for name in ("easy", "medium", "hard", 0.4)]
    [0.34, 0.17, 0.02, 0.4]
    """
    target = read_target(target)
    if not isinstance(target, str):
        return target
    chance = 1 / classes
    return chance + SHARES[target] * max(0.0, clean - chance)


def released_corruptions(goal: float, *, clean: float, classes: int) -> tuple[str, ...]:
    """Return the corruptions of the released generator (Press et al. 2023) for an accuracy along the stream.

    >>> [len(released_corruptions(goal, clean=0.761, classes=1000)) for goal in (0.4, 0.2, 0.02)]
    [14, 13, 4]
    """
    easy, medium = (accuracy_at(name, clean=clean, classes=classes) for name in ("easy", "medium"))
    if goal < medium:
        return RELEASED_HARD
    weak = ("brightness",) if goal >= easy else ("brightness", "jpeg_compression")
    return tuple(name for name in names("common") if name not in weak)
