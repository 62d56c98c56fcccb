"""How sections write names and numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from shiftproof.measures import Accuracy
from shiftproof.measures.intervals import MIN_IMAGES, TOO_FEW, Interval
from shiftproof.measures.overlap import Overlap


def title(name: str) -> str:
    """Write a shift's name as words."""
    return name.replace("_", " ").replace("jpeg", "JPEG")


def percent(value: float) -> str:
    """Write a share in percent with one decimal."""
    return f"{100 * value:.1f}%"


def interval(value: Accuracy | Overlap, among: float = 1) -> str:
    """Write the 95% interval of an accuracy or of a mIoU, which is the lowest or highest of so many."""
    return between(value.interval(among=among) if value.images >= MIN_IMAGES else None)


def between(value: Interval | None, unit: str = "%", sign: str = "") -> str:
    """Write the interval of a mean of fractions, in percent or in points, its ends rounded away from each other."""
    if value is None:
        return TOO_FEW
    low, high = math.floor(1000 * value.low + 1e-6) / 10, math.ceil(1000 * value.high - 1e-6) / 10
    return f"{low + 0.0:{sign}.1f} to {high + 0.0:{sign}.1f}{unit}"


def listed(names: Sequence[str]) -> str:
    """Write names one after another: fog, snow and frost."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def labelled(label: str) -> str:
    """Write the text form of a shift as words: `defocus_blur@3` is defocus blur 3."""
    return title(label).replace("@", " ")


def graded(label: str) -> str:
    """Write the text form of a shift for a sentence: `defocus_blur@3` is defocus blur at severity 3."""
    return title(label).replace("@", " at severity ")
