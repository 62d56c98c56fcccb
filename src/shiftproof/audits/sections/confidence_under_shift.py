"""Does it know when it is wrong: calibration, selective prediction, strange inputs and prediction sets under shift."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import cast

import numpy as np

from shiftproof.audits.numbers import Number
from shiftproof.audits.sections.answer_scores import LEVEL, AnswerScores
from shiftproof.audits.sections.base import CLEAN, Measurement, Scope, Section
from shiftproof.audits.sections.confidence_figures import foreign_table, reliability_figure, shift_table
from shiftproof.audits.sections.foreign import FOREIGN
from shiftproof.audits.sections.half_sets import ForeignSet, SetTerms, TargetSet, target_sets
from shiftproof.audits.sections.measuring import rows
from shiftproof.audits.sections.shift_names import named
from shiftproof.audits.sections.wording import listed, percent, title
from shiftproof.estimators.confidence import FEW
from shiftproof.measures.estimation import auroc
from shiftproof.measures.self_knowledge import (
    accuracy_at_coverage,
    calibration_error,
    calibration_error_of_chance,
)
from shiftproof.reports.view import Action, Level, Sentence, Tile, View
from shiftproof.runs import Result, Row

COVERAGES = (90, 70, 50)
"""Percent of the inputs that are answered, those it is surest of."""
SCORES = ("confidence", "energy", "neighbors")
GOOD, WATCH = 0.05, 0.15
LEVEL_RULE = "Gap between confidence and accuracy (ECE), mean over shifts. Good: under 5 points. Bad: over 15."
GAIN = 0.03
"""By how much accuracy has to rise where fewer inputs are answered before it is advised."""


class AnswerSummary:
    """The numbers of answers of one or several sets, which are taken as one."""

    def __init__(self, scores: AnswerScores) -> None:
        self.scores = scores

    @property
    def accuracy(self) -> float:
        """The share of right answers."""
        return float(self.scores.right.mean())

    @property
    def confidence(self) -> float:
        """The mean confidence."""
        return float(self.scores.confidence.mean())

    @cached_property
    def ece(self) -> float:
        """The expected calibration error."""
        return calibration_error(self.scores.confidence, self.scores.right)

    @cached_property
    def scaled_ece(self) -> float:
        """The same after temperature scaling on clean inputs."""
        return calibration_error(self.scores.scaled, self.scores.right)

    def at_coverage(self, percent: int) -> float:
        """Return the accuracy on the inputs it is surest of."""
        return accuracy_at_coverage(self.scores.confidence, self.scores.right, percent / 100)

    def error_auroc(self, score: str) -> float | None:
        """Return how often a right answer scores above a wrong one; None where there are none of either."""
        values, right = getattr(self.scores, score), self.scores.right > 0
        return auroc(values[right], values[~right]) if right.any() and not right.all() else None

    def foreign_auroc(self, score: str, foreign: AnswerScores) -> float:
        """Return how often one of these inputs scores above a foreign one."""
        return auroc(getattr(self.scores, score), getattr(foreign, score))

    @property
    def coverage(self) -> float:
        """How often the prediction set holds the true class."""
        return float(self.scores.holds.mean())

    @property
    def size(self) -> float:
        """How many classes are in a prediction set, on average."""
        return float(self.scores.size.mean())


class Confidence(Section):
    """Confidence under shift."""

    name = "confidence"
    title = "Does it know when it is wrong?"
    question = (
        "Calibration, selective prediction and out-of-distribution scores: does confidence follow accuracy under shift?"
    )
    takes = ("images", "texts")
    numbers = (
        Number("ece", "the expected calibration error (ECE), mean over shifts", "lower"),
        Number("ece.*", "the same for one shift, or for `clean`", "lower"),
        Number("ece_scaled", "the mean ECE over shifts after temperature scaling on clean inputs", "lower"),
        Number("accuracy_at_coverage_*", "accuracy on the 90, 70 or 50% it is surest of, mean over shifts"),
        Number("error_auroc_*", "how well a score detects wrong answers, mean over shifts", "higher", "AUROC"),
        Number("foreign_auroc_*", "how well a score tells foreign inputs from clean ones", "higher", "AUROC"),
        Number("conformal_coverage", "how often a 95% prediction set holds the true class, mean over shifts"),
        Number("conformal_coverage.*", "the same for one shift, or for `clean`"),
        Number("conformal_size", "classes in a prediction set, mean over shifts", "lower", "classes"),
    )

    def plan(self, scope: Scope) -> Iterator[Measurement]:
        """Plan the halves that estimates without labels read too, and foreign inputs."""
        yield from target_sets(scope)
        if (terms := SetTerms.of(scope)) is not None:
            for shift in FOREIGN[scope.inputs].values():
                yield ForeignSet(shift, *terms._replace(viewed=0))

    def view(self, results: Sequence[Result]) -> View:
        """Tell whether confidence follows accuracy, clean and under every shift."""
        sets: dict[str, list[AnswerScores]] = {}
        for task, row in rows(results, TargetSet):
            sets.setdefault(CLEAN if task.shift is None else named(task.shift), []).append(_scores(row))
        known = {name: AnswerSummary(AnswerScores.joined(some)) for name, some in sets.items()}
        clean, shifted = known.pop(CLEAN, None), known
        if clean is None or not shifted:
            note = f"Nothing was asked: that takes {2 * FEW} {self.noun.many} or more, half of them to learn from."
            return View(self.name, self.title, self.question, notes=(note,))
        made = {shift: words for words, shift in FOREIGN[self.noun.many].items()}
        foreign = {made[task.shift]: _scores(row) for task, row in rows(results, ForeignSet) if task.shift is not None}
        numbers = _numbers(clean, shifted, foreign)
        level: Level = "good" if numbers["ece"] < GOOD else "watch" if numbers["ece"] < WATCH else "bad"
        together = AnswerSummary(AnswerScores.joined([one.scores for one in shifted.values()]))
        return View(
            self.name,
            self.title,
            self.question,
            verdict=_verdict(clean, shifted, numbers, level, self.noun.many),
            tiles=(
                Tile(
                    "Calibration error under shift",
                    f"{100 * numbers['ece']:.1f} points",
                    f"{100 * clean.ece:.1f} on clean {self.noun.many}; by shift, up to "
                    f"{100 * max(one.ece for one in shifted.values()):.1f}",
                    level,
                    LEVEL_RULE,
                ),
            ),
            blocks=(
                reliability_figure(clean.scores, together.scores, self.noun.many),
                shift_table({CLEAN: clean, **shifted}, COVERAGES, SCORES),
                *([foreign_table(clean, foreign, SCORES)] if foreign else []),
            ),
            notes=self._notes(clean, shifted, foreign),
            numbers=numbers,
            actions=_actions(clean, together, numbers),
        )

    def _notes(
        self, clean: AnswerSummary, shifted: Mapping[str, AnswerSummary], foreign: Mapping[str, AnswerScores]
    ) -> tuple[str, ...]:
        few = next(iter(shifted.values())).scores
        chance = calibration_error_of_chance(few.confidence)
        what = f"Foreign {self.noun.many} are {listed(list(foreign))}: of no class, {len(clean.scores)} of each."
        return (
            f"{len(clean.scores)} {self.noun.many} of a clean set, and of each shift the same at several severities, "
            f"{len(few)} in all, taken as one set. A perfectly calibrated model would show an ECE of about "
            f"{100 * chance:.1f} points on so few (15 bins).",
            "Energy is the log-sum-exp of the logits (Liu et al. 2020), kNN the distance to labelled inputs in the "
            "features of the last linear layer, or in outputs where there is none (Sun et al. 2022). An AUROC of 0.5 "
            "is chance.",
            f"Prediction sets (split conformal, 1 - p, the answer always among them) hold the true class in "
            f"{100 * LEVEL:.0f}% or more of inputs like the "
            f"{len(clean.scores)} labelled ones they were set on; under shift nothing is guaranteed, and this is what "
            "they held.",
            *([what] if foreign else []),
        )


def _scores(row: Row) -> AnswerScores:
    return AnswerScores.from_row(cast(Mapping[str, str], row["scores"]))


def _numbers(
    clean: AnswerSummary, shifted: Mapping[str, AnswerSummary], foreign: Mapping[str, AnswerScores]
) -> dict[str, float]:
    every = shifted.values()
    numbers = {
        "ece": _mean([one.ece for one in every]),
        "ece_scaled": _mean([one.scaled_ece for one in every]),
        "conformal_coverage": _mean([one.coverage for one in every]),
        "conformal_size": _mean([one.size for one in every]),
    }
    numbers |= {
        f"accuracy_at_coverage_{share}": _mean([one.at_coverage(share) for one in every]) for share in COVERAGES
    }
    for score in SCORES:
        told = [value for one in every if (value := one.error_auroc(score)) is not None]
        numbers |= {f"error_auroc_{score}": _mean(told)} if told else {}
        strange = [clean.foreign_auroc(score, one) for one in foreign.values()]
        numbers |= {f"foreign_auroc_{score}": _mean(strange)} if strange else {}
    for name, one in {CLEAN: clean, **shifted}.items():
        numbers |= {f"ece.{name}": one.ece, f"conformal_coverage.{name}": one.coverage}
    return numbers


def _verdict(
    clean: AnswerSummary, shifted: Mapping[str, AnswerSummary], numbers: Mapping[str, float], level: Level, inputs: str
) -> tuple[Sentence, ...]:
    worst = max(shifted, key=lambda name: shifted[name].ece)
    one = shifted[worst]
    accuracy = _mean([each.accuracy for each in shifted.values()])
    said = [
        Sentence(
            f"Expected calibration error (ECE) is {100 * clean.ece:.1f} points on clean {inputs} and "
            f"{100 * numbers['ece']:.1f} on average under {len(shifted)} {'shifts' if len(shifted) > 1 else 'shift'}. "
            f"Worst is {title(worst)}: accuracy {percent(one.accuracy)}, mean confidence {percent(one.confidence)}.",
            level,
        ),
        Sentence(
            f"Under shift accuracy is {percent(accuracy)}; on the 70% of {inputs} of highest confidence it is "
            f"{percent(numbers['accuracy_at_coverage_70'])}, on the highest 50% "
            f"{percent(numbers['accuracy_at_coverage_50'])} (selective prediction)."
        ),
    ]
    if "error_auroc_confidence" in numbers:
        best = _best(numbers, "error_auroc")
        strange = _best(numbers, "foreign_auroc")
        told = f", {inputs} of no class by {_called(strange)} (AUROC {numbers[f'foreign_auroc_{strange}']:.2f})"
        said.append(
            Sentence(
                f"Wrong answers are detected best by {_called(best)} (AUROC {numbers[f'error_auroc_{best}']:.2f})"
                f"{told if strange else ''}."
            )
        )
    least = min(shifted, key=lambda name: shifted[name].coverage)
    said.append(
        Sentence(
            f"Conformal prediction sets contain the true class for {percent(clean.coverage)} of clean {inputs} and for "
            f"{percent(numbers['conformal_coverage'])} under shift ({percent(shifted[least].coverage)} under "
            f"{title(least)}), with {numbers['conformal_size']:.1f} classes per set on average.",
            "plain" if numbers["conformal_coverage"] >= LEVEL - 0.1 else "watch",
        )
    )
    return tuple(said)


def _actions(clean: AnswerSummary, together: AnswerSummary, numbers: Mapping[str, float]) -> tuple[Action, ...]:
    """Return what follows: a limit of confidence, calibrated confidences, and a score for foreign inputs."""
    found = []
    gain = together.at_coverage(70) - together.accuracy
    if gain >= GAIN:
        limit = float(np.quantile(together.scores.confidence, 0.3))
        found.append(
            Action(
                "Let it abstain where its confidence is low",
                f"Under shift accuracy is {percent(together.accuracy)}; without the 30% of answers of lowest "
                f"confidence under all shifts together (below {limit:.3f}) it is {percent(together.at_coverage(70))}. "
                f"With a limit for each shift it would be {percent(numbers['accuracy_at_coverage_70'])}. On clean "
                f"inputs the model would abstain on {percent(float((clean.scores.confidence < limit).mean()))}.",
                f"confidence, answers = logits.softmax(1).max(1)\nanswers[confidence < {limit:.3f}] = ABSTAIN",
            )
        )
    if numbers["ece"] - numbers["ece_scaled"] >= GAIN:
        found.append(
            Action(
                "Scale its confidence by a temperature",
                f"A temperature fitted on clean inputs takes the calibration error under shift from "
                f"{100 * numbers['ece']:.1f} to {100 * numbers['ece_scaled']:.1f} points; its predictions stay the "
                "same.",
                "from shiftproof.measures.estimation import fit_temperature\n\n"
                "temperature = fit_temperature(logits, labels)  # of labelled inputs it was not trained on\n"
                "probabilities = (logits / temperature).softmax(1)",
            )
        )
    best = _best(numbers, "foreign_auroc")
    if best and best != "confidence" and numbers[f"foreign_auroc_{best}"] >= numbers["foreign_auroc_confidence"] + 0.05:
        code = {
            "energy": "from shiftproof.measures.self_knowledge import energy\n\nstrange = energy(logits) < LIMIT",
            "neighbors": "from shiftproof.measures.self_knowledge import neighbor_scores\n\n"
            "strange = neighbor_scores(features, labelled_features) < LIMIT",
        }
        found.append(
            Action(
                f"Turn away foreign inputs by {_called(best)}",
                f"It tells inputs of no class from clean ones with an AUROC of {numbers[f'foreign_auroc_{best}']:.2f}, "
                f"confidence with {numbers['foreign_auroc_confidence']:.2f}. LIMIT is a low quantile of clean inputs' "
                "scores: 0.05 turns away one in twenty of them.",
                code[best],
            )
        )
    return tuple(found)


def _best(numbers: Mapping[str, float], what: str) -> str:
    found = {score: numbers[f"{what}_{score}"] for score in SCORES if f"{what}_{score}" in numbers}
    return max(found, key=lambda score: found[score]) if found else ""


def _called(score: str) -> str:
    return "kNN" if score == "neighbors" else score


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))
