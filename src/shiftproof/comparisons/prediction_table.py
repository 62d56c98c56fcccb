"""What every method answers to every image, as a CSV file: a row per image and shift."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from shiftproof.audits.sections.measuring import naming
from shiftproof.comparisons.adapted_images import AdaptedImages
from shiftproof.data import as_images
from shiftproof.runs import Result, Row, write_atomically
from shiftproof.subjects import Subject

PREDICTIONS = "predictions.csv"


def write_predictions(path: Path, subject: Subject, results: Sequence[Result]) -> None:
    """Write a row per image and shift: its place in the order, its name and label, and what each method answers.

    A method has two columns, the class it answers, by name, and its confidence. Of unlabelled images labels are empty.
    """
    found: dict[str, dict[str, Row]] = {}
    for result in results:
        if isinstance(result.task, AdaptedImages) and result.row is not None and result.row.get("applies", True):
            found.setdefault(result.task.label, {})[result.task.method.name] = result.row
    methods = list(dict.fromkeys(name for rows in found.values() for name in rows))
    unread = {file for rows in found.values() for row in rows.values() for file in cast("list[str]", row["unread"])}
    images = [(name, label) for name, label in _images(subject) if name not in unread]
    made = io.StringIO()
    writer = csv.writer(made, lineterminator="\n")
    columns = [title for name in methods for title in (name, f"{name} confidence")]
    writer.writerow(["position", "image", "shift", "label", *columns])
    called = naming(subject)
    for shift, rows in found.items():
        answers = {name: list(map(called, cast("list[int]", row["predicted"]))) for name, row in rows.items()}
        sure = {name: cast("list[float | None]", row["confidence"]) for name, row in rows.items()}
        for place, (image, label) in enumerate(images):
            cells = [
                cell
                for name in methods
                for cell in ((answers[name][place], sure[name][place]) if name in answers else ("", ""))
            ]
            writer.writerow([place, image, shift, "" if label is None else called(label), *cells])
    write_atomically(path, made.getvalue())


def _images(subject: Subject) -> list[tuple[str, int | None]]:
    """Return names and labels of the chosen images in the order they are used: files, or places in the data."""
    data = as_images(subject.labelled_data)
    names, labels = data.names, None if data.labels is None else data.labels.tolist()
    return [(names[place], None if labels is None else labels[place]) for place in subject.places.tolist()]
