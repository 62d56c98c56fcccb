"""Image sets from tables with a column of images and one of labels: DataFrames, Arrow tables, Parquet files."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeGuard, TypeVar, runtime_checkable

from shiftproof.data.columns import NAME_IT, find_columns
from shiftproof.data.images.imageset import ImageSet
from shiftproof.data.images.lists import from_lists
from shiftproof.data.images.source import describe
from shiftproof.errors import DataError

_Found = TypeVar("_Found")


@runtime_checkable
class Columns(Protocol):
    """What gives a column by its name, and has a length: a DataFrame, an Arrow table, a Hugging Face set."""

    def __getitem__(self, name: Hashable, /) -> Iterable[object]: ...

    def __len__(self) -> int: ...


def is_frame(source: object) -> TypeGuard[Columns]:
    """Whether an object is a table of named columns, as of pandas, polars or Arrow."""
    columns = hasattr(source, "columns") and (hasattr(source, "iloc") or hasattr(source, "to_dicts"))
    return columns or (hasattr(source, "column_names") and hasattr(source, "to_pydict"))


def from_frame(
    frame: Columns,
    *,
    image_column: str | None = None,
    label_column: str | None = None,
    root: Path | None = None,
    name: str = "table",
    **options: Any,
) -> ImageSet:
    """Return the set of a table; images are paths (from `root`, or the current folder), pictures, or encoded."""
    columns = columns_of(frame)
    image, label = find_columns(columns, image_column, label_column)
    if image is None:
        raise DataError(
            "Cannot tell which column holds the images.",
            expected="a column named image, file or path, or one of texts named text, sentence or review",
            got=", ".join(columns[:20]),
            fix=NAME_IT,
        )
    labels = None if label is None else column_values(frame, label)
    return from_lists(
        column_values(frame, image), labels, root=root, names=class_names(frame, label), name=name, **options
    )


def load_parquet(path: Path, **options: Any) -> ImageSet:
    """Return the set of a Parquet file: paths from its folder, or images within it, as Hugging Face writes them."""
    return from_frame(read_parquet(path), root=path.parent, name=path.stem, **options)


def read_parquet(path: Path) -> Columns:
    """Return the Arrow table of a Parquet file."""
    table: Columns = _parquet(path, lambda file: file.read())
    return table


def parquet_columns(path: Path) -> list[str]:
    """Return the names of a Parquet file's columns, without reading them."""
    return _parquet(path, lambda file: [str(name) for name in file.schema_arrow.names])


def first_in_parquet(path: Path, column: str) -> object:
    """Return the first value of a Parquet file's column; None where there is no row."""
    batches = _parquet(path, lambda file: list(islice(file.iter_batches(batch_size=1, columns=[column]), 1)))
    return next((value for batch in batches for value in column_values(batch, column)), None)


def _parquet(path: Path, wanted: Callable[[Any], _Found]) -> _Found:
    """Return something of a `pyarrow.parquet.ParquetFile`."""
    try:
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise DataError(
            f"Reading {str(path)!r} needs the package pyarrow.",
            got=f"{type(error).__name__}: {error}",
            fix="pip install pyarrow, or write the table as CSV",
        ) from error
    try:
        with ParquetFile(path) as file:
            return wanted(file)
    except Exception as error:  # damaged files fail in any way there is
        raise DataError(f"Cannot read the table {str(path)!r}.", got=describe(error)) from error


def columns_of(frame: Columns) -> list[str]:
    """Return the names of a table's columns."""
    return [str(column) for column in _columns(frame)]


def _columns(frame: Columns) -> list[Hashable]:
    """Return what a table calls its columns, which may be numbers in pandas."""
    names: Iterable[Hashable] = getattr(frame, "column_names", None) or getattr(frame, "columns")  # noqa: B009
    return list(names)


def column_values(frame: Columns, column: str) -> list[object]:
    """Return what a column holds, as objects of Python."""
    own = [each for each in _columns(frame) if str(each) == column]
    if len(own) > 1:
        raise DataError(f"Several columns of the table are named {column!r}.", fix="give each a name of its own")
    held = frame[own[0]]
    for method in ("tolist", "to_list", "to_pylist"):
        if hasattr(held, method):
            return list(getattr(held, method)())
    return list(held)


def class_names(frame: object, label: str | None) -> list[str] | None:
    """Return the class names that Hugging Face keeps beside a column of numbers in an Arrow table."""
    metadata = getattr(getattr(frame, "schema", None), "metadata", None)
    if label is None or not isinstance(metadata, Mapping) or b"huggingface" not in metadata:
        return None
    try:
        names = json.loads(metadata[b"huggingface"])["info"]["features"][label]["names"]
    except (ValueError, KeyError, TypeError):
        return None
    return [str(name) for name in names] if isinstance(names, list) else None
