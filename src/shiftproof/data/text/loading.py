"""Texts from tables with named columns, in files or in memory, folders of text files, and lists."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeGuard

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from shiftproof.data.base import BadFile, OnBadFile
from shiftproof.data.images.decoding import is_image_name
from shiftproof.data.images.image_tables import is_image_table
from shiftproof.data.labels import NO_LABELS, Naming, number_classes, number_given, refuse_several
from shiftproof.data.text.table_files import Rows, decode, read_rows
from shiftproof.data.text.text_columns import find_text_columns, usual_columns, wanted_columns
from shiftproof.data.text.text_frames import Frame, open_frame
from shiftproof.data.text.textset import TextSet, TextSource, is_texts
from shiftproof.errors import DataError
from shiftproof.models.texts import Text, parts
from shiftproof.runs.files import expand, is_file, is_hidden

TABLES = (".csv", ".tsv", ".jsonl", ".json", ".txt")
"""Files that hold texts: one row each, or one text a line."""


def load_table(
    path: Path,
    *,
    text_column: str | None = None,
    label_column: str | None = None,
    classes: str | Path | Sequence[str] = "auto",
    on_bad_file: OnBadFile = "fail",
) -> TextSet:
    """Return the texts of a CSV, TSV, JSON or JSON lines file, or of a file with one text a line.

    `text_column` names the column of the texts, or two columns with a comma between them for pairs; `label_column` that
    of the labels. Columns given by number are those of a CSV or TSV without a header. Without names, common ones are
    found. Rows without a text are refused, or skipped and listed with `on_bad_file="skip"`.
    """
    wanted = wanted_columns(text_column), label_column
    table = read_rows(path, header=not any(name.isdigit() for name in (*wanted[0], label_column or "")))
    where = repr(str(path))
    return _from_rows(table, *find_text_columns(where, table.columns, *wanted), path.name, where, classes, on_bad_file)


def load_frame(
    source: object,
    *,
    split: str | None = None,
    text_column: str | None = None,
    label_column: str | None = None,
    classes: str | Path | Sequence[str] = "auto",
    on_bad_file: OnBadFile = "fail",
) -> TextSet | None:
    """Return the texts of a DataFrame, an Arrow table, a Parquet file or a Hugging Face set; None where it holds none.

    One with a column of images holds texts only where `text_column` names them. Columns are found as those of files
    are. Labels of which none is known are left out; numbers that the set has names for are those classes.
    """
    wanted = wanted_columns(text_column)
    frame = _text_frame(source, split, wanted)
    if frame is None:
        return None
    where = f"the table {frame.name!r}"
    texts, label = find_text_columns(where, frame.columns, wanted, label_column, frame.class_column())
    table, names = frame.rows([*texts, *([] if label is None else [label])])
    if label is not None and all(row[label] is None for _, row in table.rows):
        label = None
    own = None if label is None else names.get(label)
    return _from_rows(table, texts, label, frame.name, where, classes, on_bad_file, own)


def _from_rows(
    table: Rows,
    text_names: Sequence[str],
    label_name: str | None,
    name: str,
    where: str,
    classes: str | Path | Sequence[str],
    on_bad_file: OnBadFile,
    own: Sequence[str] | None = None,
) -> TextSet:
    """Return the set of a table's rows; `own` are the class names that it has, in the order of their numbers."""
    texts: list[Text] = []
    labels: list[str] = []
    places: list[str] = []
    bad: list[BadFile] = []
    written = False  # labels are texts, and numbers among them names
    for place, row in table.rows:
        there, held = f"{place} of {where}", None if label_name is None else row.get(label_name)
        refuse_several(held, there)
        cells, label = tuple(_cell(row.get(column), there) for column in text_names), _cell(held, there)
        problem = "no text" if not all(part.strip() for part in cells) else ""
        if not problem and label_name is not None and not label.strip():
            problem = "no label"
        if problem:
            bad.append(BadFile(place, problem))
            continue
        texts.append(cells[0] if len(cells) == 1 else (cells[0], cells[1]))
        labels.append(label.strip())
        places.append(place)
        written = written or isinstance(held, str)
    _check_rows(where, len(texts), bad, on_bad_file)
    firsts = dict(zip(reversed(labels), reversed(places), strict=True))
    naming = NO_LABELS if label_name is None else _naming(labels, classes, firsts, own)
    if naming.numbering == "numerals" and not written:
        naming = naming._replace(numbering="index")
    return TextSet(
        TextSource(texts),
        name=name,
        labels=None if label_name is None else torch.tensor([naming.numbers[label] for label in labels]),
        classes=naming.classes,
        numbering=naming.numbering,
        notes=naming.notes,
        on_bad_file=on_bad_file,
        bad_files=bad,
    )


def _naming(
    labels: Sequence[str],
    classes: str | Path | Sequence[str],
    firsts: Mapping[str, str],
    own: Sequence[str] | None,
) -> Naming:
    if own and classes in ("auto", "sorted") and set(labels) <= set(own):
        return Naming({name: number for number, name in enumerate(own)}, tuple(own), numbering="own")
    return number_classes(labels, classes, firsts)


def is_text_source(source: object, text_column: str | None = None, split: str | None = None) -> bool:
    """Whether what a user gave stands for texts: a set of them, a table, or a folder of text files."""
    if isinstance(source, str | Path):
        path = expand(source)
        folder = os.path.isdir(path) and is_text_folder(path)  # noqa: PTH112  (see `is_file`)
        if is_table(path, text_column) or folder:
            return True
    found = isinstance(source, TextSet) or is_texts(source)
    return found or _text_frame(source, split, wanted_columns(text_column)) is not None


def _text_frame(source: object, split: str | None, wanted: Sequence[str]) -> Frame | None:
    """Return the table that a source stands for, where it holds texts."""
    try:
        frame = open_frame(source, split)
    except (DataError, OSError):
        if wanted:
            raise
        return None  # told where it is read for images
    if frame is None or wanted:
        return frame
    return None if usual_columns(frame.columns) is None or frame.holds_images() else frame


def is_table(source: object, text_column: str | None = None) -> TypeGuard[str | Path]:
    """Whether what a user gave is a table of texts; a name that no file can have is none.

    Nor is a table that names images, unless a column of texts is named.
    """
    if not isinstance(source, str | Path):
        return False
    path = expand(source)
    return path.suffix.lower() in TABLES and is_file(path) and (text_column is not None or not is_image_table(path))


def is_text_folder(path: Path) -> bool:
    """Whether a folder holds text files in sub-folders: in the first sub-folder that holds files, all are `.txt`.

    Where there are images too, as beside the labels of YOLO, it is a folder of images.
    """
    for folder in sorted(entry for entry in path.iterdir() if entry.is_dir() and not is_hidden(entry.name)):
        suffixes = {entry.suffix.lower() for entry in folder.iterdir() if entry.is_file() and not is_hidden(entry.name)}
        if suffixes:
            return suffixes == {".txt"} and not any(
                is_image_name(entry) for pattern in ("*", "*/*") for entry in path.glob(pattern)
            )
    return False


def load_text_folder(
    path: Path, *, classes: str | Path | Sequence[str] = "auto", on_bad_file: OnBadFile = "fail"
) -> TextSet:
    """Return the texts of a folder with one sub-folder per class and one text in each `.txt` file."""
    found = sorted(file for file in path.glob("*/*.txt") if file.is_file())
    files = [file for file in found if not any(map(is_hidden, file.relative_to(path).parts))]
    texts: list[Text] = []
    kept, bad = [], []
    for file in files:
        name = file.relative_to(path).as_posix()
        try:
            text = decode(file).strip()
        except DataError as error:
            if on_bad_file == "fail":
                raise
            bad.append(BadFile(name, error.facts.get("got", "not UTF-8")))
            continue
        if text:
            texts.append(text)
            kept.append(name)
        else:
            bad.append(BadFile(name, "no text"))
    _check_rows(repr(str(path)), len(texts), bad, on_bad_file)
    labels = [name.partition("/")[0] for name in kept]
    naming = number_classes(labels, classes)
    return TextSet(
        TextSource(texts),
        name=path.name,
        labels=torch.tensor([naming.numbers[label] for label in labels]),
        classes=naming.classes,
        numbering=naming.numbering,
        notes=naming.notes,
        on_bad_file=on_bad_file,
        bad_files=bad,
    )


def from_texts(
    texts: Sequence[Text],
    labels: ArrayLike | Tensor | None = None,
    *,
    classes: str | Path | Sequence[str] = "auto",
    name: str = "texts",
) -> TextSet:
    """Return a set of texts, or of pairs, already in memory; labels are whole numbers or class names."""
    for number, text in enumerate(texts):
        if not all(part.strip() for part in parts(text)):
            raise _empty(f"text {number}")
    if len({isinstance(text, str) for text in texts}) > 1:
        raise DataError("There are single texts among pairs.", expected="texts, or pairs of them, throughout")
    numbers, naming = number_given(labels, len(texts), classes)
    return TextSet(
        TextSource(texts),
        name=name,
        labels=numbers,
        classes=naming.classes,
        numbering=naming.numbering,
        notes=naming.notes,
    )


def _cell(value: object, where: str) -> str:
    if isinstance(value, list | tuple | dict | bytes):
        raise DataError("A cell is no text.", expected="a text in each row", got=f"a {type(value).__name__} in {where}")
    return "" if value is None else value if isinstance(value, str) else str(value)


def _check_rows(where: str, kept: int, bad: Sequence[BadFile], on_bad_file: OnBadFile) -> None:
    if bad and on_bad_file == "fail":
        place, problem = bad[0]
        raise _empty(f"{place} of {where}", problem)
    if not kept:
        raise DataError(f"There are no texts in {where}.", expected="one text or more", got="none")


def _empty(where: str, problem: str = "no text") -> DataError:
    return DataError(
        "A text is empty." if problem == "no text" else "A text has no label.",
        got=f"{problem} in {where}",
        fix="remove the row; --on-bad-file skip leaves such rows out and lists them",
    )
