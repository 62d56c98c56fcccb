"""Label-free accuracy estimation: how well accuracy under shift can be told without labels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import numpy as np

from shiftproof.audits.numbers import Number
from shiftproof.audits.sections.base import Measurement, Scope, Section
from shiftproof.audits.sections.half_sets import (
    SourceReference,
    SourceSet,
    TargetSet,
    copies_in,
    source_sets,
    target_copy,
    target_sets,
)
from shiftproof.audits.sections.label_free_figures import error_table, monitor_table, panels, strangeness_table
from shiftproof.audits.sections.measuring import rows
from shiftproof.audits.sections.wording import graded, labelled, listed, percent, title
from shiftproof.estimators import Calibration
from shiftproof.estimators.confidence import FEW
from shiftproof.estimators.invariance import LABELS_DESTROYED
from shiftproof.estimators.neighborhoods import TEXT_NEIGHBORHOODS
from shiftproof.estimators.source_copies import Copy
from shiftproof.estimators.watch import Watch
from shiftproof.measures.estimation import Array, mean_absolute_error, percentile_interval, spearman_rho
from shiftproof.reports.view import Action, Level, Sentence, Tile, View
from shiftproof.runs import Result, Row

GOOD, WATCH = 0.05, 0.10
LEVEL_RULE = "Mean distance between estimated and true accuracy. Good: under 5 points. Bad: over 10."

DRAWS = 1000
"""Bootstrap samples of the kinds of shift."""

DROP = 0.05
"""The least fall in accuracy that a monitor is set to."""


@dataclass(frozen=True, eq=False)
class EstimationTrial:
    """A calibration on the labelled half, tried on sets of the other half whose accuracy is known."""

    calibration: Calibration
    sets: tuple[Copy, ...]

    @cached_property
    def truth(self) -> Array:
        """The accuracies, [S]."""
        return np.array([one.accuracy for one in self.sets])

    @cached_property
    def estimates(self) -> dict[str, list[float]]:
        """Estimated accuracies by method, `auto` first: what a user would be told of each set."""
        names = ("auto", *self.calibration.methods())
        return {name: [self.calibration.say(name, one.statistics).value for one in self.sets] for name in names}

    @cached_property
    def missed(self) -> Array:
        """Estimate less truth, [S]: above 0 it promises too much."""
        return np.array(self.estimates["auto"]) - self.truth

    @cached_property
    def errors(self) -> dict[str, float]:
        """The mean distance from the truth, by method."""
        return {name: mean_absolute_error(found, self.truth) for name, found in self.estimates.items()}

    @cached_property
    def ranks(self) -> dict[str, float | None]:
        """The rank correlation with the truth, by method."""
        return {name: spearman_rho(found, self.truth) for name, found in self.estimates.items()}

    @cached_property
    def error_90(self) -> float:
        """The distance that nine in ten estimates do not exceed: of fewer than ten, none does."""
        return float(np.quantile(abs(self.missed), 0.9 if len(self.sets) >= 10 else 1))

    @property
    def told_90(self) -> str:
        """How to say it."""
        count = len(self.sets)
        all_of_few = f"all {count} estimates are" if count > 1 else "the one estimate is"
        told = "nine in ten estimates are" if count >= 10 else all_of_few
        return f"{told} within {100 * self.error_90:.1f} points"

    @cached_property
    def unseen(self) -> float | None:
        """The mean error on whole families left out of the calibration; None where nothing was shifted."""
        return self.calibration.auto_error if self.calibration.family_errors.knows_shifts else None

    @cached_property
    def unlike(self) -> list[str]:
        """The sets that are called unlike anything calibrated on."""
        found = [(one, self.calibration.familiar(one.profile)) for one in self.sets]
        return [one.shift for one, place in found if place is not None and place.unlike]

    def reach(self) -> tuple[float, float] | None:
        """Return the 95% interval of the mean error by resampling kinds of shift; None where there is one kind.

        Severities of one kind are off together, so that they are drawn together.
        """
        kinds = [one.kind for one in self.sets]
        groups = [abs(self.missed)[[kind == name for kind in kinds]] for name in dict.fromkeys(kinds)]
        if len(groups) < 2:
            return None
        rng = np.random.default_rng(0)
        drawn = rng.integers(0, len(groups), (DRAWS, len(groups)))
        sums, sizes = np.array([each.sum() for each in groups]), np.array(list(map(len, groups)))
        return percentile_interval(sums[drawn].sum(1) / sizes[drawn].sum(1))


class LabelFree(Section):
    """Estimates without labels against the truth."""

    name = "label_free"
    title = "Label-free accuracy estimation"
    question = "How well can accuracy under shift be estimated from unlabelled inputs?"
    takes = ("images", "texts")
    numbers = (
        Number("label_free_error", "how far estimates without labels are from the truth, on average", "lower"),
        Number("label_free_error.*", "the same for one method of estimation", "lower"),
        Number("label_free_error_90", "how far off nine in ten of the estimates are at most", "lower"),
        Number("label_free_error_unseen", "the mean error on families of shifts left out of the calibration", "lower"),
        Number("label_free_optimism", "by how much the most optimistic estimate is above the truth", "lower"),
        Number(
            "label_free_rank_correlation",
            "rank correlation of estimates and truth over shifts",
            "higher",
            "correlation",
        ),
        Number(
            "ood_auroc_*",
            "how well confidence or invariance tells shifted sets from clean ones",
            "higher",
            "AUROC",
        ),
    )

    def plan(self, scope: Scope) -> Iterator[Measurement]:
        """Plan the labelled half with its shifted copies, to learn from, and the other half under every shift."""
        yield from target_sets(scope)
        yield from source_sets(scope)

    def view(self, results: Sequence[Result]) -> View:
        """Tell how far estimates are from the truth, by estimator and by shift."""
        reference = [row for _, row in rows(results, SourceReference)]
        found, learnt = rows(results, TargetSet), copies_in(rows(results, SourceSet))
        sets = tuple(target_copy(task, row) for task, row in found if task.shift is not None)
        if not reference or not learnt or not sets:
            note = f"Nothing was estimated: that takes {2 * FEW} {self.noun.many} or more, half of them to learn from."
            return View(self.name, self.title, self.question, notes=(note,))
        trial = EstimationTrial(replace(Calibration.from_row(reference[0]), copies=tuple(learnt)), sets)
        error = trial.errors["auto"]
        level: Level = "good" if error < GOOD else "watch" if error < WATCH else "bad"
        drop = max(DROP, math.ceil(100 * trial.error_90 - 1e-9) / 100)
        tile = Tile("Error of the label-free estimate", f"{100 * error:.1f} points", _reached(trial), level, LEVEL_RULE)
        return View(
            self.name,
            self.title,
            self.question,
            verdict=(Sentence(_verdict(trial), level),),
            tiles=(tile,),
            blocks=(
                panels(trial.estimates, sets),
                error_table(trial.calibration, trial.errors, trial.ranks),
                monitor_table(drop, trial.told_90),
                strangeness_table([(task.shift, row) for task, row in found if task.shift is not None], self.noun.one),
            ),
            notes=_notes(trial, found, self.noun.many),
            numbers=_numbers(trial) | _detection(found),
            actions=_actions(trial, drop, found),
        )


def _numbers(trial: EstimationTrial) -> dict[str, float]:
    numbers = {f"label_free_error.{method}": value for method, value in trial.errors.items() if method != "auto"}
    numbers["label_free_error"] = trial.errors["auto"]
    numbers["label_free_error_90"] = trial.error_90
    numbers["label_free_optimism"] = max(0.0, float(trial.missed.max()))
    if trial.unseen is not None:
        numbers["label_free_error_unseen"] = trial.unseen
    if (rank := trial.ranks["auto"]) is not None:
        numbers["label_free_rank_correlation"] = rank
    return numbers


def _reached(trial: EstimationTrial) -> str:
    """Say from where to where the mean error goes when kinds of shift are drawn anew, and over how many sets it is."""
    sets, reach = f"over {len(trial.sets)} sets", trial.reach()
    return sets if reach is None else f"{100 * reach[0]:.1f} to {100 * reach[1]:.1f}, {sets}"


def _verdict(trial: EstimationTrial) -> str:
    """Say how far off estimates are: on average, for nine in ten, where they promise too much, and on other shifts."""
    worst = int(trial.missed.argmax())
    high = (
        f"The most optimistic is {100 * trial.missed[worst]:.1f} points too high "
        f"({graded(trial.sets[worst].shift)}, true accuracy {percent(trial.truth[worst])})"
        if trial.missed[worst] > 0
        else "None is too high"
    )
    families = len(trial.calibration.families)
    other = (
        ""
        if trial.unseen is None
        else f" On families of shifts left out of the calibration, each of {families} in turn, it is off by "
        f"{100 * trial.unseen:.1f} points on average."
    )
    return (
        f"Accuracy estimated without labels is off by {100 * trial.errors['auto']:.1f} points on average on shifts "
        f"like these ({_reached(trial)}); {trial.told_90}. {high}."
        f"{other}"
    )


def _actions(trial: EstimationTrial, drop: float, found: Sequence[tuple[TargetSet, Row]]) -> tuple[Action, ...]:
    """Return what follows: to watch it where estimates can be followed, else to label some; to calibrate on more."""
    error = trial.errors["auto"]
    watch = _label_some(error) if error >= WATCH else _watch(trial, drop, found)
    if trial.unseen is None or trial.unseen < max(GOOD, 1.5 * error):
        return (watch,)
    own = Action(
        "Calibrate the estimate on conditions of your own",
        f"On families of shifts that were left out of the calibration the estimate is {100 * trial.unseen:.1f} points "
        f"off on average, on shifts like those calibrated on {100 * error:.1f}. Labelled sets from where the model "
        "will serve bring the conditions there into the calibration.",
        "shiftproof estimate --model MODEL --source LABELLED --data UNLABELLED --sets NIGHT,RAIN --calibration FILE",
    )
    return watch, own


def _label_some(error: float, reason: str = "") -> Action:
    """Return the advice to label a sample, of as many inputs as tell more than the estimate does."""
    within = max(error, GOOD)
    enough = math.ceil(0.25 * (1.96 / within) ** 2 / 10) * 10
    return Action(
        "Label a sample of its inputs",
        f"{reason}Estimates without labels are {100 * error:.1f} points off on average. Labels of {enough} inputs "
        f"drawn at random where it serves give its accuracy to within {100 * within:.0f} points, 19 times in 20.",
        f"shiftproof audit --model MODEL --data SAMPLE --sections clean  # {enough} labelled inputs",
    )


def _watch(trial: EstimationTrial, drop: float, found: Sequence[tuple[TargetSet, Row]]) -> Action:
    """Return the advice to monitor, with how often its alarm would have been right on the sets that were tested.

    An alarm that would have missed every fall is not advised.
    """
    watch = Watch(trial.calibration, drop=drop, alpha=0.05, window=FEW)
    clean = next((cast(float, row["accuracy"]) for task, row in found if task.shift is None), None)
    told = [(cast(float, row["accuracy"]), row.get("sureness")) for task, row in found if task.shift is not None]
    sure = [(accuracy, cast(float, value) < watch.least_sure) for accuracy, value in told if value is not None]
    counted = ""
    if clean is not None and sure:
        fell = [alarm for accuracy, alarm in sure if accuracy < clean - drop]
        stayed = [alarm for accuracy, alarm in sure if accuracy >= clean - drop]
        if fell and not any(fell):
            return _label_some(
                trial.errors["auto"],
                f"On the sets tested here an alarm of accuracy would have risen for 0 of {len(fell)} whose accuracy "
                f"fell by more than {100 * drop:.0f} points. ",
            )
        counted = (
            f" On the sets tested here it would rise for {sum(fell)} of {len(fell)} whose accuracy fell by more"
            f"{f', and for {sum(stayed)} of {len(stayed)} whose accuracy did not' if stayed else ''}."
        )
    return Action(
        "Monitor it while it serves",
        f"On shifts like these {trial.told_90} of the truth, so the alarm of accuracy is set to a fall of "
        f"{100 * drop:.0f} points.{counted}",
        "from shiftproof.estimators import Monitor\n\n"
        f"monitor = Monitor.fit(model, labelled, drop={drop:.2f})\n"
        "logits = monitor(inputs)\nprint(monitor.status().prometheus())",
    )


def _detection(found: Sequence[tuple[TargetSet, Row]]) -> dict[str, float]:
    names = ("auroc_invariance", "auroc_confidence")
    values = {name: [cast(float, row[name]) for _, row in found if name in row] for name in names}
    return {f"ood_{name}": sum(some) / len(some) for name, some in values.items() if some}


def _notes(trial: EstimationTrial, found: Sequence[tuple[TargetSet, Row]], inputs: str) -> tuple[str, ...]:
    task = found[0][0]
    near = task.neighborhood
    gaps = [cast(float, row["entropy_difference"]) for _, row in found if row.get("entropy_difference") is not None]
    gap = sum(gaps) / len(gaps) if gaps else 0.0
    destroys = "destroy labels: leave invariance aside" if gap > LABELS_DESTROYED else "keep labels"
    families = sorted(title(family) for family in trial.calibration.families)
    unlike = listed([labelled(one) for one in trial.unlike]) if trial.unlike else "none"
    return (
        f"{task.images} labelled {inputs} to learn from and as many others to test on; it was calibrated on "
        f"{len(trial.calibration.copies)} copies in {len(families)} families, none of them under a shift that is "
        f"tested here: {', '.join(families)}.",
        f"Sets tested here that would be called unlike anything calibrated on, and get an interval alone: {unlike}.",
        f"Views of {near} seem to {destroys}: outputs on them have {gap:+.2f} nats of entropy "
        f"({LABELS_DESTROYED} is the limit). {task.views} views of up to {task.viewed} {inputs} a set.",
        *_told_by(near),
    )


def _told_by(neighborhood: str) -> tuple[str, ...]:
    """Return what a neighbourhood of texts has to say of itself, such as where its synonyms come from."""
    return TEXT_NEIGHBORHOODS[neighborhood](0).notes if neighborhood in TEXT_NEIGHBORHOODS else ()
