"""Results of an audit image by image, made of what its tasks kept: tables, files, and rows of mistakes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shiftproof.audits.audited_images import AuditedImages, group_of
from shiftproof.audits.sections.adaptation import AdaptedStream
from shiftproof.audits.sections.base import Condition
from shiftproof.audits.sections.clean import CleanSlice
from shiftproof.audits.sections.corrupted_images import CorruptedPart
from shiftproof.audits.sections.packed_answers import PackedAnswers, answers_of
from shiftproof.audits.sections.shift_names import cell_of
from shiftproof.errors import ConfigurationError
from shiftproof.runs import AnyTask, Result
from shiftproof.slices import AnswerCondition, Answered, ImageTable, failures, image_tables, write_tables
from shiftproof.slices.image_results import SOURCE


class _Asked(NamedTuple):
    """What a task asked a model: under which condition, of which images, and whether another task asks the same."""

    condition: AnswerCondition
    shift: Condition | None
    places: Sequence[int]
    again: bool = False


@dataclass(frozen=True)
class ImageAnswers:
    """What was said of every image under every condition, by group of images; `shifts` are what images went through."""

    images: AuditedImages
    answers: Mapping[str, Mapping[AnswerCondition, Answered]]
    shifts: Mapping[AnswerCondition, Condition]

    @classmethod
    def of(cls, images: AuditedImages, results: Iterable[Result]) -> ImageAnswers:
        """Take the answers that results hold; a task some of whose images could not be read tells of none."""
        parts: dict[tuple[bool, str, AnswerCondition], list[tuple[Sequence[int], PackedAnswers]]] = defaultdict(list)
        shifts: dict[AnswerCondition, Condition] = {}
        for result in results:
            asked = _asked(result.task)
            found = None if asked is None or result.row is None else answers_of(result.row)
            if asked is None or found is None or len(found.predicted) != len(asked.places):
                continue
            parts[asked.again, group_of(asked.shift), asked.condition].append((asked.places, found))
            if asked.shift is not None:
                shifts[asked.condition] = asked.shift
        answers: dict[str, dict[AnswerCondition, Answered]] = defaultdict(dict)
        for (again, group, condition), some in parts.items():
            if not again or (False, group, condition) not in parts:
                answers[group][condition] = _joined(some)
        return cls(images, answers, shifts)

    def tables(self, *, wrong: bool = False, most: int | None = None) -> Iterator[tuple[AnswerCondition, ImageTable]]:
        """Yield every condition with its rows; with `wrong`, of mistakes, the most confident ones up to so many."""
        for group, answers in self.answers.items():
            files, labels = self.images.files[group], self.images.labels[group]
            made = image_tables(files, answers, labels=labels, classes=self.images.classes, wrong=wrong, most=most)
            yield from zip(answers, made, strict=True)

    def mistakes(self, *, most: int | None = None, **wanted: object) -> ImageTable:
        """Return the rows that are wrong, the most confident first; under each condition at most so many.

        `wanted` are a shift, a severity or a method.
        """
        joined: ImageTable = {}
        for condition, table in self.tables(wrong=True, most=most):
            if all(value is None or getattr(condition, name) == value for name, value in wanted.items()):
                for name, values in table.items():
                    joined.setdefault(name, []).extend(values)
        return failures(joined) if joined else joined

    def write(self, folder: Path, inputs: str) -> tuple[Path, ...]:
        """Write images.csv, of texts texts.csv, and the same as Parquet where pyarrow is installed."""
        if not self.answers:
            return ()
        return write_tables(lambda: (table for _, table in self.tables()), folder, inputs=inputs)


def frame(table: ImageTable) -> Any:
    """Return a table as a pandas DataFrame."""
    try:
        import pandas
    except ImportError as error:
        raise ConfigurationError(
            "A table as a DataFrame needs pandas.",
            fix="pip install pandas; without it images.csv in the run directory has the same rows, and "
            "shiftproof.slices.read_csv reads it",
        ) from error
    return pandas.DataFrame(table)


def answers_planned(tasks: Iterable[AnyTask]) -> int:
    """Return how many answers to single images these tasks will keep."""
    return sum(len(asked.places) for task in tasks if (asked := _asked(task)) is not None)


def _asked(task: AnyTask) -> _Asked | None:
    """Return what a task asked; None of one that does not keep what was said of single images."""
    if isinstance(task, CleanSlice):
        return _Asked(AnswerCondition(), None, range(task.start, task.stop))
    if isinstance(task, CorruptedPart):
        return _Asked(AnswerCondition(*cell_of(task.shift)), task.shift, task.places)
    if isinstance(task, AdaptedStream):
        method = task.method.name
        return _Asked(
            AnswerCondition(*cell_of(task.shift), method), task.shift, range(task.images), again=method == SOURCE
        )
    return None


def _joined(parts: Sequence[tuple[Sequence[int], PackedAnswers]]) -> Answered:
    """Return the answers of several tasks as those of all their images, in the order of the images."""
    places = np.concatenate([np.asarray(some, np.int64) for some, _ in parts])
    order = np.argsort(places, kind="stable")
    predicted, confidence = (np.concatenate([found[place] for _, found in parts])[order] for place in range(2))
    return Answered(predicted, confidence, places=places[order])
