"""Results image by image for FiftyOne, and labels back from it: its JSON format for image classification.

A file of this format (`FiftyOneImageClassificationDataset`) has one label for every image, by its path without suffix.
So there is a file of the labels and one of the predictions under every condition; FiftyOne itself is not needed. JSON
has no formulas: names are written as they are.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from itertools import count
from pathlib import Path, PurePath

from shiftproof.errors import DataError
from shiftproof.runs import Json, write_atomically
from shiftproof.runs.files import read_json
from shiftproof.slices.image_results import CLEAN, SOURCE, ImageTable, Value

TRUTH = "ground_truth"
"""The field of the labels."""
_ATTRIBUTES = ("right", "label_probability", "margin", "prediction_entropy", "loss", "flipped", "breaks_at")
_NO_NAME = re.compile(r"\W+")


def write_fiftyone(table: ImageTable, folder: str | Path) -> dict[str, Path]:
    """Write a table of results as files that FiftyOne imports; return their paths by FiftyOne field.

    The first is `ground_truth`, where images have labels; the others are named by shift, severity and method.

    Args:
        table: Columns as in `images.csv`.
        folder: Destination folder.
    """
    truth: dict[str, Json] = {}
    said: dict[str, dict[str, Json]] = defaultdict(dict)
    fields: dict[tuple[Value, ...], str] = {}
    for row, key in enumerate(_keys([str(file) for file in table["file"]])):
        values = {name: values[row] for name, values in table.items()}
        if values.get("label") is not None:
            truth[key] = values["label"]
        kept = {name: values[name] for name in _ATTRIBUTES if values.get(name) is not None}
        answer = {"label": values["prediction"], "confidence": values["confidence"], "attributes": kept}
        condition = values["shift"], values["severity"], values.get("method", SOURCE)
        if condition not in fields:
            fields[condition] = _field(*condition, set(fields.values()))
        said[fields[condition]][key] = answer
    made = {TRUTH: truth, **said} if truth else said
    files = {field: Path(folder, f"{field}.json") for field in made}
    for field, path in files.items():
        write_atomically(path, json.dumps({"classes": None, "labels": made[field]}, indent=1) + "\n")
    return files


def read_fiftyone(path: str | Path, *, files: Sequence[str] | None = None) -> ImageTable:
    """Read labels that FiftyOne exported, or that `write_fiftyone` wrote, as a table.

    FiftyOne names files without their suffix; pass `files`, such as the column of `images.csv`, to restore it.

    Args:
        path: JSON file of labels.
        files: File names with suffixes. Default: names stay without suffix.
    """
    try:
        content = read_json(Path(path))
        targets: dict[str, Json] = dict(content["labels"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DataError(
            f"Cannot read the labels in {str(path)!r}.",
            expected="JSON of the format FiftyOneImageClassificationDataset: classes, and labels by image",
            got=f"{type(error).__name__}: {error}",
        ) from error
    classes: Sequence[str] = content.get("classes") or ()
    named = {} if files is None else dict(zip(_keys(files), files, strict=True))
    rows: list[dict[str, Value]] = []
    for key, target in targets.items():
        whole = target if isinstance(target, Mapping) else {"label": target}
        label, attributes = whole.get("label"), whole.get("attributes")
        label = classes[label] if isinstance(label, int) and label < len(classes) else label
        rows.append({"file": named.get(key, key), "label": None if label is None else str(label)})
        if whole.get("confidence") is not None:
            rows[-1]["confidence"] = _value(whole["confidence"])
        rows[-1] |= (
            {name: _value(value) for name, value in attributes.items()} if isinstance(attributes, Mapping) else {}
        )
    columns = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in columns}


def _value(value: Json) -> Value:
    """Return what a cell of a table can hold: lists and mappings as text."""
    return value if value is None or isinstance(value, str | int | float) else json.dumps(value)


def _keys(files: Sequence[str]) -> list[str]:
    """Return how FiftyOne names files: without their suffix."""
    known: dict[str, str] = {}
    keys = []
    for file in files:
        key = file.removesuffix(PurePath(file).suffix)
        if known.setdefault(key, file) != file:
            raise DataError(
                "FiftyOne tells images apart by their names without suffix.",
                expected="one image of each name",
                got=f"{known[key]!r} and {file!r}",
            )
        keys.append(key)
    return keys


def _field(shift: Value, severity: Value, method: Value, taken: Container[str]) -> str:
    """Return the field of a condition: letters, digits and underscores, and none that is taken."""
    level = float(str(severity or 0))
    parts = [str(shift), *([f"{level:g}"] if level else []), *([str(method)] if method != SOURCE else [])]
    name = _NO_NAME.sub("_", "_".join(parts)).strip("_") or CLEAN
    numbers = (name if number == 1 else f"{name}_{number}" for number in count(1))
    return next(each for each in numbers if each not in taken and each != TRUTH)
