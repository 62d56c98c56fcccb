"""Two halves of the inputs: a labelled one to learn from, and another that is tested, under every shift.

What the model says of both is taken once, and read by two sections: estimates without labels, and confidence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import ClassVar, NamedTuple, cast

import numpy as np

from shiftproof.audits.sections.answer_scores import AnswerScores, LabelledHalf
from shiftproof.audits.sections.base import (
    FORWARD,
    READ,
    STATISTICS,
    Measurement,
    Scope,
    Unit,
    Work,
    label_of,
    passes,
    shifting,
)
from shiftproof.audits.sections.measuring import check_labels
from shiftproof.audits.sections.shift_names import one_per_category
from shiftproof.data import Dataset
from shiftproof.estimators.calibration import Calibration
from shiftproof.estimators.confidence import FEW
from shiftproof.estimators.evidence import Evidence, observe, shifted
from shiftproof.estimators.families import families_for
from shiftproof.estimators.fitting import begin, copies_of, crossed_shifts
from shiftproof.estimators.neighborhoods import neighborhood
from shiftproof.estimators.source_copies import Copy
from shiftproof.measures.estimation import auroc, confidence, modal_share
from shiftproof.runs import Json, Row
from shiftproof.shifts import Shift
from shiftproof.subjects import Subject

NEIGHBORHOOD, TEXT_NEIGHBORHOOD = "randaugment", "eda"
"""What views of images are made by, and of texts."""


@dataclass(frozen=True)
class HalfSize:
    """How much a budget allows: images a set, views of those that are viewed, and severities of each shift."""

    images: int
    views: int
    severities: int


VIEW_COST, SPARSE_VIEW_COST = 0.4, 0.2
"""Views of a set may cost so much of a forward pass over it; where a model is costly, half as much."""

SPARSE_TAPPED = 16
"""Images of a set whose normalisation statistics are taken where a model is costly."""

SIZES: Mapping[str, HalfSize] = {
    "quick": HalfSize(images=100, views=3, severities=3),
    "standard": HalfSize(images=500, views=10, severities=5),
    "full": HalfSize(images=2_000, views=10, severities=5),
}


@dataclass(frozen=True)
class HalfSet(Measurement):
    """One half of the images under a shift, or clean, of some of which views are taken."""

    shift: Shift | None
    images: int
    viewed: int
    views: int
    seed: int
    neighborhood: str = NEIGHBORHOOD
    tapped: int | None = None
    """Of how many images normalisation statistics are taken, which costs half of a pass; None is all."""
    half: ClassVar[int]

    def observe(self, subject: Subject) -> Evidence:
        """Return what the model says of the set, and of views of some of it: the one place where passes are made."""
        chosen = _halves(subject, self.images, self.seed)[self.half]
        return observe(
            subject.inner_model,
            shifted(chosen.batches(subject.batch_size, device=subject.device), self.shift, self.seed),
            neighborhood=neighborhood(self.neighborhood) if self.viewed else None,
            n=self.views,
            share=self.viewed / self.images,
            seed=self.seed,
            batch_size=subject.batch_size,
            drift=self.tapped or True,
            viewer=subject.fast_model,
        )

    def work(self) -> Work:
        """Count the images of the set and the views of some of them."""
        views, tapped = float(self.viewed * self.views), float(self.tapped or self.images)
        taken = [(READ, float(self.images)), (STATISTICS, tapped), *shifting(self.shift, self.images)]
        taken += [(FORWARD, self.images - tapped)] if tapped < self.images else []
        return [*taken, (FORWARD, views), (Unit("view", self.neighborhood), views)] if views else taken

    def parameters(self) -> dict[str, Json]:
        """Return the fields, with a name for no shift."""
        return {**super().parameters(), "shift": label_of(self.shift)}


@dataclass(frozen=True)
class SourceReference(HalfSet):
    """What is known of the labelled half as it is: a calibration without copies."""

    kind = "label_free.reference"
    half = 0

    def measure(self, subject: Subject) -> Row:
        """Return the calibration."""
        return _learnt(subject, self.images, self.seed, self.tapped).begun.to_row()

    def work(self) -> Work:
        """Count a pass of the half."""
        return passes(self.images)


@dataclass(frozen=True)
class SourceSet(HalfSet):
    """The labelled half under a shift, to learn from; that of some is also copied in other class mixes."""

    kind = "label_free.source"
    half = 0
    crossed: bool = False

    def measure(self, subject: Subject) -> Row:
        """Return the copies that the pass gives."""
        begun, found = _learnt(subject, self.images, self.seed, self.tapped).begun, self.observe(subject)
        crossed = [self.shift] if self.crossed and self.shift is not None else []
        made = copies_of(begun, self.shift, found, crossed=crossed, seed=self.seed)
        return {"accuracy": found.accuracy, "copies": [asdict(copy) for copy in made]}


@dataclass(frozen=True)
class TargetSet(HalfSet):
    """The other half, whose accuracy is to be told."""

    kind = "label_free.target"
    half = 1

    def measure(self, subject: Subject) -> Row:
        """Return what is known of the set, of its answers, and how well it is told from the clean one."""
        learnt = _learnt(subject, self.images, self.seed, self.tapped)
        clean = _clean_target(subject, replace(self, shift=None))
        found = clean if self.shift is None else self.observe(subject)
        copy, mixing = learnt.begun.copy_of(label_of(self.shift), "", found), learnt.begun.mixing
        row: dict[str, Json] = {
            "accuracy": copy.accuracy,
            "statistics": dict(copy.statistics),
            "profile": None if copy.profile is None else asdict(copy.profile),
            "entropy_difference": found.entropy_difference,
            "sureness": None if mixing is None else float(mixing.sureness(found.logits).mean()),
            "scores": cast(Json, AnswerScores.of(found, learnt.half).to_row()),
        }
        if self.shift is not None:
            if len(clean.shares) and len(found.shares):  # which inputs are viewed is drawn: of few, it may be none
                row["auroc_invariance"] = auroc(modal_share(clean.shares), modal_share(found.shares))
            row["auroc_confidence"] = auroc(confidence(clean.logits), confidence(found.logits))
        return row


@dataclass(frozen=True)
class ForeignSet(HalfSet):
    """Inputs of no class in place of the other half."""

    kind = "confidence.foreign"
    half = 1

    def measure(self, subject: Subject) -> Row:
        """Return how sure the model is of them, and how strange they look."""
        half = _learnt(subject, self.images, self.seed, self.tapped).half
        return {"scores": cast(Json, AnswerScores.of(self.observe(subject), half, foreign=True).to_row())}


class SetTerms(NamedTuple):
    """What all sets of an audit have in common: images, how many of them are viewed, views, seed, and how."""

    images: int
    viewed: int
    views: int
    seed: int
    neighborhood: str
    tapped: int | None

    @classmethod
    def of(cls, scope: Scope) -> SetTerms | None:
        """Return the terms of a scope; None where there are too few images for two halves."""
        size = SIZES[scope.settings.budget]
        images = min(scope.scaled(size.images, 50), scope.images // 2)
        near = TEXT_NEIGHBORHOOD if scope.inputs == "texts" else NEIGHBORHOOD
        viewed = max(1, round(images * (SPARSE_VIEW_COST if scope.settings.sparse else VIEW_COST) / size.views))
        tapped = SPARSE_TAPPED if scope.settings.sparse else None
        return None if images < FEW else cls(images, viewed, size.views, scope.settings.seed, near, tapped)


def target_sets(scope: Scope) -> Iterator[HalfSet]:
    """Yield the reference of the labelled half, and the other half under every shift of the audit, clean first."""
    terms, settings = SetTerms.of(scope), scope.settings
    if terms is None:
        return
    yield SourceReference(None, *terms)
    levels = _spread(settings.severities, 2 if settings.sparse else SIZES[settings.budget].severities)
    tested = scope.graded(levels)
    if settings.sparse:
        kinds = {shift.name for shift in one_per_category(scope.graded(levels[:1]))}
        tested = tuple(shift for shift in tested if shift.name in kinds)
    for shift in dict.fromkeys((None, *tested, *settings.fixed)):
        yield TargetSet(shift, *terms)


def source_sets(scope: Scope) -> Iterator[SourceSet]:
    """Yield the copies of the labelled half to calibrate on: shifts of all families, but none that the audit tests."""
    terms, settings = SetTerms.of(scope), scope.settings
    if terms is None:
        return
    tested = {shift.name for shift in (*settings.shifts, *settings.fixed)}
    kept = [[one for one in some if one.name not in tested] for some in families_for(scope.inputs).values()]
    chosen = [one for some in kept for one in (some[len(some) // 2 :][:1] if settings.sparse else some)]
    crossed = crossed_shifts(chosen)
    for shift in (None, *chosen):
        yield SourceSet(shift, *terms, crossed=shift in crossed)


def copies_in(found: Sequence[tuple[SourceSet, Row]]) -> list[Copy]:
    """Return the copies of the labelled half that were measured."""
    return [Copy.from_row(copy) for _, row in found for copy in cast(list[dict[str, Json]], row["copies"])]


def target_copy(task: TargetSet, row: Row) -> Copy:
    """Return what is known of a tested set."""
    return Copy.from_row(
        {
            "shift": label_of(task.shift),
            "inputs": task.images,
            "accuracy": row["accuracy"],
            "statistics": row["statistics"],
            "profile": row["profile"],
        }
    )


class Learnt(NamedTuple):
    """What the labelled half as it is teaches: a calibration without copies, and what single answers are held to."""

    begun: Calibration
    half: LabelledHalf


@lru_cache(maxsize=1)
def _learnt(subject: Subject, images: int, seed: int, tapped: int | None) -> Learnt:
    source, _ = _halves(subject, images, seed)
    batches = source.batches(subject.batch_size, device=subject.device)
    found = observe(subject.inner_model, batches, drift=tapped or True)
    labels = check_labels(source.labels, found.logits.shape[1]).numpy()
    return Learnt(begin(found, labels, classes=source.classes), LabelledHalf.of(found))


@lru_cache(maxsize=1)
def _clean_target(subject: Subject, task: TargetSet) -> Evidence:
    """Return what the model says of the clean half, which every task on this half needs."""
    return task.observe(subject)


def _halves(subject: Subject, images: int, seed: int) -> tuple[Dataset, Dataset]:
    """Return two disjoint sets of images with as many of each class: halves of few would differ in their class mix."""
    chosen = subject.data.take(2 * images, seed=seed)
    places = np.arange(len(chosen)) if chosen.labels is None else np.argsort(chosen.labels.numpy(), kind="stable")
    first, second = (np.sort(places[start::2]).tolist() for start in (0, 1))
    return chosen.subset(first), chosen.subset(second)


def _spread(severities: Sequence[float], count: int) -> list[float]:
    """Return at most so many severities, from the lowest to the highest; a single one is that in the middle."""
    if len(severities) <= count:
        return list(severities)
    if count == 1:
        return [severities[len(severities) // 2]]
    return [severities[round(place * (len(severities) - 1) / (count - 1))] for place in range(count)]
