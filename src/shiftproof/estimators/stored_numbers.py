"""Numbers of a stored calibration, read with care: a damaged file is refused before anything is computed with it."""

from __future__ import annotations

import math
from collections.abc import Mapping

LARGEST = 1e9
"""No number of a calibration is larger."""


def number(value: object, low: float = -LARGEST, high: float = LARGEST) -> float:
    """Return a number within limits."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise ValueError(f"a number from {low:g} to {high:g} was expected, not {value!r:.40}")
    return float(value)


def count(value: object, low: int = 0) -> int:
    """Return a whole number."""
    found = number(value, low)
    if found != int(found):
        raise ValueError(f"a whole number was expected, not {value!r}")
    return int(found)


def share(value: object) -> float:
    """Return a number from 0 to 1."""
    return number(value, 0.0, 1.0)


def vector(
    values: object, length: int | None = None, low: float = -LARGEST, high: float = LARGEST
) -> tuple[float, ...]:
    """Return numbers, so many of them."""
    if not isinstance(values, list | tuple) or (length is not None and len(values) != length):
        raise ValueError(f"{'numbers' if length is None else f'{length} numbers'} were expected, not {values!r:.40}")
    return tuple(number(value, low, high) for value in values)


def matrix(rows: object, length: int) -> tuple[tuple[float, ...], ...]:
    """Return rows of so many numbers each."""
    if not isinstance(rows, list | tuple):
        raise ValueError(f"rows of numbers were expected, not {rows!r:.40}")
    return tuple(vector(row, length) for row in rows)


def mix(values: object, length: int) -> tuple[float, ...]:
    """Return shares of classes: none negative, together 1."""
    found = vector(values, length, 0.0, 1.0)
    if not math.isclose(sum(found), 1.0, abs_tol=1e-6):
        raise ValueError(f"shares that sum to 1 were expected, not to {sum(found):g}")
    return found


def named(values: object) -> dict[str, float]:
    """Return numbers by name."""
    if not isinstance(values, Mapping):
        raise ValueError(f"numbers by name were expected, not {values!r:.40}")
    return {str(name): number(value) for name, value in values.items()}


def texts(values: object) -> tuple[str, ...]:
    """Return texts."""
    if not isinstance(values, list | tuple) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"texts were expected, not {values!r:.40}")
    return tuple(values)


def text(value: object) -> str:
    """Return a text."""
    (found,) = texts([value])
    return found
