"""How sections write names and numbers."""

from __future__ import annotations

from shiftproof.measures import Accuracy


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
