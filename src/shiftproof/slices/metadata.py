"""What is known about images besides their pixels: tables that users keep, sub-folders, sizes, and EXIF."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from shiftproof.data.columns import find_columns, read_rows
from shiftproof.data.images.decoding import open_image, upright_size
from shiftproof.errors import DataError
from shiftproof.runs.files import is_file
from shiftproof.slices.image_results import Value

EXIF: Mapping[str, tuple[int, ...]] = {
    "camera": (0x010F, 0x0110),
    "software": (0x0131,),
    "exposure time": (0x829A,),
    "f-number": (0x829D,),
    "ISO": (0x8827,),
    "flash": (0x9209,),
    "focal length": (0x920A,),
    "taken": (0x9003, 0x0132),
}
"""Column -> tags of EXIF; a camera is its maker and model, a time the hour of the day."""
_IFD = 0x8769


def read_columns(path: str | Path, files: Sequence[str], image_column: str | None = None) -> dict[str, list[Value]]:
    """Read the columns of a CSV or TSV for some files, in their order, without the column of files.

    Missing values are None. A table that has none of the files is an error.

    Args:
        path: A CSV or TSV.
        files: Names of the images, in the order wanted.
        image_column: The column of file names. Default: found by its name.
    """
    path = Path(path)
    if not is_file(path):
        raise DataError(f"There is no table {str(path)!r}.", expected="a CSV file with a column file, and others")
    try:
        with path.open(newline="", encoding="utf-8-sig") as opened:
            rows = list(read_rows(path, opened))
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"Cannot read the table {str(path)!r}.", expected="CSV in UTF-8", got=str(error)) from error
    names = [name for name in (rows[0] if rows else {}) if name]
    own, _ = find_columns(names, image_column)
    if own is None:
        raise DataError(
            f"The table {str(path)!r} has no column of files.", expected="a column file", got=", ".join(names) or "none"
        )
    known = {PurePosixPath((row[own] or "").strip()).as_posix(): row for row in rows}
    if not known.keys() & set(files):
        raise DataError(
            f"The table {str(path)!r} names none of the images.",
            expected=f"files such as {files[0] if files else 'a.png'}",
            got=", ".join([*known][:3]) or "no rows",
        )
    empty: dict[str, str | None] = {}
    return {name: [known.get(file, empty).get(name) or None for file in files] for name in names if name != own}


def file_columns(files: Sequence[str], paths: Sequence[Path | None]) -> dict[str, list[Value]]:
    """Return columns read from image files: sub-folders, pixels, aspect ratio, bytes per pixel, and EXIF.

    Columns without any value are left out.

    Args:
        files: Paths relative to the root of the data.
        paths: The files themselves.
    """
    made: dict[str, list[Value]] = {}
    rows = [{**_folders(file), **_header(path)} for file, path in zip(files, paths, strict=True)]
    for name in sorted({name for row in rows for name in row}):
        made[name] = [row.get(name) for row in rows]
    return {name: values for name, values in made.items() if any(value is not None for value in values)}


def _folders(file: str) -> dict[str, Value]:
    """Return the folders a file is in, from the second: the first is its class, or says nothing."""
    above = PurePosixPath(file).parts[:-1]
    return {f"folder {depth}" if depth > 1 else "folder": name for depth, name in enumerate(above[1:], start=1)}


def _header(path: Path | None) -> dict[str, Value]:
    if path is None:
        return {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about odd metadata
            with open_image(path) as image:
                width, height = upright_size(image)
                found = image.getexif()
                tags = {**found, **found.get_ifd(_IFD)}
    except Exception:  # damaged files fail in any way there is; that they are damaged is told elsewhere
        return {}
    stored = path.stat().st_size
    shape: dict[str, Value] = {
        "pixels": width * height,
        "aspect": width / height,
        "bytes per pixel": stored / (width * height),
    }
    return {**shape, **{name: _tag(name, [tags.get(tag) for tag in wanted]) for name, wanted in EXIF.items()}}


def _tag(name: str, values: Sequence[object]) -> Value:
    """Return a value of EXIF as text or number; what is damaged is nothing."""
    given = [value for value in values if value not in (None, "")]
    if not given:
        return None
    if name == "camera":
        return " ".join(str(value).strip("\0 ") for value in given)[:80]
    if name == "taken":
        hour = str(given[0])[11:13]
        return int(hour) if hour.isdigit() else None
    try:
        return float(str(given[0])) if name != "software" else str(given[0]).strip("\0 ")[:80]
    except ValueError:
        return None
