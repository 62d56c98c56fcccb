"""Tables of texts as rows: CSV, TSV, JSON, JSON lines, and files with one text a line."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from shiftproof.data.columns import refuse_surplus, separator
from shiftproof.errors import DataError


class Rows(NamedTuple):
    """A table: the names of its columns, and its rows with the names of the places they come from."""

    columns: list[str]
    rows: list[tuple[str, Mapping[str, Any]]]


def read_rows(path: Path, *, header: bool) -> Rows:
    """Return a file's rows as mappings from column to value."""
    content = decode(path)
    if path.suffix.lower() == ".txt":
        return Rows(["text"], [(f"line {n}", {"text": line}) for n, line in enumerate(content.splitlines(), 1)])
    if path.suffix.lower() in (".jsonl", ".json"):
        rows = list(_json_rows(path, content))
        return Rows(list(dict.fromkeys(name for _, row in rows for name in row)), rows)
    return _delimited(path, content, header)


def _delimited(path: Path, content: str, header: bool) -> Rows:
    delimiter = separator(path, content.partition("\n")[0] if header else "")
    # Tabs within TSV fields do not occur, quotes do: a field begins with one only where it is quoted.
    reader = csv.reader(io.StringIO(content), delimiter=delimiter)
    csv.field_size_limit(2**31 - 1)
    try:
        lines = [(reader.line_num, fields) for fields in reader if fields]
    except csv.Error as error:
        raise DataError(
            f"Cannot read the table {str(path)!r}.",
            expected="fields separated by commas (tabs in .tsv), with quotes around those that hold one",
            got=f"line {reader.line_num}: {error}",
        ) from error
    if not lines:
        raise DataError(
            f"The table {str(path)!r} is empty.", expected="a line that names its columns, and a row for each text"
        )
    if header:
        columns, body = lines[0][1], lines[1:]
    else:
        columns, body = [str(number) for number in range(max(len(fields) for _, fields in lines))], lines
    for line, fields in body:
        refuse_surplus(path, line, fields[len(columns) :])
    return Rows(columns, [(f"line {n}", dict(zip(columns, fields, strict=False))) for n, fields in body])


def _json_rows(path: Path, content: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the objects of a JSON array, or of one line each."""
    try:
        if path.suffix.lower() == ".json":
            values: Iterable[tuple[int, Any]] = enumerate(json.loads(content), 1)
        else:
            values = ((n, json.loads(line)) for n, line in enumerate(content.splitlines(), 1) if line.strip())
        for number, value in values:
            place = f"{'line' if path.suffix.lower() == '.jsonl' else 'row'} {number}"
            if not isinstance(value, dict):
                raise DataError(
                    f"Cannot read {str(path)!r}.",
                    expected="one JSON object per row, with a text and a label",
                    got=f"a {type(value).__name__} in {place}",
                )
            yield place, value
    except (ValueError, TypeError, RecursionError) as error:
        raise DataError(
            f"{str(path)!r} is not valid JSON.",
            expected="an array of objects" if path.suffix.lower() == ".json" else "an object in each line",
            got=str(error),
        ) from error


def decode(path: Path) -> str:
    """Return what a file in UTF-8 says."""
    data = path.read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise DataError(
            f"{str(path)!r} is not UTF-8.",
            expected="a text file in UTF-8",
            got=f"the byte 0x{data[error.start]:02x} in line {line}",
            fix=f"iconv -f latin1 -t utf-8 {path.name} > utf8{path.suffix}",
        ) from error
