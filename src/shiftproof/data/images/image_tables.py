"""Image sets from a CSV or TSV file whose rows name images in its folder."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from shiftproof.data.columns import read_rows
from shiftproof.data.images.decoding import is_image_name
from shiftproof.data.images.folders import load_folder
from shiftproof.data.images.imageset import ImageSet
from shiftproof.data.text.text_columns import usual_columns

TABLES = (".csv", ".tsv")


def is_image_table(path: Path) -> bool:
    """Whether the first row of a CSV or TSV names an image, and no column has a usual name of texts."""
    if path.suffix.lower() not in TABLES or not path.is_file():
        return False
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            row = next(read_rows(path, file), {})
    except (OSError, UnicodeDecodeError, csv.Error):
        return False
    texts = usual_columns([str(name) for name in row])
    return texts is None and any(is_image_name(str(value).strip()) for value in row.values())


def load_image_table(path: Path, **options: Any) -> ImageSet:
    """Return the images that a table names, from its folder, with their labels."""
    return load_folder(path.parent, labels=path, **options).named(path.stem)
