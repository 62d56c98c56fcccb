"""Tables of texts that are no text files: DataFrames, Arrow tables and Parquet files, Hugging Face data sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from shiftproof.data.columns import find_columns
from shiftproof.data.images.frames import (
    Columns,
    class_names,
    column_values,
    columns_of,
    first_in_parquet,
    is_frame,
    parquet_columns,
    read_parquet,
)
from shiftproof.data.images.huggingface import as_stored, choose_split, is_huggingface, is_saved, read_saved
from shiftproof.data.images.pictures import is_picture
from shiftproof.data.labels import UNLABELLED, is_missing
from shiftproof.data.text.table_files import Rows
from shiftproof.errors import ConfigurationError
from shiftproof.runs.files import expand, is_file


class Frame(NamedTuple):
    """A table: its name, the names of its columns, what reads it, and the kinds of those of a Hugging Face set.

    `first` gives the first value of a column, None where there is no row.
    """

    name: str
    columns: list[str]
    read: Callable[[], Columns | Iterable[Mapping[str, object]]]
    first: Callable[[str], object]
    kinds: Mapping[str, str] = {}

    def holds_images(self) -> bool:
        """Whether a column is one of images, by its kind, or by its name and what it holds first."""
        column = find_columns(self.columns)[0]
        return "Image" in self.kinds.values() or (column is not None and is_picture(self.first(column)))

    def class_column(self) -> str | None:
        """Return the first column of Hugging Face's class labels, whatever it is called."""
        return next((column for column, kind in self.kinds.items() if kind == "ClassLabel"), None)

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
    """Return the table that a source stands for; None where it is none."""
    name = "dataset" if is_huggingface(source) else "table"
    if isinstance(source, str | Path):
        path = expand(source)
        if path.suffix.lower() == ".parquet" and is_file(path):
            _refuse_split(split, "a Parquet file")
            return Frame(path.stem, parquet_columns(path), lambda: read_parquet(path), partial(first_in_parquet, path))
        if not (path.is_dir() and is_saved(path)):
            return None
        source, name = read_saved(path), path.resolve().name
    if is_frame(source):
        _refuse_split(split, "a table")
        return Frame(name, columns_of(source), lambda: source, partial(_first, source))
    if not is_huggingface(source):
        return None
    if isinstance(source, Mapping):
        source, name = choose_split(source, split), f"{name} {split or next(iter(source))}"
    else:
        _refuse_split(split, "a data set without splits")
    source, _ = as_stored(source)
    features = source.features or {}
    kinds = {column: type(kind).__name__ for column, kind in features.items()}
    columns = list(features or next(iter(source), ()))
    return Frame(name, columns, lambda: source, partial(_first_of_rows, source), kinds)


def _first(frame: Columns, column: str) -> object:
    return next(iter(column_values(frame, column)), None)


def _first_of_rows(rows: Iterable[Mapping[str, object]], column: str) -> object:
    row = next(iter(rows), None)
    return None if row is None else row.get(column)


def _refuse_split(split: str | None, what: str) -> None:
    if split is not None:
        raise ConfigurationError(f"split= cannot be used with {what}.", fix="leave split out")


def _names(held: Any, column: str) -> Sequence[str] | None:
    if is_huggingface(held):
        names = getattr((held.features or {}).get(column), "names", None)
    else:
        names = class_names(held, column)
    return [str(name).strip() for name in names] if names else None  # as texts of labels are


def _cell(value: object, names: Sequence[str] | None) -> object:
    """Return what a cell holds, in Python's own types, None for nothing; a number that has a name is that name."""
    if hasattr(value, "ndim") and hasattr(value, "tolist"):  # of numpy or PyTorch
        value = value.tolist()
    if is_missing(value) or (names is not None and value == UNLABELLED):
        return None
    if isinstance(value, bool) or (isinstance(value, float) and value.is_integer()):
        value = int(value)  # pandas makes floats of whole numbers beside an empty cell
    return names[value] if names is not None and isinstance(value, int) and 0 <= value < len(names) else value
