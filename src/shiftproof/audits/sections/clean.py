"""How good it is before anything changes: accuracy, confidence and classes on the images as they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from shiftproof.audits.numbers import Number
from shiftproof.audits.sections.base import Measurement, PerImage, Scope, Section, Work, passes
from shiftproof.audits.sections.chance import Standing
from shiftproof.audits.sections.measuring import (
    accuracy,
    image_means,
    mean_confidence,
    measured_under,
    naming,
    predictions,
    rows,
    tally,
)
from shiftproof.audits.sections.packed_answers import packed_answers
from shiftproof.audits.sections.reduced_precision import BothPrecisions, plan_precision, precision_note
from shiftproof.audits.sections.wording import interval, percent
from shiftproof.audits.suite_cells import SuiteCell
from shiftproof.measures import Accuracy
from shiftproof.reports.view import Action, Column, Level, Sentence, Table, Tile, View
from shiftproof.runs import Result, Row
from shiftproof.subjects import Subject

OVERCONFIDENT, SEVERELY_OVERCONFIDENT = 0.05, 0.15
"""How far mean confidence may be above accuracy, and outside its interval, before it is told, and before it is bad."""
INTERVALS = "{:,} {}. Intervals are Clopper and Pearson's, at 95%."
CALIBRATE = """\
from shiftproof.measures.estimation import fit_temperature

temperature = fit_temperature(logits, labels)  # of labelled inputs the model was not trained on
probabilities = (logits / temperature).softmax(1)"""


@dataclass(frozen=True)
class CleanSlice(Measurement):
    """A slice of the images as they are."""

    kind = "clean"
    start: int
    stop: int

    def measure(self, subject: Subject) -> Row:
        """Return the tally of the slice, over all and by class."""
        labels, predicted, confidences = predictions(subject, range(self.start, self.stop), None, seed=0)
        name = naming(subject)
        classes = {
            name(label): [int((predicted[labels == label] == label).sum()), int((labels == label).sum())]
            for label in sorted(set(labels.tolist()))
        }
        answers = {name(label): count for label, count in sorted(Counter(predicted.tolist()).items())}
        confused: dict[str, dict[str, int]] = {}
        for (label, answer), count in sorted(Counter(zip(labels.tolist(), predicted.tolist(), strict=True)).items()):
            if label != answer:
                confused.setdefault(name(label), {})[name(answer)] = count
        kept = {**tally(labels, predicted, confidences), **packed_answers(predicted, confidences)}
        return {**kept, "classes": classes, "answers": answers, "confused": confused}

    def work(self) -> Work:
        """Count a pass of the slice."""
        return passes(self.stop - self.start)


@dataclass(frozen=True)
class GentlestSlice(Measurement):
    """A slice of a suite's gentlest part, where there is no clean set: it tells whether the model works at all."""

    kind = "corruptions.gentlest"
    cell: SuiteCell
    start: int
    stop: int

    def measure(self, subject: Subject) -> Row:
        """Return the tally of the slice, over all and by class."""
        return CleanSlice(self.start, self.stop).measure(measured_under(subject, self.cell)[0])

    def work(self) -> Work:
        """Count a pass of the slice."""
        return passes(self.stop - self.start)


class Clean(Section):
    """Accuracy on the images as they are."""

    name = "clean"
    title = "Clean accuracy and calibration"
    question = "How accurate is the model on unchanged inputs, and does its confidence match?"
    takes = ("images", "texts")
    numbers = (
        Number("clean_accuracy", "the share of inputs it is right on as they are"),
        Number("clean_confidence_gap", "mean confidence less accuracy: above 0 it is too sure", "lower"),
    )

    def plan(self, scope: Scope) -> Iterator[Measurement]:
        """Plan every slice of the images; of a suite without clean ones, of its gentlest part."""
        if scope.gentlest is not None:
            for start, stop in scope.slices(scope.gentlest.images):
                yield GentlestSlice(scope.gentlest, start, stop)
            return
        for start, stop in scope.slices():
            yield CleanSlice(start, stop)
        yield from plan_precision(scope)

    def needs(self, number: str, task: Measurement) -> bool:
        """Say that no number is made of what is asked in another precision."""
        return not isinstance(task, BothPrecisions)

    def per_image(self, results: Sequence[Result]) -> Mapping[str, PerImage]:
        """Return who was right."""
        right = image_means([[row for _, row in rows(results, CleanSlice)]])
        return {} if right is None else {"clean_accuracy": PerImage(right)}

    def view(self, results: Sequence[Result]) -> View:
        """Tell the accuracy, whether confidence follows it, and which classes are weak."""
        found = [row for _, row in rows(results, CleanSlice)]
        overall = accuracy(found)
        if overall is None:
            return View(self.name, self.title, self.question, notes=(f"No {self.noun.one} was measured.",))
        standing = Standing.of(found)
        rated: Level = "plain" if standing is None else standing.level
        rule = "" if standing is None else standing.rule
        right = f"Accuracy on clean {self.noun.many} is {percent(overall.value)} ({interval(overall, self.looks)})"
        level: Level = "bad" if rated == "bad" else "plain"
        said, numbers = f"{right}.", {"clean_accuracy": overall.value}
        notes = [INTERVALS.format(overall.images, self.noun.many), *precision_note(results, self.noun.many)]
        confidence, gap, too_sure = mean_confidence(found), 0.0, False
        if confidence is not None:
            gap = numbers["clean_confidence_gap"] = confidence - overall.value
            side = "overconfident" if gap > 0 else "underconfident"
            stated = f"mean confidence {percent(confidence)} ({side} by {abs(100 * gap):.1f} points)"
            notes.append(f"{stated.capitalize()}.")
            too_sure = gap >= OVERCONFIDENT and confidence > overall.interval().high
            if too_sure:
                said = f"{right}, {stated}."
                level = "bad" if gap >= SEVERELY_OVERCONFIDENT or rated == "bad" else "watch"
        action = Action(
            "Calibrate its confidence",
            f"On clean {self.noun.many} it is overconfident by {abs(100 * gap):.1f} points. A temperature corrects "
            "that, and its predictions stay the same.",
            CALIBRATE,
        )
        return View(
            self.name,
            self.title,
            self.question,
            verdict=(Sentence(said, level),),
            tiles=(Tile("Clean accuracy", percent(overall.value), interval(overall, self.looks), rated, rule),),
            blocks=(_class_table(found, self.noun.many),),
            notes=tuple(notes),
            numbers=numbers,
            actions=(action,) if too_sure else (),
        )


def _class_table(found: Sequence[Row], inputs: str) -> Table:
    right, images = Counter[str](), Counter[str]()
    for row in found:
        for name, (hits, count) in cast(Mapping[str, tuple[int, int]], row["classes"]).items():
            right[name] += hits
            images[name] += count
    body = sorted((Accuracy(right[name], images[name]).value, name) for name in images)
    return Table(
        "Accuracy by class, weakest first",
        (Column("class"), Column(inputs, "number"), Column("accuracy", "percent", heat=(0.0, 1.0))),
        tuple((name, images[name], value) for value, name in body),
    )
