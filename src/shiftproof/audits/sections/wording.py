"""How sections write names and numbers."""

from __future__ import annotations

from collections.abc import Sequence

from shiftproof.measures import Accuracy
from shiftproof.measures.means import Mean


def title(name: str) -> str:
    """Write a shift's name as words."""
    return name.replace("_", " ").replace("jpeg", "JPEG")


def percent(value: float) -> str:
    """Write a share in percent with one decimal."""
    return f"{100 * value:.1f}%"


def interval(value: Accuracy) -> str:
    """Write the 95% interval of an accuracy."""
    low, high = value.interval()
    return f"{100 * low:.1f} to {100 * high:.1f}%"


def between(value: Mean, unit: str = "%") -> str:
    """Write the interval of a mean of fractions, in percent or in points."""
    return f"{100 * value.low:.1f} to {100 * value.high:.1f}{unit}"


def listed(names: Sequence[str]) -> str:
    """Write names one after another: fog, snow and frost."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def labelled(label: str) -> str:
    """Write the text form of a shift as words: `defocus_blur@3` is defocus blur 3."""
    return title(label).replace("@", " ")
