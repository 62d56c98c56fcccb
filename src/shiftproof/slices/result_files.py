"""Results image by image as files: CSV always, Parquet where pyarrow is installed; and copies of the images themselves.

Text stays text. A spreadsheet takes a cell that begins with = + - or @ for a formula, whoever named the file; such
texts are written with an apostrophe before them, which spreadsheets take for "text" and `read_csv` takes off again.
Numbers are written as numbers.
"""

from __future__ import annotations

import csv
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from shiftproof.errors import DataError
from shiftproof.runs.files import is_file, replacing
from shiftproof.slices.image_results import ImageTable, Value

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "'")
_TEXTS = frozenset({"file", "label", "prediction", "shift", "method", "clean_prediction"})
_TYPES = {
    **dict.fromkeys(_TEXTS, "string"),
    **dict.fromkeys(("confidence", "severity", "breaks_at"), "double"),
    **dict.fromkeys(("right", "flipped"), "bool"),
    "index": "int64",
}
"""Types of columns that may have no value in the first part of a file."""
_UNSAFE = re.compile(r"[^\w.-]+")
_LONGEST = 80


def write_table(table: ImageTable, folder: str | Path) -> tuple[Path, ...]:
    """Write images.csv, and images.parquet if pyarrow is installed (extra `parquet`); return the paths.

    Args:
        table: Columns by name.
        folder: Destination folder.
    """
    return write_tables(lambda: [table], folder)


def write_tables(
    tables: Callable[[], Iterable[ImageTable]], folder: str | Path, *, inputs: str = "images"
) -> tuple[Path, ...]:
    """Write tables with the same columns into one file, part by part, as `write_table` does; return the paths.

    Tables are read once per file format, so that a large set need not be held in memory.

    Args:
        tables: Function that returns the tables, called once per file.
        folder: Destination folder.
        inputs: `images` or `texts`, which names the files.
    """
    comma, parquet = (Path(folder, f"{inputs}.{kind}") for kind in ("csv", "parquet"))
    with replacing(comma) as file:
        for number, table in enumerate(tables()):
            file.write(csv_text(table, header=not number).encode("utf-8", "backslashreplace"))
    if not has_parquet():
        return (comma,)
    with replacing(parquet) as file:
        write_parquet(tables(), file)
    return comma, parquet


def csv_text(table: ImageTable, *, header: bool = True) -> str:
    r"""Return a table as CSV: texts in quotes, numbers without, nothing as nothing.

    >>> csv_text({"file": ["=1+1.png"], "right": [True], "loss": [-0.5]})
    '"file","right","loss"\r\n"\'=1+1.png",true,-0.5\r\n'
    """
    lines = [",".join(map(_cell, table))] if header else []
    lines += map(",".join, zip(*(list(map(_cell, values)) for values in table.values()), strict=True))
    return "".join(f"{line}\r\n" for line in lines)


def read_csv(path: str | Path) -> ImageTable:
    """Read a CSV table that `write_table` wrote, also after editing it in a spreadsheet or another tool.

    Columns of names stay strings; in other columns, numbers, true and false are parsed, and an empty cell is None.

    Args:
        path: The file.
    """
    path = Path(path)
    if not is_file(path):
        raise DataError(f"There is no table {str(path)!r}.", expected="a CSV file of results image by image")
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = list(csv.reader(file))
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"Cannot read the table {str(path)!r}.", expected="CSV in UTF-8", got=str(error)) from error
    if not lines or any(len(line) != len(lines[0]) for line in lines):
        raise DataError(f"Cannot read the table {str(path)!r}.", expected="as many cells in every line as columns")
    names = [_unmarked(name) for name in lines[0]]
    return {name: [_value(line[place], name in _TEXTS) for line in lines[1:]] for place, name in enumerate(names)}


def has_parquet() -> bool:
    """Whether pyarrow is installed."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        return False
    return True


def write_parquet(tables: Iterable[ImageTable], file: BinaryIO) -> None:
    """Write tables of the same columns as the row groups of one Parquet file."""
    import pyarrow
    import pyarrow.parquet

    writer = None
    for table in tables:
        columns = {name: [_storable(value) for value in values] for name, values in table.items()}
        if writer is None:
            types = {
                name: pyarrow.type_for_alias(_TYPES[name]) if name in _TYPES else pyarrow.array(values).type
                for name, values in columns.items()
            }
            writer = pyarrow.parquet.ParquetWriter(file, pyarrow.schema(list(types.items())))
        writer.write_table(pyarrow.table({each.name: columns[each.name] for each in writer.schema}, writer.schema))
    if writer is not None:
        writer.close()


def copy_failures(
    table: ImageTable,
    paths: Sequence[Path | None],
    folder: str | Path,
    drawn: Callable[[int], bytes] | None = None,
) -> list[Path]:
    """Copy the images of a table of failures into a folder, by shift and label; return the copies.

    Copies are named by index, prediction and file name, so names are unique and stay inside the folder. Images without
    a file are left out unless `drawn` is given.

    Args:
        table: A table of failures.
        paths: The file of each image, by index.
        folder: Destination folder.
        drawn: Function from the index of an image without a file to PNG bytes.
    """
    copies = []
    for row, index in enumerate(table["index"]):
        place = int(str(index))
        path = paths[place]
        if path is None and drawn is None:
            continue
        shift, severity = table["shift"][row], float(str(table["severity"][row] or 0))
        own = "image.png" if path is None else _part(path.stem) + (path.suffix and f".{_part(path.suffix.lower())}")
        name = f"{index}-{_part(table['prediction'][row])}-{own}"
        target = Path(folder, _part(f"{shift}@{severity:g}" if severity else shift), _part(table["label"][row]), name)
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_symlink():  # nothing is written through a link that somebody left there
            continue
        if path is not None:
            shutil.copyfile(path, target)
        elif drawn is not None:
            target.write_bytes(drawn(place))
        copies.append(target)
    return copies


def _cell(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return repr(value)
    marked = f"'{value}" if value.startswith(_FORMULA) else value
    return '"' + marked.replace('"', '""') + '"'


def _unmarked(text: str) -> str:
    return text[1:] if text.startswith("'") and text[1:].startswith(_FORMULA) else text


def _value(text: str, name: bool) -> Value:
    """Return what a cell holds; a column of names has no numbers."""
    if text == "":
        return None
    if name:
        return _unmarked(text)
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return _unmarked(text)


def _storable(value: Value) -> Value:
    """Return a value as Parquet takes it: bytes of a file's name that are not UTF-8 are written out."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def _part(value: object) -> str:
    """Return a text as a part of a file's name that every system takes."""
    return _UNSAFE.sub("_", str(value)).strip(".")[:_LONGEST] or "_"
