"""Results image by image: one row per image and condition, as columns that tables, frames and files are made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
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
MEASURES = ("label_probability", "margin", "entropy", "loss")
"""What is told of an answer where all scores are known."""
_COLUMNS = {"entropy": "prediction_entropy"}
"""Other names of columns: an image's own entropy is a statistic of it."""


class AnswerCondition(NamedTuple):
    """The condition of a prediction: a shift at a severity, and the adaptation method.

    Args:
        shift: The name of the shift.
        severity: Its severity.
        method: The adaptation method, or `source` for the unadapted model.

    >>> AnswerCondition("fog", 3.0)
    AnswerCondition(shift='fog', severity=3.0, method='source')
    """

    shift: str = CLEAN
    severity: float = 0.0
    method: str = SOURCE


@dataclass(frozen=True)
class Answered:
    """Predictions of a model on N images; further fields are None unless all scores are known.

    `places` holds the indices of the images if they are a subset.

    Args:
        predicted: The predicted class.
        confidence: Its probability.
        label_probability: Probability of the label.
        margin: Probability of the most likely class minus that of the second.
        entropy: Entropy of the prediction, in nats.
        loss: Cross-entropy loss.
        places: Indices of these images among all; None if they are all.

    >>> Answered.of([[2.0, 0.0], [0.0, 1.0]], [0, 0]).predicted.tolist()
    [0, 1]
    """

    predicted: NDArray[np.int64]
    confidence: NDArray[np.float64]
    label_probability: NDArray[np.float64] | None = None
    margin: NDArray[np.float64] | None = None
    entropy: NDArray[np.float64] | None = None
    loss: NDArray[np.float64] | None = None
    places: NDArray[np.int64] | None = None

    @classmethod
    def of(cls, logits: ArrayLike, labels: ArrayLike | None = None) -> Answered:
        """Return the predictions of logits [N, K].

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

    def at(self, chosen: NDArray[np.int64]) -> Answered:
        """Return the predictions for some of the images."""
        held: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        return replace(self, **{name: values[chosen] for name, values in held.items() if values is not None})


def image_table(
    files: Sequence[str],
    answers: Mapping[AnswerCondition, Answered],
    *,
    labels: ArrayLike | None = None,
    classes: Sequence[str] = (),
    columns: Mapping[str, Column] | None = None,
) -> ImageTable:
    """Return a table with one row per image and condition: file, label, prediction, and whether it is correct.

    The column `flipped` marks images predicted correctly when clean and wrongly now; `breaks_at` is the smallest
    severity of the same shift and method at which an image is predicted wrongly.

    Args:
        files: The name of each image.
        answers: Predictions under each condition.
        labels: Class indices, [N].
        classes: Class names.
        columns: Further values per image, by the name of the column.

    >>> answers = {AnswerCondition(): Answered.of([[2.0, 0.0], [0.0, 1.0]], [0, 0])}
    >>> table = image_table(["a.png", "b.png"], answers, labels=[0, 0], classes=["cat", "dog"])
    >>> table["file"], table["prediction"], table["right"]
    (['a.png', 'b.png'], ['cat', 'dog'], [True, False])
    """
    made: ImageTable = {}
    for part in image_tables(files, answers, labels=labels, classes=classes, columns=columns):
        for name, values in part.items():
            made.setdefault(name, []).extend(values)
    return made


def image_tables(
    files: Sequence[str],
    answers: Mapping[AnswerCondition, Answered],
    *,
    labels: ArrayLike | None = None,
    classes: Sequence[str] = (),
    columns: Mapping[str, Column] | None = None,
    wrong: bool = False,
    most: int | None = None,
) -> Iterator[ImageTable]:
    """Yield the rows of `image_table` one condition at a time, to save memory on large sets.

    With `wrong`, only wrong predictions are included, the most confident first.

    Args:
        files: The name of each image.
        answers: Predictions under each condition.
        labels: Class indices, [N].
        classes: Class names.
        columns: Further values per image, by the name of the column.
        wrong: Whether to include only wrong predictions.
        most: With `wrong`, the largest number of rows per condition. Default: all.
    """
    truth = None if labels is None else np.asarray(labels, np.int64)
    for name, held in {"labels": truth, **(columns or {})}.items():
        if held is not None and len(np.asarray(held)) != len(files):
            got = f"{len(np.asarray(held))} values of {name}"
            raise DataError("A column has the wrong length.", expected=f"{len(files)} values", got=got)
    own = {name: np.asarray(held, dtype=object) for name, held in (columns or {}).items()}
    measures = [name for name in MEASURES if any(getattr(found, name) is not None for found in answers.values())]
    where = {condition: _places(condition, found, len(files)) for condition, found in answers.items()}
    before = {
        condition.method: _spread(found.predicted, where[condition], len(files))
        for condition, found in answers.items()
        if condition.shift == CLEAN
    }
    breaks = {} if truth is None else _breaking(answers, where, truth)
    for condition, whole in answers.items():
        found, places = whole, where[condition]
        if wrong and truth is not None:
            kept = _surest(found, found.predicted != truth[places], most)
            found, places = found.at(kept), places[kept]
        label = None if truth is None else truth[places]
        clean = before.get(condition.method, before.get(SOURCE))
        named = {"index": places.tolist(), "file": [files[place] for place in places.tolist()]}
        rows = _rows(condition, found, label, classes, measures)
        changes = _changes(found, label, classes, None if clean is None else clean[places])
        broken = breaks.get((condition.shift, condition.method))
        rows |= {**changes, "breaks_at": _listed(None if broken is None else broken[places], len(places))}
        yield {**named, **rows, **{name: held[places].tolist() for name, held in own.items()}}


def failures(table: ImageTable, *, most: int | None = None) -> ImageTable:
    """Return the rows with wrong predictions, the most confident first, up to a number per shift and method.

    Args:
        table: A table of `image_table`.
        most: Largest number of rows per shift and method. Default: all.

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
    condition: AnswerCondition,
    found: Answered,
    truth: NDArray[np.int64] | None,
    classes: Sequence[str],
    measures: Sequence[str],
) -> ImageTable:
    count = len(found.predicted)
    return {
        "label": _named(truth, classes, count),
        "prediction": _named(found.predicted, classes, count),
        "right": _listed(None if truth is None else found.predicted == truth, count),
        "confidence": _listed(found.confidence, count),
        **{_COLUMNS.get(name, name): _listed(getattr(found, name), count) for name in measures},
        "shift": [condition.shift] * count,
        "severity": [float(condition.severity)] * count,
        "method": [condition.method] * count,
    }


def _changes(
    found: Answered, truth: NDArray[np.int64] | None, classes: Sequence[str], clean: NDArray[np.int64] | None
) -> ImageTable:
    """Return what was said of the images before the shift, and whether that was right and is not now."""
    count = len(found.predicted)
    if clean is None:
        return {"clean_prediction": [None] * count, "flipped": [None] * count}
    flipped = _listed(None if truth is None else (clean == truth) & (found.predicted != truth), count)
    known = (clean >= 0).tolist()
    return {
        "clean_prediction": [
            name if there else None for name, there in zip(_named(clean, classes, count), known, strict=True)
        ],
        "flipped": [value if there else None for value, there in zip(flipped, known, strict=True)],
    }


def _breaking(
    answers: Mapping[AnswerCondition, Answered],
    where: Mapping[AnswerCondition, NDArray[np.int64]],
    truth: NDArray[np.int64],
) -> dict[tuple[str, str], NDArray[np.float64]]:
    """Return, by shift and method, the smallest severity at which each image is wrong; NaN where at none."""
    found: dict[tuple[str, str], NDArray[np.float64]] = {}
    for condition in sorted(answers, key=lambda each: -each.severity):
        held = found.setdefault((condition.shift, condition.method), np.full(len(truth), np.nan))
        places = where[condition]
        held[places[answers[condition].predicted != truth[places]]] = condition.severity
    return found


def _places(condition: AnswerCondition, found: Answered, count: int) -> NDArray[np.int64]:
    """Return which images were answered."""
    places = np.arange(count) if found.places is None else found.places
    if len(found.predicted) != len(places):
        got = f"{len(found.predicted)} answers under {condition.shift}"
        raise DataError("The predictions have the wrong length.", expected=f"{len(places)} answers", got=got)
    return places


def _surest(found: Answered, wrong: NDArray[np.bool_], most: int | None) -> NDArray[np.int64]:
    """Return where answers are wrong, the most confident first; what is not a number is no confidence."""
    places = np.nonzero(wrong)[0]
    return places[np.argsort(-np.nan_to_num(found.confidence[places]), kind="stable")][:most]


def _spread(values: NDArray[np.int64], places: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return values of all images; -1 of those that were not asked about."""
    spread = np.full(count, -1, np.int64)
    spread[places] = values
    return spread


def _named(numbers: NDArray[np.int64] | None, classes: Sequence[str], count: int) -> list[Value]:
    if numbers is None:
        return [None] * count
    return [classes[number] if number < len(classes) else str(number) for number in numbers.tolist()]


def _listed(values: NDArray[np.generic] | None, count: int) -> list[Value]:
    """Return values as plain ones; what is not a number is nothing."""
    if values is None:
        return [None] * count
    return [None if isinstance(value, float) and value != value else value for value in values.tolist()]  # noqa: PLR0124
