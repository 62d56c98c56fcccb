"""Tables of labels: CSV and TSV files that name files and the class of each."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

from shiftproof.data.columns import SPLIT_COLUMNS, find_columns, read_rows, refuse_surplus
from shiftproof.errors import DataError
from shiftproof.runs.files import is_file

_COLUMNS = "the columns file,label in its first line, and a file within the folder and its label in each other line"
_LACKING = ("lacks a file or a label", "remove the rows without a label; shiftproof estimate works without labels")
_TWICE = ("names a file twice", "keep one row for each file; several labels of one image are not supported")


class LabelTable(NamedTuple):
    """The label of each file that a table names, and what a report should say of the table."""

    labels: dict[str, str]
    notes: tuple[str, ...]


def read_table(
    path: str | Path, image_column: str | None = None, label_column: str | None = None, root: Path | None = None
) -> LabelTable:
    """Return what a CSV or TSV says, by the columns `file` and `label` or those that are named.

    Files are named by their paths from `root`, or from the table's own folder; absolute paths must lead into it.
    """
    path = Path(path)
    root = (path.parent if root is None else root).absolute()
    if not is_file(path):
        raise DataError(
            f"There is no table of labels {str(path)!r}.", expected="a CSV file with the columns file,label"
        )
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = read_rows(path, file)
            spelt = list(reader.fieldnames or ())
            columns = [column.strip().lower() for column in spelt]
            reader.fieldnames = columns
            image, label = find_columns(columns, image_column, label_column)
            if image is None or label is None:
                raise DataError(
                    f"Cannot read the table of labels {str(path)!r}.",
                    expected="the columns file,label in its first line, separated by a comma, semicolon or tab",
                    got=",".join(columns)[:200] or "an empty file, or first line",
                    fix="--image-column NAME and --label-column NAME name other columns",
                )
            split = next((column for column in columns if column in SPLIT_COLUMNS - {image, label}), None)
            rows = []
            for row in reader:
                refuse_surplus(path, reader.line_num, row.pop(None, ()))
                rows.append((reader.line_num, row[image], row[label], split and row[split]))
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(
            f"Cannot read the table of labels {str(path)!r}.",
            expected="a CSV file in UTF-8",
            got=str(error),
            fix=f"iconv -f latin1 -t utf-8 {path.name} > utf8.csv",
        ) from error
    table: dict[str, str] = {}
    for line, *cells, _ in rows:
        name, given = ((cell or "").strip() for cell in cells)
        place = Path(name)  # ./a.png is a.png
        if place.is_absolute() and place.is_relative_to(root):
            place = place.relative_to(root)
        inside = place.as_posix()
        if not name or not given or inside in table:
            problem, fix = _TWICE if name and given else _LACKING
            raise DataError(
                f"Line {line} of {str(path)!r} {problem}.",
                expected=_COLUMNS,
                got=f"{name},{given}",
                fix=fix,
            )
        if place.is_absolute() or ".." in place.parts:
            raise DataError(
                f"Line {line} of {str(path)!r} points outside the folder.",
                expected=f"a file within {str(root)!r}",
                got=name,
                fix=f"give the folder that all files are in: --data FOLDER --labels {path}",
            )
        table[inside] = given
    if not table:
        raise DataError(
            f"The table of labels {str(path)!r} has no rows.", expected=_COLUMNS, got="its first line alone"
        )
    splits = sorted({part or "" for _, _, _, part in rows})
    if split is None or len(splits) < 2:
        return LabelTable(table, ())
    column, named = spelt[columns.index(split)].strip(), ", ".join([*splits[:5], *(["..."] if len(splits) > 5 else [])])
    note = (
        f"The column {column} of {path.name} ({named}) was not used: the images of all its values were. A table of the "
        "rows of one chooses it."
    )
    return LabelTable(table, (note,))
