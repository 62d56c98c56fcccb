"""Faults of data that pass for shift: copies under two labels, likely label errors, blank and unreadable images.

They are told and never removed: a user may know better.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shiftproof.data import ImageSet
from shiftproof.data.base import BadFile
from shiftproof.data.contents import content_keys
from shiftproof.runs import Json

BLANK = 1.5 / 255
"""An image whose values have a smaller standard deviation shows nothing."""
SHOWN = 5

Thing = TypeVar("Thing")


@dataclass(frozen=True)
class LabelError:
    """An image whose label is likely wrong, and the class the model suggests.

    Args:
        index: Index of the image.
        label: Its label.
        suggested: The class the model predicts.
        label_probability: Probability of its label.
        suggested_probability: Probability of the suggested class.
    """

    index: int
    label: int
    suggested: int
    label_probability: float
    suggested_probability: float


@dataclass(frozen=True)
class DataQuality:
    """Data quality problems of a set; images are given by index.

    Args:
        images: Number of images.
        copies: Groups of identical or nearly identical images.
        copies_across_classes: The groups with different labels.
        label_errors: Likely label errors.
        blank: Images of one colour.
        unreadable: Files that cannot be decoded.
    """

    images: int
    copies: tuple[tuple[int, ...], ...]
    copies_across_classes: tuple[tuple[int, ...], ...]
    label_errors: tuple[LabelError, ...]
    blank: tuple[int, ...]
    unreadable: tuple[BadFile, ...]

    def sentences(self, files: Sequence[str], classes: Sequence[str]) -> list[str]:
        """Return the findings as sentences; empty if there are none."""
        told = []
        if self.unreadable:
            named = _some(self.unreadable, lambda bad: bad.file)
            told.append(f"{_count(len(self.unreadable), 'file')} cannot be read: {named}.")
        if self.blank:
            told.append(f"{_do(len(self.blank), 'show')} one colour: {_some(self.blank, files.__getitem__)}.")
        if self.copies_across_classes:
            groups = _some(self.copies_across_classes, lambda group: " = ".join(files[place] for place in group))
            told.append(f"{_do(len(self.copies_across_classes), 'occur')} under several labels: {groups}.")
        repeated = sum(len(group) - 1 for group in self.copies)
        if repeated:
            told.append(f"{_do(repeated, 'repeat')} another to the pixel; each copy counts.")
        if self.label_errors:

            def said(error: LabelError) -> str:
                return f"{files[error.index]} ({classes[error.label]}; the model: {classes[error.suggested]})"

            told.append(
                f"The model contradicts the labels of {_count(len(self.label_errors), 'image')} with confidence: "
                f"{_some(self.label_errors, said)}. Wrong labels, or wrong answers: look at them."
            )
        return told

    def to_row(self) -> dict[str, Json]:
        """Return it as JSON-compatible values."""
        return {
            "images": self.images,
            "copies": [list(group) for group in self.copies],
            "copies_across_classes": [list(group) for group in self.copies_across_classes],
            "label_errors": [
                {
                    "index": each.index,
                    "label": each.label,
                    "suggested": each.suggested,
                    "label_probability": each.label_probability,
                    "suggested_probability": each.suggested_probability,
                }
                for each in self.label_errors
            ],
            "blank": list(self.blank),
            "unreadable": [list(each) for each in self.unreadable],
        }


def check_quality(data: ImageSet, probabilities: ArrayLike | None = None, *, batch_size: int = 64) -> DataQuality:
    """Find data quality problems: duplicates, likely label errors, blank and unreadable images.

    Label errors are searched for only with labels and with the probabilities of a model, which should not have been
    trained on these images.

    Args:
        data: A set of images.
        probabilities: Predicted probabilities, [N, K]. Default: do not look for label errors.
        batch_size: Images per batch.
    """
    seen: dict[int, tuple[int, bool]] = {}
    for batch in data.batches(batch_size):
        empty = batch.inputs.flatten(1).std(1, correction=0) < BLANK
        contents = content_keys(batch.inputs)
        seen |= dict(zip(batch.keys.tolist(), zip(contents.tolist(), empty.tolist(), strict=True), strict=True))
    found = [seen.get(key) for key in data.keys.tolist()]  # None of a file that cannot be decoded
    labels = None if data.labels is None or data.labels.ndim > 1 else data.labels.numpy()
    copies = copies_of({place: each[0] for place, each in enumerate(found) if each is not None})
    known = labels is not None and probabilities is not None
    return DataQuality(
        images=len(data),
        copies=copies,
        copies_across_classes=tuple(
            group for group in copies if labels is not None and len(np.unique(labels[list(group)])) > 1
        ),
        label_errors=find_label_errors(probabilities, labels) if known else (),
        blank=tuple(place for place, each in enumerate(found) if each is not None and each[1]),
        unreadable=data.bad_files,
    )


def find_label_errors(probabilities: ArrayLike | None, labels: ArrayLike | None) -> tuple[LabelError, ...]:
    """Find likely label errors by confident learning, the most likely first (Northcutt et al. 2021).

    The threshold of a class is the mean probability of that class over the images labelled with it. An image is
    assigned to the most probable class whose threshold it reaches; if that is not its label, the label is likely wrong
    (the off-diagonal of the confident joint).

    Args:
        probabilities: Predicted probabilities, [N, K].
        labels: The labels, [N].

    >>> shares = [[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.95, 0.05], [0.2, 0.8]]
    >>> [error.index for error in find_label_errors(shares, [0, 0, 1, 1, 1])]
    [3]
    """
    shares, given = np.asarray(probabilities, float), np.asarray(labels, np.int64)
    own = shares[np.arange(len(given)), given]
    counts = np.bincount(given, minlength=shares.shape[1])
    thresholds = np.bincount(given, own, minlength=shares.shape[1]) / np.maximum(counts, 1)
    thresholds[counts == 0] = np.inf
    reached: NDArray[np.float64] = np.where(shares >= thresholds, shares, -1.0)
    best = reached.argmax(1)
    doubtful = np.nonzero((reached.max(1) >= 0) & (best != given))[0]
    ranked = doubtful[np.argsort(own[doubtful] - shares[doubtful, best[doubtful]], kind="stable")]
    return tuple(
        LabelError(place, int(given[place]), int(best[place]), float(own[place]), float(shares[place, best[place]]))
        for place in ranked.tolist()
    )


def doubtful_labels(predicted: ArrayLike, confidence: ArrayLike, labels: ArrayLike) -> tuple[LabelError, ...]:
    """Return what `find_label_errors` does where only each image's answer and its confidence are known.

    The probability of a label that is not the answer is taken for all that is left, so that thresholds are not too low
    and fewer labels are doubted rather than more.

    >>> [each.index for each in doubtful_labels([0, 0, 1, 0], [0.9, 0.8, 0.9, 0.95], [0, 0, 1, 1])]
    [3]
    """
    said, sure, given = np.asarray(predicted, np.int64), np.asarray(confidence, float), np.asarray(labels, np.int64)
    own = np.where(said == given, sure, 1 - sure)
    count = max(int(said.max(initial=-1)), int(given.max(initial=-1))) + 1
    counts = np.bincount(given, minlength=count)
    thresholds = np.bincount(given, own, minlength=count) / np.maximum(counts, 1)
    thresholds[counts == 0] = np.inf
    doubtful = np.nonzero((said != given) & (sure >= thresholds[said]))[0]
    ranked = doubtful[np.argsort(own[doubtful] - sure[doubtful], kind="stable")]
    return tuple(
        LabelError(place, int(given[place]), int(said[place]), float(own[place]), float(sure[place]))
        for place in ranked.tolist()
    )


def in_several_classes(contents: ArrayLike, labels: ArrayLike | None) -> int:
    """Return how many inputs have the content of one with another label.

    >>> in_several_classes([7, 7, 8, 9, 9], [0, 1, 0, 1, 1])
    2
    """
    if labels is None:
        return 0
    given = np.asarray(labels)
    groups = copies_of(dict(enumerate(np.asarray(contents).tolist())))
    return sum(len(group) for group in groups if len(np.unique(given[list(group)])) > 1)


def distinct_inputs(contents: ArrayLike) -> float:
    """Return how many inputs without copies would say as much of a mean: n^2 / sum of m^2 over groups of m equal ones.

    A copy gets the answer of its original, so that the variance of a mean over n inputs grows by sum(m^2) / n.

    >>> distinct_inputs([7, 7, 8, 8]), distinct_inputs([7, 8, 9])
    (2.0, 3.0)
    """
    sizes = np.unique(np.asarray(contents), return_counts=True)[1].astype(float)
    return float(sizes.sum() ** 2 / (sizes**2).sum())


def copies_of(contents: Mapping[int, object]) -> tuple[tuple[int, ...], ...]:
    """Return the places of equal images, group by group."""
    groups: dict[object, list[int]] = {}
    for place, content in contents.items():
        groups.setdefault(content, []).append(place)
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)


def _do(count: int, verb: str) -> str:
    return f"{_count(count, 'image')} {verb}{'s' * (count == 1)}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _some(things: Sequence[Thing], word: Callable[[Thing], str]) -> str:
    return ", ".join(map(word, things[:SHOWN])) + (f" and {len(things) - SHOWN:,} more" if len(things) > SHOWN else "")
