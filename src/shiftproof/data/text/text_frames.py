"""Tables of texts that are no text files: DataFrames, Arrow tables and Parquet files, Hugging Face data sets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from shiftproof.data.columns import find_columns
from shiftproof.data.images.frames import (
    Columns,
    class_names,
    column_values,
    columns_of,
    is_frame,
    parquet_columns,
    read_parquet,
)
from shiftproof.data.images.huggingface import choose_split, is_huggingface, is_saved, read_saved
from shiftproof.data.text.table_files import Rows
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.runs.files import expand, is_file

UNLABELLED = -1
"""What Hugging Face sets have for labels that are kept back."""
MISSING = ("NAType", "NaTType")
"""The types of what pandas has where a cell is empty."""


class Frame(NamedTuple):
    """A table: its name, the names of its columns, what reads it, and what kinds of features a Hugging Face set has."""

    name: str
    columns: list[str]
    read: Callable[[], Columns | Iterable[Mapping[str, object]]]
    kinds: tuple[str, ...] = ()

    def holds_images(self) -> bool:
        """Whether a column is one of images, by its kind or by its name."""
        return "Image" in self.kinds or find_columns(self.columns)[0] is not None

    def rows(self, columns: Sequence[str]) -> tuple[Rows, Mapping[str, Sequence[str]]]:
        """Return the rows of some columns, and the names of the classes whose numbers a column holds.

        A number that has a name is that name in the rows.
        """
        held = self.read()
        if isinstance(held, Columns):
            values = {name: column_values(held, name) for name in columns}
        else:  # it comes row by row
            taken = list(held)
            values = {name: [row[name] for row in taken] for name in columns}
        names = {column: found for column in columns if (found := _names(held, column))}
        told = {column: [_cell(value, names.get(column)) for value in some] for column, some in values.items()}
        rows = zip(*told.values(), strict=True)
        return Rows(
            self.columns, [(f"row {n}", dict(zip(told, row, strict=True))) for n, row in enumerate(rows)]
        ), names


def open_frame(source: Any, split: str | None = None) -> Frame | None:
    """Return the table that a source stands for; None where it is none, or what reads it is not installed."""
    name = "dataset" if is_huggingface(source) else "table"
    if isinstance(source, str | Path):
        path = expand(source)
        try:
            if path.suffix.lower() == ".parquet" and is_file(path):
                return Frame(path.stem, parquet_columns(path), lambda: read_parquet(path))
            if not (path.is_dir() and is_saved(path)):
                return None
            source, name = read_saved(path), path.resolve().name
        except (DataError, OSError):  # told where it is read for images
            return None
    if is_frame(source):
        return Frame(name, columns_of(source), lambda: source)
    if not is_huggingface(source):
        return None
    if isinstance(source, Mapping):
        source, name = choose_split(source, split), f"{name} {split or next(iter(source))}"
    elif split is not None:
        raise ConfigurationError("split= cannot be used with a data set without splits.", fix="leave split out")
    features = source.features or {}
    kinds = tuple(type(kind).__name__ for kind in features.values())
    return Frame(name, list(features or next(iter(source), ())), lambda: source, kinds)


def _names(held: Any, column: str) -> Sequence[str] | None:
    if not is_huggingface(held):
        return class_names(held, column)
    names: Sequence[str] | None = getattr((held.features or {}).get(column), "names", None)
    return names


def _cell(value: object, names: Sequence[str] | None) -> object:
    """Return a text, a number, or None where there is nothing; a number that has a name is that name."""
    empty = value is None or type(value).__name__ in MISSING or (isinstance(value, float) and math.isnan(value))
    if empty or (names is not None and value == UNLABELLED):
        return None
    if isinstance(value, bool):
        return int(value)
    return names[value] if names is not None and isinstance(value, int) and 0 <= value < len(names) else value
