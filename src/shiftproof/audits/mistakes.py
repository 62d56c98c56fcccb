"""The most confident mistakes under each shift: chosen when all is measured, drawn as the model saw them, and shown."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from shiftproof.audits.audited_images import located
from shiftproof.audits.image_answers import ImageAnswers
from shiftproof.audits.sections.measuring import excerpt, measured_under, picture
from shiftproof.audits.sections.wording import title
from shiftproof.data import ImageSet
from shiftproof.data.base import NOUNS, Noun
from shiftproof.reports.view import Column, Gallery, Picture, Table, View
from shiftproof.shifts.levels import to_bytes
from shiftproof.slices import AnswerCondition, ImageTable, copy_failures
from shiftproof.slices.image_results import CLEAN, SOURCE
from shiftproof.subjects import Subject

SECTION = "mistakes"
NOTE = "mistakes"
"""A note in a store: pictures of mistakes, by shift, severity and place of the image."""
SHOWN = 4
"""Mistakes that are shown under each shift."""
EXPORTED = 20
"""Images that are copied at most, under each shift at each severity."""
SIDE = 64
"""Pixels, at most, of a picture."""


def most_confident(found: ImageAnswers) -> dict[str, ImageTable]:
    """Return the mistakes to show, by shift: those of the highest confidence over severities, every image once."""
    shown: dict[str, ImageTable] = {}
    table = found.mistakes(method=SOURCE, most=SHOWN)
    seen: dict[str, set[object]] = defaultdict(set)
    for row in range(len(table.get("file", ()))):
        shift, file = str(table["shift"][row]), table["file"][row]
        if len(seen[shift]) < SHOWN and file not in seen[shift]:
            seen[shift].add(file)
            for name, values in table.items():
                shown.setdefault(shift, {}).setdefault(name, []).append(values[row])
    order = [CLEAN, *dict.fromkeys(condition.shift for some in found.answers.values() for condition in some)]
    return {shift: shown[shift] for shift in dict.fromkeys(order) if shift in shown}


def drawn(found: ImageAnswers, subject: Subject, seed: int) -> dict[str, str]:
    """Return a note for the store with the mistakes to show, each as the model saw it."""
    pictures: dict[str, str] = {}
    for shift, table in most_confident(found).items():
        for severity in dict.fromkeys(float(str(each)) for each in table["severity"]):
            places = [
                int(str(place))
                for place, level in zip(table["index"], table["severity"], strict=True)
                if level == severity
            ]
            there, applied = measured_under(subject, found.shifts.get(AnswerCondition(shift, severity)))
            for place, batch in zip(places, there.data.subset(places).batches(1, device=there.device), strict=False):
                inputs: Any = batch.inputs if applied is None else applied(batch.inputs, batch.keys, seed=seed)
                made = excerpt(inputs[0]) if isinstance(inputs, list) else picture(inputs[0], SIDE)
                pictures[_key(shift, severity, place)] = made
    return {NOTE: json.dumps(pictures)}


def view(found: ImageAnswers, about: Mapping[str, str], noun: Noun) -> View:
    """Show the most confident mistakes under each shift, with the names of their files."""
    pictures: Mapping[str, str] = json.loads(about.get(NOTE, "{}"))
    show = _gallery if pictures and noun == NOUNS["images"] else _listed
    blocks = [show(shift, table, pictures) for shift, table in most_confident(found).items()]
    return View(
        SECTION,
        "Most confident mistakes",
        f"Which {noun.many} does the model get wrong with the highest confidence?",
        blocks=tuple(blocks),
        notes=(
            "For each shift, the wrong answers of highest confidence over all severities, as the model saw them. "
            f"{noun.many}.csv in the run directory has every {noun.one} under every condition.",
        ),
    )


def export(found: ImageAnswers, subject: Subject, folder: Path) -> list[Path]:
    """Copy the files of the most confident mistakes under each condition; images that have no file are written."""
    copies: list[Path] = []
    for condition, table in found.tables(wrong=True, most=EXPORTED):
        there, _ = measured_under(subject, found.shifts.get(condition))
        data = located(there)
        if condition.method == SOURCE and isinstance(data, ImageSet):
            copies += copy_failures(table, data.paths, folder, partial(_png, data))
    return copies


def _png(data: ImageSet, place: int) -> bytes:
    """Return an image as it is, as a PNG."""
    from PIL import Image

    (batch,) = data.subset([place]).batches(1)
    array = to_bytes(batch.inputs)[0].permute(1, 2, 0).numpy()
    buffer = io.BytesIO()
    Image.fromarray(array.squeeze(2) if array.shape[2] == 1 else array).save(buffer, "PNG")
    return buffer.getvalue()


def _gallery(shift: str, table: ImageTable, pictures: Mapping[str, str]) -> Gallery:
    shown = tuple(
        Picture(pictures[key], caption, right=False) for key, caption in _captions(shift, table) if key in pictures
    )
    return Gallery(_heading(shift), shown)


def _listed(shift: str, table: ImageTable, pictures: Mapping[str, str]) -> Table:
    return Table(
        _heading(shift),
        (Column("mistake"), Column("input")),
        tuple((caption, pictures.get(key, "")) for key, caption in _captions(shift, table)),
    )


def _heading(shift: str) -> str:
    said = title(shift) if shift != CLEAN else "clean"
    return f"{said[0].upper()}{said[1:]}"


def _captions(shift: str, table: ImageTable) -> Iterator[tuple[str, str]]:
    """Yield the key of each row's picture, and what is said below it."""
    for row, file in enumerate(table["file"]):
        severity, sure = float(str(table["severity"][row])), table["confidence"][row]
        told = "" if sure is None else f", confidence {float(str(sure)):.2f}"
        at = f", severity {severity:g}" if severity else ""
        said = f"{file}: {table['label'][row]}, predicted {table['prediction'][row]}{told}{at}"
        yield _key(shift, severity, int(str(table["index"][row]))), said


def _key(shift: str, severity: float, place: int) -> str:
    return f"{shift}@{severity:g}/{place}"
