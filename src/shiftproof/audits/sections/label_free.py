"""Label-free accuracy estimation: how well accuracy under shift can be told without labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import ClassVar, cast

import numpy as np

from shiftproof import shifts
from shiftproof.audits.numbers import Number
from shiftproof.audits.sections.base import (
    FORWARD,
    READ,
    STATISTICS,
    Measurement,
    Scope,
    Section,
    Unit,
    Work,
    label_of,
    passes,
    shifting,
)
from shiftproof.audits.sections.label_free_figures import error_table, monitor_table, panels, strangeness_table
from shiftproof.audits.sections.measuring import check_labels, rows
from shiftproof.audits.sections.wording import labelled, percent, title
from shiftproof.data import Dataset
from shiftproof.estimators import Calibration
from shiftproof.estimators.calibration import Copy
from shiftproof.estimators.confidence import FEW
from shiftproof.estimators.estimating import KINDS, TEXT_KINDS, shifted
from shiftproof.estimators.evidence import Evidence, observe
from shiftproof.estimators.invariance import LABELS_DESTROYED
from shiftproof.estimators.neighborhoods import TEXT_NEIGHBORHOODS, neighborhood
from shiftproof.estimators.references import Reference
from shiftproof.measures.estimation import (
    Array,
    auroc,
    confidence,
    fit_temperature,
    mean_absolute_error,
    modal_share,
    spearman_rho,
)
from shiftproof.reports.view import Action, Level, Sentence, Tile, View
from shiftproof.runs import Json, Result, Row
from shiftproof.shifts import Shift
from shiftproof.shifts.text.registry import text_shift
from shiftproof.subjects import Subject

NEIGHBORHOOD, TEXT_NEIGHBORHOOD = "randaugment", "eda"
"""What views of images are made by, and of texts."""

GOOD, WATCH = 0.05, 0.10
LEVEL_RULE = "mean distance between estimated and true accuracy: good under 5 points, bad over 10"


@dataclass(frozen=True)
class EstimationSize:
    """How much a budget allows: images a set, of how many views are taken, how many views, and severities."""

    images: int
    viewed: int
    views: int
    severities: int
    kinds: int


SIZES: Mapping[str, EstimationSize] = {
    "quick": EstimationSize(images=100, viewed=24, views=3, severities=3, kinds=6),
    "standard": EstimationSize(images=500, viewed=100, views=10, severities=5, kinds=10),
    "full": EstimationSize(images=2_000, viewed=200, views=10, severities=5, kinds=10),
}
SOURCE_SEVERITIES = (2, 5)


@dataclass(frozen=True)
class SourceReference(Measurement):
    """What is known of the labelled half as it is."""

    kind = "label_free.reference"
    images: int
    viewed: int
    views: int
    seed: int
    neighborhood: str = NEIGHBORHOOD

    def measure(self, subject: Subject) -> Row:
        """Return the source's reference."""
        return _finite(asdict(_reference(subject, self.images, self.seed)))

    def work(self) -> Work:
        """Count a pass of the half."""
        return passes(self.images)


@dataclass(frozen=True)
class HalfSet(Measurement):
    """One half of the images under a shift, or clean, of some of which views are taken."""

    shift: Shift | None
    images: int
    viewed: int
    views: int
    seed: int
    neighborhood: str = NEIGHBORHOOD
    half: ClassVar[int]

    def measure(self, subject: Subject) -> Row:
        """Return the accuracy and the statistics of the set."""
        return self._row(self.observe(subject), subject)

    def observe(self, subject: Subject) -> Evidence:
        """Return what the model says of the set, and of views of some of it."""
        chosen = _halves(subject, self.images, self.seed)[self.half]
        return observe(
            subject.model,
            shifted(chosen.batches(subject.batch_size, device=subject.device), self.shift, self.seed),
            neighborhood=neighborhood(self.neighborhood),
            n=self.views,
            share=self.viewed / self.images,
            seed=self.seed,
            batch_size=subject.batch_size,
            drift=True,
        )

    def _row(self, found: Evidence, subject: Subject) -> dict[str, Json]:
        copy = Copy.of(label_of(self.shift), found, _reference(subject, self.images, self.seed))
        return {
            "accuracy": copy.accuracy,
            "statistics": dict(copy.statistics),
            "entropy_difference": found.entropy_difference,
        }

    def work(self) -> Work:
        """Count the images of the set and the views of some of them."""
        views = float(self.viewed * self.views)
        taken = [(READ, float(self.images)), (STATISTICS, float(self.images)), *shifting(self.shift, self.images)]
        return [*taken, (FORWARD, views), (Unit("view", self.neighborhood), views)]

    def parameters(self) -> dict[str, Json]:
        """Return the fields, with a name for no shift."""
        return {**super().parameters(), "shift": label_of(self.shift)}


@dataclass(frozen=True)
class SourceSet(HalfSet):
    """The labelled half, to learn from."""

    kind = "label_free.source"
    half = 0


@dataclass(frozen=True)
class TargetSet(HalfSet):
    """The other half, whose accuracy is to be told."""

    kind = "label_free.target"
    half = 1

    def measure(self, subject: Subject) -> Row:
        """Return the accuracy and the statistics of the set, and how well it is told from the clean one."""
        found = self.observe(subject)
        row = self._row(found, subject)
        if self.shift is not None:
            clean = _clean_target(subject, replace(self, shift=None))
            if len(clean.shares) and len(found.shares):  # which inputs are viewed is drawn: of few, it may be none
                row["auroc_invariance"] = auroc(modal_share(clean.shares), modal_share(found.shares))
            row["auroc_confidence"] = auroc(confidence(clean.logits), confidence(found.logits))
        return row


class LabelFree(Section):
    """Estimates without labels against the truth."""

    name = "label_free"
    title = "Label-free accuracy estimation"
    question = "How well can accuracy under shift be told from unlabelled inputs alone?"
    takes = ("images", "texts")
    numbers = (
        Number("label_free_error", "how far estimates without labels are from the truth, on average", "lower"),
        Number("label_free_error.*", "the same for one method of estimation", "lower"),
        Number("label_free_error_90", "how far off nine in ten of the estimates are at most", "lower"),
        Number("label_free_optimism", "by how much the most optimistic estimate is above the truth", "lower"),
        Number(
            "label_free_rank_correlation",
            "rank correlation of estimates and truth over shifts",
            "higher",
            "correlation",
        ),
        Number(
            "ood_auroc_*",
            "how well shifted sets are told from clean ones, by confidence or invariance",
            "higher",
            "AUROC",
        ),
    )

    def plan(self, scope: Scope) -> Iterator[Measurement]:
        """Plan the labelled half with its shifted copies, to learn from, and the other half under every shift."""
        settings, size = scope.settings, SIZES[scope.settings.budget]
        images = min(scope.scaled(size.images, 50), scope.images // 2)
        if images < FEW:
            return
        texts = scope.inputs == "texts"
        near = TEXT_NEIGHBORHOOD if texts else NEIGHBORHOOD
        common = (images, scope.scaled(size.viewed, 8), size.views, settings.seed, near)
        learnt = _kinds(settings.shifts, size.kinds, texts)
        yield SourceReference(*common)
        for shift in (None, *(replace(one, severity=level) for one in learnt for level in SOURCE_SEVERITIES)):
            yield SourceSet(shift, *common)
        levels = _spread(settings.severities, 1 if settings.sparse else size.severities)
        for shift in dict.fromkeys((None, *scope.graded(levels), *settings.fixed)):
            yield TargetSet(shift, *common)

    def view(self, results: Sequence[Result]) -> View:
        """Tell how far estimates are from the truth, by estimator and by shift."""
        reference = [row for _, row in rows(results, SourceReference)]
        found = rows(results, TargetSet)
        learnt, tested = _copies(rows(results, SourceSet)), _copies(found)
        shifted_sets = [copy for copy in tested if copy.shift != "clean"]
        if not reference or not learnt or not shifted_sets:
            note = f"Nothing was estimated: that takes {2 * FEW} {self.noun.many} or more, half of them to learn from."
            return View(self.name, self.title, self.question, notes=(note,))
        calibration = Calibration.from_row({"source": reference[0], "copies": [asdict(copy) for copy in learnt]})
        estimates = _estimates(calibration, shifted_sets)
        truth = [copy.accuracy for copy in shifted_sets]
        errors = {method: mean_absolute_error(found, truth) for method, found in estimates.items()}
        ranks = {method: spearman_rho(found, truth) for method, found in estimates.items()}
        error = errors["auto"]
        level: Level = "good" if error < GOOD else "watch" if error < WATCH else "bad"
        numbers = {f"label_free_error.{method}": value for method, value in errors.items() if method != "auto"}
        missed = np.array(estimates["auto"]) - truth
        numbers["label_free_error"] = error
        numbers["label_free_error_90"] = float(np.quantile(abs(missed), 0.9))
        numbers["label_free_optimism"] = max(0.0, float(missed.max()))
        if ranks["auto"] is not None:
            numbers["label_free_rank_correlation"] = ranks["auto"]
        numbers |= _detection(found)
        spans = _spans(shifted_sets, abs(missed))
        drop = max(0.05, math.ceil(200 * error) / 100)
        tile = Tile(
            "Error of the label-free estimate",
            f"{100 * error:.1f} points",
            f"{spans}, over {len(truth)} sets" if spans else f"over {len(truth)} sets",
            level,
            LEVEL_RULE,
        )
        return View(
            self.name,
            self.title,
            self.question,
            verdict=(Sentence(_verdict(missed, shifted_sets, spans), level),),
            tiles=(tile,),
            blocks=(
                panels(estimates, shifted_sets),
                error_table(calibration, errors, ranks),
                monitor_table(drop, error),
                strangeness_table([(task.shift, row) for task, row in found if task.shift is not None], self.noun.one),
            ),
            notes=_notes(calibration, found, self.noun.many),
            numbers=numbers,
            actions=(_action(drop, missed),),
        )


def _halves(subject: Subject, images: int, seed: int) -> tuple[Dataset, Dataset]:
    """Return two disjoint sets of images, with classes as balanced as can be."""
    chosen = subject.data.take(2 * images, seed=seed)
    return chosen.subset(range(0, len(chosen), 2)), chosen.subset(range(1, len(chosen), 2))


@lru_cache(maxsize=1)
def _reference(subject: Subject, images: int, seed: int) -> Reference:
    source, _ = _halves(subject, images, seed)
    found = observe(subject.model, source.batches(subject.batch_size, device=subject.device))
    labels = check_labels(source.labels, found.logits.shape[1])
    return Reference.of(found, temperature=fit_temperature(found.logits, labels.numpy()))


@lru_cache(maxsize=1)
def _clean_target(subject: Subject, task: TargetSet) -> Evidence:
    """Return what the model says of the clean half, which every task on this half needs."""
    return task.observe(subject)


def _kinds(tested: Sequence[Shift], count: int, texts: bool) -> list[Shift]:
    """Return corruptions to learn from: none of those the audit tests."""
    image_shifts = (name for family in ("holdout", "bar", "common") for name in shifts.names(family))
    known = [*TEXT_KINDS, *shifts.names("everyday")] if texts else [*KINDS, *image_shifts]
    left_out = {shift.name for shift in tested}
    make: Callable[[str, float], Shift] = text_shift if texts else shifts.corruption
    return [make(name, 1) for name in dict.fromkeys(known) if name not in left_out][:count]


def _spread(severities: Sequence[float], count: int) -> list[float]:
    """Return at most so many severities, from the lowest to the highest; a single one is that in the middle."""
    if len(severities) <= count:
        return list(severities)
    if count == 1:
        return [severities[len(severities) // 2]]
    return [severities[round(place * (len(severities) - 1) / (count - 1))] for place in range(count)]


def _finite(values: Mapping[str, float]) -> Row:
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def _copies(found: Sequence[tuple[HalfSet, Row]]) -> list[Copy]:
    return [
        Copy(
            label_of(task.shift),
            cast(float, row["accuracy"]),
            task.images,
            cast(Mapping[str, float], row["statistics"]),
        )
        for task, row in found
    ]


def _estimates(calibration: Calibration, sets: Sequence[Copy]) -> dict[str, list[float]]:
    """Return estimated accuracies by method, `auto` first: the method a user would be given for each set."""
    chosen = [calibration.choose(one.statistics) for one in sets]
    auto = [calibration.predict(method, one.statistics) for method, one in zip(chosen, sets, strict=True)]
    each = {m: [calibration.predict(m, one.statistics) for one in sets] for m in calibration.methods()}
    return {"auto": auto, **each}


def _spans(sets: Sequence[Copy], off: Array) -> str:
    """Say from where to where the mean errors of kinds of shift go: severities of one kind are off together.

    That is no interval: kinds of shift are few, and not drawn at random.
    """
    kinds = [one.kind for one in sets]
    by_kind = [100 * off[[kind == name for kind in kinds]].mean() for name in dict.fromkeys(kinds)]
    return f"{min(by_kind):.1f} to {max(by_kind):.1f} by kind of shift" if len(by_kind) > 1 else ""


def _verdict(missed: Array, sets: Sequence[Copy], spans: str) -> str:
    """Say how far off estimates are: on average, for nine in ten, and where they promise too much."""
    off, worst = abs(missed), int(missed.argmax())
    points = f"{100 * off.mean():.1f} points off on average" + (f" ({spans})" if spans else "")
    high = (
        f"the most optimistic is {100 * missed[worst]:.1f} points too high ({labelled(sets[worst].shift)}, true "
        f"accuracy {percent(sets[worst].accuracy)})"
        if missed[worst] > 0
        else "none is too high"
    )
    return (
        f"Without labels, estimates of its accuracy are {points} over {len(sets)} sets under shifts like these; nine "
        f"in ten are within {100 * np.quantile(off, 0.9):.1f} points, and {high}."
    )


def _action(drop: float, missed: Array) -> Action:
    low, high = int((missed < -drop).sum()), int((missed > drop).sum())
    return Action(
        "Watch it while it serves",
        f"Estimates are {100 * abs(missed).mean():.1f} points off on average over these shifts, and an alarm at "
        f"{100 * drop:.0f} points leaves room for twice that. Of {len(missed)} sets the estimate was further off for "
        f"{low + high}: {low} too low, which would raise the alarm without cause, and {high} too high, which could "
        "keep it silent. Of other kinds of shift nothing is known.",
        "from shiftproof.estimators import Monitor\n\n"
        f"monitor = Monitor.fit(model, labelled, drop={drop:.2f})\n"
        "logits = monitor(inputs)\nprint(monitor.status().prometheus())",
    )


def _detection(found: Sequence[tuple[TargetSet, Row]]) -> dict[str, float]:
    names = ("auroc_invariance", "auroc_confidence")
    values = {name: [cast(float, row[name]) for _, row in found if name in row] for name in names}
    return {f"ood_{name}": sum(some) / len(some) for name, some in values.items() if some}


def _notes(calibration: Calibration, found: Sequence[tuple[TargetSet, Row]], inputs: str) -> tuple[str, ...]:
    task = found[0][0]
    near = task.neighborhood
    gaps = [cast(float, row["entropy_difference"]) for _, row in found if row.get("entropy_difference") is not None]
    gap = sum(gaps) / len(gaps) if gaps else 0.0
    destroys = "destroy labels: leave invariance aside" if gap > LABELS_DESTROYED else "keep labels"
    kinds = sorted({title(copy.kind) for copy in calibration.copies if copy.shift != "clean"})
    return (
        f"{task.images} labelled {inputs} to learn from and as many others to test on; lines were drawn through "
        f"shifts that are not tested here: {', '.join(kinds)}.",
        f"Views of {near} seem to {destroys}: outputs on them have {gap:+.2f} nats of entropy "
        f"({LABELS_DESTROYED} is the limit). {task.views} views of up to {task.viewed} {inputs} a set.",
        *_told_by(near),
    )


def _told_by(neighborhood: str) -> tuple[str, ...]:
    """Return what a neighbourhood of texts has to say of itself, such as where its synonyms come from."""
    return TEXT_NEIGHBORHOODS[neighborhood](0).notes if neighborhood in TEXT_NEIGHBORHOODS else ()
