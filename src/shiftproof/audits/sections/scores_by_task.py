"""What a pass over images comes to, whatever labels ask: a row of counts, a value with its interval, shares of images.

The one table of sections that ask the same of classes and of label maps (`prediction_tasks`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from shiftproof.audits.sections.base import PerImage
from shiftproof.audits.sections.measuring import accuracy, image_means, predictions, tally
from shiftproof.audits.sections.segmentation.map_measuring import overlap_of, predicted_maps, present_of
from shiftproof.measures import Accuracy
from shiftproof.measures.overlap import Overlap
from shiftproof.prediction_tasks import CLASSES, LABEL_MAPS
from shiftproof.runs import Row
from shiftproof.shifts import Shift
from shiftproof.subjects import Subject

Score: TypeAlias = Accuracy | Overlap
"""Both have a `value`, `images`, and an `interval`."""


class ScoreWords(NamedTuple):
    """How a score is spoken of, in sentences with a number in them."""

    measure: str
    still: str
    leaves: str


WORDS: Mapping[str, ScoreWords] = {
    CLASSES.name: ScoreWords("accuracy", "{} are still right", "{} right"),
    LABEL_MAPS.name: ScoreWords("mIoU", "mIoU is {}", "a mIoU of {}"),
}


def _tallied(subject: Subject, places: Sequence[int], shift: Shift | None, seed: int) -> Row:
    return tally(*predictions(subject, places, shift, seed))


_ANSWERED: Mapping[str, Callable[[Subject, Sequence[int], Shift | None, int], Row]] = {
    CLASSES.name: _tallied,
    LABEL_MAPS.name: predicted_maps,
}


def answered(subject: Subject, places: Sequence[int], shift: Shift | None, seed: int) -> Row:
    """Return the counts of the images at some places under a shift."""
    return _ANSWERED[subject.task.name](subject, places, shift, seed)


def score(rows: Sequence[Row]) -> Score | None:
    """Return what rows of `answered` over different images come to; None where there is no image."""
    if rows and "overlap" in rows[0]:
        return overlap_of(rows, present_of(rows[0]))
    return accuracy(rows)


def image_shares(conditions: Sequence[Sequence[Row]]) -> PerImage | None:
    """Return what each image adds to the mean score over conditions, each the rows of the same images."""
    maps = [overlap_of(rows, present_of(rows[0])) for rows in conditions if rows and "overlap" in rows[0]]
    if not maps:
        means = image_means(conditions)
        return None if means is None else PerImage(means)
    added = [found.influence() for found in maps if found is not None]
    return PerImage(np.mean(added, axis=0), limited=False)
