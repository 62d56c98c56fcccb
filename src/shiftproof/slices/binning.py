"""Columns about images as bins: fifths of what is a number, values of what is not; what is missing is a bin too."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shiftproof.errors import DataError
from shiftproof.slices.image_results import Column
from shiftproof.slices.image_statistics import EXTREMES

FIFTHS = 5
MISSING = "missing"
_PLACES = ("lowest", "second lowest", "middle", "second highest", "highest")
_EMPTY = ("", "nan", "none", "null", "n/a")


@dataclass(frozen=True)
class Attribute:
    """A column of a table of images, divided into bins.

    Args:
        name: The column.
        words: Description of each bin.
        bins: Index of each image's bin in `words`, [N].
    """

    name: str
    words: tuple[str, ...]
    bins: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.bins)


def attributes_of_classes(labels: ArrayLike, classes: Sequence[str], images: int) -> list[Attribute]:
    """Return the classes of images as an attribute, and nothing where all are of one class."""
    numbers = np.asarray(labels, np.int64)
    _check_length("labels", len(numbers), images)
    count = max(len(classes), int(numbers.max(initial=-1)) + 1)
    words = [f"class {classes[number] if number < len(classes) else number}" for number in range(count)]
    return [Attribute("class", tuple(words), numbers)] if len(np.unique(numbers)) > 1 else []


def attributes(columns: Mapping[str, Column], images: int) -> list[Attribute]:
    """Return columns as binned attributes; columns with a single value are left out.

    Args:
        columns: One value per image, by the name of the column.
        images: Number of images.

    >>> [each.words for each in attributes({"camera": ["a", "b", "a"], "site": ["x", "x", "x"]}, 3)]
    [('camera a', 'camera b')]
    """
    made = []
    for name, values in columns.items():
        found = list(np.asarray(values, dtype=object).tolist())
        _check_length(name, len(found), images)
        attribute = attribute_of(name, found)
        if len(np.unique(attribute.bins)) > 1:
            made.append(attribute)
    return made


def attribute_of(name: str, values: Sequence[object]) -> Attribute:
    """Return one column as an attribute: of numbers with more values than fifths by fifths, of others by value."""
    numbers = [_number(value) for value in values]
    present = [number for number, value in zip(numbers, values, strict=True) if not _is_missing(value)]
    if present and None not in present and len(set(present)) > FIFTHS:
        return _by_fifths(name, np.array([math.nan if number is None else number for number in numbers]))
    texts = [MISSING if _is_missing(value) else _text(value) for value in values]
    words = sorted(Counter(texts))
    place = {word: number for number, word in enumerate(words)}
    return Attribute(name, tuple(f"{name} {word}" for word in words), np.array([place[text] for text in texts]))


def _by_fifths(name: str, values: NDArray[np.float64]) -> Attribute:
    """Return bins with a fifth of the values each, or more where values are tied."""
    known = ~np.isnan(values)
    edges = np.unique(np.quantile(values[known], np.arange(1, FIFTHS) / FIFTHS))
    edges = edges[edges < values[known].max()]  # all values of the last bin are equal: they belong to the one before
    bins = np.searchsorted(edges, values, side="left")
    bins[~known] = len(edges) + 1
    words = [_fifth(name, number, edges) for number in range(len(edges) + 1)]
    return Attribute(name, (*words, f"{name} {MISSING}"), bins)


def _fifth(name: str, number: int, edges: NDArray[np.float64]) -> str:
    """Name a bin of numbers: dark, for the lowest brightness; else by its place, with its edges."""
    last = len(edges)
    if name in EXTREMES and number in (0, last):
        word = EXTREMES[name][number == last]
        return f"{word} ({name} {_edge(edges, number)})"
    place = _PLACES[number] if last == FIFTHS - 1 else {0: _PLACES[0], last: _PLACES[-1]}.get(number, "middle")
    return f"{place} {name} ({_edge(edges, number)})"


def _edge(edges: NDArray[np.float64], number: int) -> str:
    if number == 0:
        return f"up to {edges[0]:.3g}"
    if number == len(edges):
        return f"above {edges[-1]:.3g}"
    return f"{edges[number - 1]:.3g} to {edges[number]:.3g}"


def _check_length(name: str, found: int, images: int) -> None:
    if found != images:
        raise DataError(
            f"The column {name!r} has the wrong length.",
            expected=f"{images} values, one per image",
            got=f"{found} values",
        )


def _number(value: object) -> float | None:
    """Return a value as a number; None for what is none."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        found = float(str(value))
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def _is_missing(value: object) -> bool:
    return value is None or str(value).strip().lower() in _EMPTY


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).strip()
