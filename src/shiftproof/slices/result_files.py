"""Results image by image as files: CSV always, Parquet where pyarrow is installed; and copies of the images themselves.

Text stays text. A spreadsheet takes a cell that begins with = + - or @ for a formula, whoever named the file; such
texts are written with an apostrophe before them, which spreadsheets take for "text" and `read_csv` takes off again.
Numbers are written as numbers.
"""

from __future__ import annotations

import csv
import io
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from shiftproof.errors import DataError
from shiftproof.runs import write_atomically
from shiftproof.runs.files import is_file
from shiftproof.slices.image_results import ImageTable, Value

CSV, PARQUET = "images.csv", "images.parquet"
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "'")
_TEXTS = frozenset({"file", "label", "prediction", "shift", "method", "clean_prediction"})
_UNSAFE = re.compile(r"[^\w.-]+")
_LONGEST = 80


def write_table(table: ImageTable, folder: str | Path) -> tuple[Path, ...]:
    """Write images.csv, and images.parquet with the extra `parquet` (pyarrow); return what was written."""
    folder = Path(folder)
    write_atomically(folder / CSV, csv_text(table))
    content = parquet_bytes(table)
    if content is None:
        return (folder / CSV,)
    write_atomically(folder / PARQUET, content)
    return folder / CSV, folder / PARQUET


def csv_text(table: ImageTable) -> str:
    r"""Return a table as CSV: texts in quotes, numbers without, nothing as nothing.

    >>> csv_text({"file": ["=1+1.png"], "right": [True], "loss": [-0.5]})
    '"file","right","loss"\r\n"\'=1+1.png",true,-0.5\r\n'
    """
    lines = [list(map(_cell, table)), *(list(map(_cell, row)) for row in zip(*table.values(), strict=True))]
    return "".join(",".join(line) + "\r\n" for line in lines)


def read_csv(path: str | Path) -> ImageTable:
    """Return the table that `write_table` wrote as CSV, or one that a spreadsheet or another tool wrote of it.

    Columns of names stay texts; in others, what reads as a number, true or false is one, and an empty cell is None.
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


def parquet_bytes(table: ImageTable) -> bytes | None:
    """Return a table as Parquet; None where pyarrow is not installed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        return None
    buffer = io.BytesIO()
    named = {name: [_storable(value) for value in values] for name, values in table.items()}
    pyarrow.parquet.write_table(pyarrow.table(named), buffer)
    return buffer.getvalue()


def copy_failures(table: ImageTable, paths: Sequence[Path | None], folder: str | Path) -> list[Path]:
    """Copy the images of a table of failures into a folder, by shift and label; return the copies.

    `paths` are the files of the images by their `index`; images that have none are left out. Copies are named by their
    index, what the model said and the file's own name, so that no two are one; no name leads out of the folder.
    """
    copies = []
    for row, index in enumerate(table["index"]):
        path = paths[int(str(index))]
        if path is None:
            continue
        shift, severity = table["shift"][row], float(str(table["severity"][row] or 0))
        name = f"{index}-{_part(table['prediction'][row])}-{_part(path.stem)}{_part(path.suffix.lower())}"
        target = Path(folder, _part(f"{shift}@{severity:g}" if severity else shift), _part(table["label"][row]), name)
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.is_symlink():  # nothing is written through a link that somebody left there
            shutil.copyfile(path, target)
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
