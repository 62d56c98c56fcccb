"""Where exactly it fails: groups of images on which the model is worse than on the rest, and faults of the data.

It asks nothing of the model that other sections do not: what it adds are facts about the images themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from shiftproof.audits.numbers import Number
from shiftproof.audits.sections.base import CLEAN, READ, Measurement, Scope, Section, Work
from shiftproof.audits.sections.clean import CleanSlice
from shiftproof.audits.sections.corrupted_images import CorruptedSlice
from shiftproof.audits.sections.measuring import naming, rows
from shiftproof.audits.sections.packed_answers import answers_of
from shiftproof.audits.sections.wording import graded
from shiftproof.data import as_images
from shiftproof.data.contents import content_keys
from shiftproof.reports.view import Column, Sentence, Table, View
from shiftproof.runs import Json, Result, Row
from shiftproof.shifts import Shift
from shiftproof.slices import DataQuality, WeakSlice, file_columns, find_weak_slices, image_statistics
from shiftproof.slices.data_quality import BLANK, copies_of, doubtful_labels
from shiftproof.slices.image_results import Value
from shiftproof.subjects import Subject

TOLD, SHOWN = 2, 20
"""Slices that the verdict tells of, and that the table lists."""
MIDDLE = 3.0


@dataclass(frozen=True)
class ImageFacts(Measurement):
    """What is known of a slice of the images besides what the model says: statistics, files, contents."""

    kind = "failures.facts"
    start: int
    stop: int

    def measure(self, subject: Subject) -> Row:
        """Return columns of facts, names, labels, digests of pixels, and which images show one colour."""
        from shiftproof.audits.audited_images import located, names_of

        places = range(self.start, self.stop)
        held, known = as_images(subject.data).subset(places), as_images(located(subject)).subset(places)
        batches = [batch.inputs for batch in held.batches(subject.batch_size, device=subject.device)]
        blank = [images.flatten(1).std(1, correction=0) < BLANK for images in batches]
        parts = [image_statistics(images) for images in batches]
        columns: dict[str, Json] = {
            name: np.concatenate([part[name] for part in parts]).round(6).tolist() for name in parts[0]
        }
        columns |= {each: list(values) for each, values in file_columns(known.names, known.paths).items()}
        name, labels = naming(subject), [] if held.labels is None else held.labels.tolist()
        return {
            "columns": columns,
            "files": {"names": list(names_of(known, subject.places[self.start : self.stop]))},
            "labels": {"numbers": labels, "names": {str(each): name(each) for each in range(len(held.classes))}},
            "pixels": {
                "contents": [str(key) for images in batches for key in content_keys(images).tolist()],
                "blank": [each for some in blank for each in some.tolist()],
            },
        }

    def work(self) -> Work:
        """Count reading the slice."""
        return [(READ, self.stop - self.start)]


class WeakGroups(Section):
    """Weak slices, and data that passes for shift."""

    name = "failures"
    title = "Weak slices and data quality"
    question = "On which groups of images is the model worse than on the rest, and are there faults in the data?"
    numbers = (
        Number("weak_slices", "groups of images on which accuracy is lower beyond chance", "lower", "count"),
        Number("weakest_slice_accuracy", "accuracy on the group of the largest sure loss", given="where there is one"),
        Number("label_doubts", "images whose labels the model contradicts with confidence", None, "count"),
    )

    def plan(self, scope: Scope) -> Iterator[Measurement]:
        """Plan the facts; what was said of the images clean and under shifts is measured by other sections."""
        for start, stop in scope.slices():
            yield ImageFacts(start, stop)
            yield CleanSlice(start, stop)
            for shift in _shifts(scope):
                yield CorruptedSlice(shift, start, stop, scope.settings.seed)

    def view(self, results: Sequence[Result]) -> View:
        """Tell the weakest groups, how bad a group must be to be found, and what is wrong with the data."""
        facts = sorted(rows(results, ImageFacts), key=lambda entry: entry[0].start)
        answers = _answers(results, [(task.start, task.stop) for task, _ in facts])
        if not facts or CLEAN not in answers:
            return View(self.name, self.title, self.question, notes=("Not every image could be told from the others.",))
        labels = np.array(_joined(facts, "labels", "numbers"), np.int64)
        names = cast(Mapping[str, str], cast(Mapping[str, Json], facts[0][1]["labels"])["names"])
        classes = [names.get(str(number), str(number)) for number in range(max(len(names), int(labels.max()) + 1))]
        columns = _columns([row for _, row in facts])
        right = {shift: predicted == labels for shift, (predicted, _) in answers.items()}
        found = find_weak_slices(right, columns, labels=labels, classes=classes)
        quality = _quality(facts, labels, *answers[CLEAN])
        told = quality.sentences([str(each) for each in _joined(facts, "files", "names")], classes)
        return View(
            self.name,
            self.title,
            self.question,
            verdict=tuple(map(_told, found.slices[:TOLD])),
            blocks=(slice_table(found.slices[:SHOWN]),) if found.slices else (),
            notes=(
                *([] if found.slices else ["No weak slice was found."]),
                found.power_note,
                "Groups are bins of image statistics, sub-folders, EXIF and classes, and pairs of them, clean and "
                "under each shift at a middle severity; each is compared with the rest of what it is part of "
                "(Fisher's exact test, false discovery rate 5% over all that were tested).",
                *(told or ["No fault of the data was found."]),
            ),
            numbers={
                "weak_slices": float(len(found)),
                **({"weakest_slice_accuracy": found.slices[0].accuracy} if found.slices else {}),
                "label_doubts": float(len(quality.label_errors)),
            },
        )


def _shifts(scope: Scope) -> tuple[Shift, ...]:
    """Return the shifts that groups are looked at under: those that all images meet, at the severity in the middle."""
    if scope.per_image or scope.cells:
        return ()
    severities = scope.settings.severities
    return scope.at(min(severities, key=lambda level: abs(level - MIDDLE)))


def _answers(
    results: Sequence[Result], wanted: Sequence[tuple[int, int]]
) -> dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Return what was said of all images, by shift; a shift that lacks some is left out."""
    parts: dict[str, dict[tuple[int, int], tuple[NDArray[np.int64], NDArray[np.float64]]]] = {}
    found: list[tuple[CleanSlice | CorruptedSlice, Row]] = [*rows(results, CleanSlice), *rows(results, CorruptedSlice)]
    for task, row in found:
        shift = CLEAN if isinstance(task, CleanSlice) else graded(task.shift.label)
        said = answers_of(row)
        if said is not None and len(said.predicted) == task.stop - task.start:
            parts.setdefault(shift, {})[task.start, task.stop] = said
    return {
        shift: (
            np.concatenate([some[part][0] for part in wanted]),
            np.concatenate([some[part][1] for part in wanted]),
        )
        for shift, some in parts.items()
        if wanted and all(part in some for part in wanted)
    }


def _joined(facts: Sequence[tuple[ImageFacts, Row]], group: str, name: str) -> list[Json]:
    return [value for _, row in facts for value in cast(Mapping[str, Sequence[Json]], row[group])[name]]


def _columns(found: Sequence[Row]) -> dict[str, list[Value]]:
    """Return all columns; what a slice has no value of is missing there."""
    parts = [cast(Mapping[str, list[Value]], row["columns"]) for row in found]
    counts = [len(next(iter(part.values()))) for part in parts]
    return {
        name: [value for part, count in zip(parts, counts, strict=True) for value in part.get(name, [None] * count)]
        for name in dict.fromkeys(name for part in parts for name in part)
    }


def _quality(
    facts: Sequence[tuple[ImageFacts, Row]],
    labels: NDArray[np.int64],
    predicted: NDArray[np.int64],
    confidence: NDArray[np.float64],
) -> DataQuality:
    copies = copies_of(dict(enumerate(_joined(facts, "pixels", "contents"))))
    return DataQuality(
        images=len(labels),
        copies=copies,
        copies_across_classes=tuple(group for group in copies if len(np.unique(labels[list(group)])) > 1),
        label_errors=doubtful_labels(predicted, confidence, labels),
        blank=tuple(place for place, blank in enumerate(_joined(facts, "pixels", "blank")) if blank),
        unreadable=(),  # those are left out before anything is measured, and told with the data
    )


def slice_table(slices: Sequence[WeakSlice]) -> Table:
    """Tabulate weak slices: accuracy, that of the rest, and what is lost, for sure and on average."""
    return Table(
        "Weak slices, largest certain loss first",
        (
            Column("slice"),
            Column("images", "number"),
            Column("accuracy", "percent"),
            Column("interval"),
            Column("accuracy of the rest", "percent"),
            Column("points below the rest", "number"),
            Column("at least, points", "number"),
        ),
        tuple(
            (
                each.name,
                each.images,
                each.accuracy,
                f"{100 * each.low:.0f} to {100 * each.high:.0f}%",
                each.rest,
                round(100 * each.effect, 1),
                round(100 * max(0.0, each.effect_low), 1),
            )
            for each in slices
        ),
    )


def _told(found: WeakSlice) -> Sentence:
    return Sentence(f"Weak slice: {replace(found, also=())}.", "watch")
