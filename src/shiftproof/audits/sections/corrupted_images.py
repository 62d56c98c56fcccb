"""What the section on corruptions measures: images under shifts, all of them under all, or each under a few."""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftproof.audits.sections.allotment import allot
from shiftproof.audits.sections.base import Condition, Measurement, Scope, Work, passes
from shiftproof.audits.sections.measuring import (
    PICTURE_SIDE,
    excerpt,
    hits_of,
    is_imagenet,
    measured_under,
    naming,
    picture,
    predictions,
    rows,
    tally,
)
from shiftproof.audits.sections.packed_answers import packed_answers
from shiftproof.audits.sections.shift_names import named
from shiftproof.audits.suite_cells import CLEAN, SuiteCell
from shiftproof.models import logits
from shiftproof.runs import Json, Result, Row
from shiftproof.shifts import Shift
from shiftproof.subjects import Subject

EXAMPLE_SIDE = 64
"""Pixels, at most, of the examples of single cells, of which there are many."""


class CorruptedPart(Measurement):
    """Some of the images under a shift, or of those of a suite."""

    shift: Condition
    seed: int

    @property
    @abstractmethod
    def places(self) -> Sequence[int]:
        """Where these images are among all."""

    def measure(self, subject: Subject) -> Row:
        """Return the tally of the images, and whether they are ImageNet's: there is a mean corruption error of it."""
        there, shift = measured_under(subject, self.shift)
        labels, predicted, confidences = predictions(there, self.places, shift, self.seed)
        found = {**tally(labels, predicted, confidences), **packed_answers(predicted, confidences)}
        whole = self.shift.imagenet if isinstance(self.shift, SuiteCell) else is_imagenet(subject)
        return {**found, "imagenet": True} if whole else found

    def work(self) -> Work:
        """Count a pass of the images under their shift."""
        return passes(len(self.places), self.shift)


@dataclass(frozen=True)
class CorruptedSlice(CorruptedPart):
    """A slice of the images under a shift, or of those of a suite."""

    kind = "corruptions"
    shift: Condition
    start: int
    stop: int
    seed: int

    @property
    def places(self) -> Sequence[int]:
        """All from `start` to `stop`."""
        return range(self.start, self.stop)


@dataclass(frozen=True)
class CorruptedShare(CorruptedPart):
    """The images of a slice that are put under a shift, where each is put under few."""

    kind = "corruptions.share"
    shift: Condition
    chosen: tuple[int, ...]
    seed: int

    @property
    def places(self) -> Sequence[int]:
        """Those that were chosen."""
        return self.chosen

    def parameters(self) -> dict[str, Json]:
        """Return the fields, with the first and the last place for all."""
        return {**super().parameters(), "chosen": f"{len(self.chosen)} from {self.chosen[0]} to {self.chosen[-1]}"}


@dataclass(frozen=True)
class Examples(Measurement):
    """The first images under a shift, or of a suite's, to be looked at."""

    kind = "corruptions.examples"
    shift: Condition
    images: int
    seed: int

    def measure(self, subject: Subject) -> Row:
        """Return a few corrupted images with what the model says of them."""
        count = self.images
        subject, shift = measured_under(subject, self.shift)
        (batch,) = subject.data.subset(range(count)).batches(count, device=subject.device)
        images: Any = batch.inputs if shift is None else shift(batch.inputs, batch.keys, seed=self.seed)
        confidence, predicted = logits(subject.fast_model, images).softmax(1).max(1)
        name = naming(subject)
        labels = batch.labels.tolist() if batch.labels is not None else []
        texts = isinstance(images, list)
        side = PICTURE_SIDE if count > 1 else EXAMPLE_SIDE
        examples: list[Json] = [
            {
                **({"text": excerpt(image)} if texts else {"png": picture(image, side)}),
                "label": name(label),
                "predicted": name(guess),
                "confidence": round(sure, 3),
            }
            for image, label, guess, sure in zip(images, labels, predicted.tolist(), confidence.tolist(), strict=True)
        ]
        return {"texts" if texts else "pictures": examples}

    def work(self) -> Work:
        """Count a pass of the images under their shift."""
        return passes(self.images, self.shift)


def parts_of(results: Sequence[Result]) -> list[tuple[CorruptedPart, Row]]:
    """Return what was measured, with the images it was measured on."""
    return [*rows(results, CorruptedSlice), *rows(results, CorruptedShare)]


def allotted(scope: Scope) -> dict[Shift, tuple[int, ...]]:
    """Return the places of the images under each shift of the grid, where each image is put under few."""
    settings = scope.settings
    kinds = [[replace(shift, severity=level) for level in settings.severities] for shift in settings.shifts]
    kinds += [[shift] for shift in settings.fixed]
    places = allot(settings.levels, scope.images, scope.per_image or 0, settings.seed)
    return dict(zip(chain(*kinds), chain(*places), strict=True))


def rates_by_image(found: Sequence[tuple[CorruptedPart, Row]]) -> dict[str, NDArray[np.float64]]:
    """Return how often each image is right under each corruption, over severities, [N]; NaN where it never met it."""
    images = 1 + max((task.places[-1] for task, _ in found if len(task.places)), default=-1)
    right: dict[str, NDArray[np.float64]] = defaultdict(lambda: np.zeros(images))
    met: dict[str, NDArray[np.float64]] = defaultdict(lambda: np.zeros(images))
    for task, row in found:
        places, name = np.asarray(task.places), named(task.shift)
        hits = hits_of(row)
        right[name][places] += hits if len(hits) == len(places) else np.nan  # who was right is not known of all
        met[name][places] += 1
    with np.errstate(invalid="ignore"):
        return {name: right[name] / met[name] for name in right}


def means_by_image(found: Sequence[tuple[CorruptedPart, Row]]) -> NDArray[np.float64] | None:
    """Return how often each image is right over the corruptions it met, [N]; None where some met fewer than others."""
    if len(groups_of(found)) != 1 or any(len(hits_of(row)) != len(task.places) for task, row in found):
        return None
    met = np.bincount(np.concatenate([np.asarray(task.places, int) for task, _ in found]))
    if not len(met) or met.min() != met.max():
        return None
    each = np.stack(list(rates_by_image(found).values()))
    means: NDArray[np.float64] = np.nanmean(each, axis=0)
    return means


def groups_of(found: Sequence[tuple[CorruptedPart, Row]]) -> set[str]:
    """Return which sets of images there are: shifts have the clean ones, parts of a suite say theirs."""
    return {task.shift.group if isinstance(task.shift, SuiteCell) else CLEAN for task, _ in found}
