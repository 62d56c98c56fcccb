"""Results image by image: one row per image and condition, as columns that tables, frames and files are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shiftproof.errors import DataError
from shiftproof.measures.estimation import probabilities

CLEAN = "clean"
SOURCE = "source"

Value: TypeAlias = "str | float | int | bool | None"
Column: TypeAlias = "Sequence[Value] | NDArray[Any]"
"""A value for every image."""
ImageTable: TypeAlias = dict[str, list[Value]]
"""Columns by name, each with one value per row: what `pandas.DataFrame` and `pyarrow.table` take as it is."""


class AnswerCondition(NamedTuple):
    """Under what images were answered: a shift at a severity, and the method that adapted the model."""

    shift: str = CLEAN
    severity: float = 0.0
    method: str = SOURCE


@dataclass(frozen=True)
class Answered:
    """What a model said of images: its answer and confidence, and more where all its scores are known, each [N]."""

    predicted: NDArray[np.int64]
    confidence: NDArray[np.float64]
    label_probability: NDArray[np.float64] | None = None
    margin: NDArray[np.float64] | None = None
    entropy: NDArray[np.float64] | None = None
    loss: NDArray[np.float64] | None = None

    @classmethod
    def of(cls, logits: ArrayLike, labels: ArrayLike | None = None) -> Answered:
        """Take the answers of logits [N, K].

        >>> Answered.of([[0.0, 2.0]], [0]).predicted.tolist()
        [1]
        """
        shares = probabilities(logits)
        two = -np.sort(-shares, 1)[:, :2]
        own = None if labels is None else shares[np.arange(len(shares)), np.asarray(labels)]
        return cls(
            predicted=shares.argmax(1),
            confidence=two[:, 0],
            label_probability=own,
            margin=two[:, 0] - two[:, 1],
            entropy=-(shares * np.log(np.maximum(shares, 1e-300))).sum(1),
            loss=None if own is None else -np.log(np.maximum(own, 1e-300)),
        )


def image_table(
    files: Sequence[str],
    answers: Mapping[AnswerCondition, Answered],
    *,
    labels: ArrayLike | None = None,
    classes: Sequence[str] = (),
    columns: Mapping[str, Column] | None = None,
) -> ImageTable:
    """Return one row per image and condition: what it is, what the model said, whether that is right.

    `flipped` are images that are right clean and wrong now; `breaks_at` is the smallest severity of the same shift and
    method at which an image is wrong. `columns` hold one value per image.

    >>> answers = {AnswerCondition(): Answered.of([[2.0, 0.0], [0.0, 1.0]], [0, 0])}
    >>> table = image_table(["a.png", "b.png"], answers, labels=[0, 0], classes=["cat", "dog"])
    >>> table["file"], table["prediction"], table["right"]
    (['a.png', 'b.png'], ['cat', 'dog'], [True, False])
    """
    truth = None if labels is None else np.asarray(labels, np.int64)
    for name, held in {"labels": truth, **(columns or {})}.items():
        if held is not None and len(np.asarray(held)) != len(files):
            got = f"{len(np.asarray(held))} values of {name}"
            raise DataError("A column does not fit the images.", expected=f"{len(files)} values", got=got)
    own = {name: np.asarray(held).tolist() for name, held in (columns or {}).items()}
    clean = {condition.method: found for condition, found in answers.items() if condition.shift == CLEAN}
    breaks = {} if truth is None else _breaking(answers, truth)
    made: ImageTable = {}
    for condition, found in answers.items():
        before = clean.get(condition.method, clean.get(SOURCE))
        rows = _rows(files, condition, found, truth, classes, before, breaks)
        for name, values in {**rows, **own}.items():
            made.setdefault(name, []).extend(values)
    return made


def failures(table: ImageTable, *, most: int | None = None) -> ImageTable:
    """Return the rows that are wrong, the most confident first; under each shift and method at most so many.

    >>> failures({"shift": ["clean"] * 2, "right": [True, False], "confidence": [0.9, 0.8], "file": ["a", "b"]})["file"]
    ['b']
    """
    confidence = table["confidence"]
    wrong = [row for row, right in enumerate(table["right"]) if right is False]
    wrong.sort(key=lambda row: -(value if isinstance(value := confidence[row], float) else 0.0))
    seen: dict[tuple[Value, ...], int] = {}
    kept = []
    for row in wrong:
        condition = tuple(table[name][row] for name in ("shift", "severity", "method") if name in table)
        seen[condition] = seen.get(condition, 0) + 1
        if most is None or seen[condition] <= most:
            kept.append(row)
    return {name: [values[row] for row in kept] for name, values in table.items()}


def _rows(
    files: Sequence[str],
    condition: AnswerCondition,
    found: Answered,
    truth: NDArray[np.int64] | None,
    classes: Sequence[str],
    clean: Answered | None,
    breaks: Mapping[tuple[str, str], Sequence[Value]],
) -> ImageTable:
    count = len(files)
    if len(found.predicted) != count:
        got = f"{len(found.predicted)} answers under {condition.shift}"
        raise DataError("Answers do not fit the images.", expected=f"{count} answers", got=got)
    right = None if truth is None else found.predicted == truth
    known = clean is not None and truth is not None
    flipped = (clean.predicted == truth) & ~right if clean is not None and right is not None else None
    return {
        "index": list(range(count)),
        "file": list(files),
        "label": _named(truth, classes, count),
        "prediction": _named(found.predicted, classes, count),
        "right": _listed(right, count),
        "confidence": _listed(found.confidence, count),
        "label_probability": _listed(found.label_probability, count),
        "margin": _listed(found.margin, count),
        "prediction_entropy": _listed(found.entropy, count),
        "loss": _listed(found.loss, count),
        "shift": [condition.shift] * count,
        "severity": [float(condition.severity)] * count,
        "method": [condition.method] * count,
        "clean_prediction": _named(None if clean is None else clean.predicted, classes, count),
        "flipped": _listed(flipped, count) if known else [None] * count,
        "breaks_at": list(breaks.get((condition.shift, condition.method), [None] * count)),
    }


def _breaking(
    answers: Mapping[AnswerCondition, Answered], truth: NDArray[np.int64]
) -> dict[tuple[str, str], list[Value]]:
    """Return, by shift and method, the smallest severity at which each image is wrong; None where at none."""
    found: dict[tuple[str, str], list[Value]] = {}
    for condition in sorted(answers, key=lambda each: -each.severity):
        held = found.setdefault((condition.shift, condition.method), [None] * len(truth))
        for place in np.nonzero(answers[condition].predicted != truth)[0].tolist():
            held[place] = float(condition.severity)
    return found


def _named(numbers: NDArray[np.int64] | None, classes: Sequence[str], count: int) -> list[Value]:
    if numbers is None:
        return [None] * count
    return [classes[number] if number < len(classes) else str(number) for number in numbers.tolist()]


def _listed(values: NDArray[np.generic] | None, count: int) -> list[Value]:
    """Return values as plain ones; what is not a number is nothing."""
    if values is None:
        return [None] * count
    return [None if isinstance(value, float) and value != value else value for value in values.tolist()]  # noqa: PLR0124
