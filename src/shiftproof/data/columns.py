"""Columns of tables and fields of records: which of them hold images, and which labels."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from shiftproof.errors import DataError

IMAGE_COLUMNS = (
    *("image", "img", "file", "file_name", "filename", "path", "image_path", "img_path", "file_path", "filepath"),
    *("image_file", "pixel_values", "png", "jpg", "jpeg", "webp"),
)
LABEL_COLUMNS = ("label", "labels", "class", "class_name", "target", "category", "fine_label", "cls", "y")
"""Names of columns that are found without being named, in any case of letters; the first that fits is taken."""
SPLIT_COLUMNS = frozenset({"split", "splits", "set", "subset", "partition", "fold"})
"""Names of columns that say which part of a data set a row belongs to."""
NAME_IT = "name the column: image_column= (--image-column), or text_column= (--text-column) for texts"
"""What to do about a table in which neither images nor texts were found."""
_QUOTED = re.compile(r'"[^"]*"')


def separator(path: Path, header: str) -> str:
    """Return what stands between the fields of a table: tabs in a TSV, else what its first line has most often.

    >>> separator(Path("labels.csv"), "file;label;city, country")
    ';'
    """
    marks = "\t" if path.suffix.lower() == ".tsv" else ",;\t"
    return max(marks, key=_QUOTED.sub("", header).count)


def read_rows(path: Path, file: TextIO) -> csv.DictReader[str]:
    """Return a reader of the rows of a CSV or TSV, from its beginning."""
    header = file.readline()
    file.seek(0)
    return csv.DictReader(file, delimiter=separator(path, header))


def refuse_surplus(path: Path, line: int, fields: Sequence[str]) -> None:
    """Refuse fields of a row behind the last column: the separator in a field moves the ones after it along."""
    if any(field.strip() for field in fields):
        raise DataError(
            f"Line {line} of {str(path)!r} has more fields than the first line.",
            expected="one field for each column",
            got="also " + ", ".join(fields)[:200],
            fix='put quotes around a field that holds the separator: "dog, small"',
        )


def find_columns(
    columns: Sequence[str], image_column: str | None = None, label_column: str | None = None
) -> tuple[str | None, str | None]:
    """Return the columns of images and of labels, as they are spelt: those named, or the first with a common name.

    >>> find_columns(["Id", "Filename", "Class"])
    ('Filename', 'Class')
    """
    spelt = {column.strip().lower(): column for column in reversed(columns)}

    def one(named: str | None, common: Sequence[str]) -> str | None:
        if named is None:
            return next((spelt[name] for name in common if name in spelt), None)
        if named.strip().lower() not in spelt:
            raise DataError(
                f"There is no column {named!r}.", expected="one of the columns of the data", got=", ".join(columns[:20])
            )
        return spelt[named.strip().lower()]

    return one(image_column, IMAGE_COLUMNS), one(label_column, LABEL_COLUMNS)
