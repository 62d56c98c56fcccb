"""What every method answers to every image, as a CSV file: a row per image and shift."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from shiftproof.runs import write_atomically

PREDICTIONS = "predictions.csv"


class Asked(NamedTuple):
    """An image that methods were asked about: its place in the order, its name, what it was under, and its label."""

    position: int
    image: str
    shift: str
    label: int | None


class Answers(NamedTuple):
    """What a method answered to images, in their order, and how sure it was; None where it was not asked."""

    predicted: Sequence[int | None]
    confidences: Sequence[float | None]


def write_predictions(
    path: Path, called: Callable[[int], str], asked: Sequence[Asked], answers: Mapping[str, Answers]
) -> None:
    """Write a row per image: its place, name, shift and label, and the class and confidence that each method answers.

    `called` gives a class its name. Labels of unlabelled images are empty.
    """
    made = io.StringIO()
    writer = csv.writer(made, lineterminator="\n")
    columns = [title for name in answers for title in (name, f"{name} confidence")]
    writer.writerow(["position", "image", "shift", "label", *columns])
    for place, (position, image, shift, label) in enumerate(asked):
        cells = [
            cell
            for each in answers.values()
            for cell in (_named(called, each.predicted[place]), each.confidences[place])
        ]
        writer.writerow([position, image, shift, _named(called, label), *cells])
    write_atomically(path, made.getvalue())


def _named(called: Callable[[int], str], label: int | None) -> str:
    return "" if label is None else called(label)
