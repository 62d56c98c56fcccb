"""How good it is before anything changes: accuracy, confidence and classes on the images as they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from shiftproof.audits.sections.base import Scope, Section, Subject
from shiftproof.audits.sections.measuring import accuracy, mean_confidence, predictions, rows, tally
from shiftproof.audits.sections.wording import interval, percent
from shiftproof.audits.view import Column, Level, Sentence, Table, Tile, View
from shiftproof.measures import Accuracy
from shiftproof.runs import Cell, Result, Row

OVERCONFIDENT = 0.05


class Clean(Section):
    """Accuracy on the images as they are."""

    name = "clean"
    title = "Before anything changes"
    question = "How accurate is the model on the images as they are, and does it know?"
    takes = ("images", "texts")

    def plan(self, scope: Scope) -> Iterator[Cell]:
        """Plan one cell per slice of the images."""
        for start, stop in scope.slices():
            yield Cell("clean", start=start, stop=stop)

    def measure(self, cell: Cell, subject: Subject) -> Row:
        """Return the tally of a slice, over all and by class."""
        start, stop = cast(int, cell["start"]), cast(int, cell["stop"])
        labels, predicted, confidences = predictions(subject, start, stop, None, seed=0)
        names = subject.data.classes
        classes = {
            names[label] if label < len(names) else str(label): [
                int((predicted[labels == label] == label).sum()),
                int((labels == label).sum()),
            ]
            for label in sorted(set(labels.tolist()))
        }
        return {**tally(labels, predicted, confidences), "classes": classes}

    def view(self, results: Sequence[Result]) -> View:
        """Tell the accuracy, whether confidence follows it, and which classes are weak."""
        found = [row for _, row in rows(results, "clean")]
        overall = accuracy(found)
        if overall is None:
            return View(self.name, self.title, self.question, notes=("No image was measured.",))
        gap = mean_confidence(found) - overall.value
        level: Level = "watch" if gap > OVERCONFIDENT else "plain"
        sure = f"On average it is {percent(mean_confidence(found))} sure of itself"
        verdict = (
            Sentence(f"On clean images it is right {percent(overall.value)} of the time ({interval(overall)})."),
            Sentence(f"{sure}, {abs(100 * gap):.1f} points {'more' if gap > 0 else 'less'} than it is right.", level),
        )
        tile = Tile("Clean accuracy", percent(overall.value), interval(overall), rule="the images as they are")
        return View(
            self.name,
            self.title,
            self.question,
            verdict=verdict if level != "plain" else verdict[:1],
            tiles=(tile,),
            blocks=(_class_table(found),),
            notes=(f"{overall.images:,} images. Intervals are Wilson's, at 95%.", verdict[1].text),
            numbers={"clean_accuracy": overall.value, "clean_confidence_gap": gap},
        )


def _class_table(found: Sequence[Row]) -> Table:
    right, images = Counter[str](), Counter[str]()
    for row in found:
        for name, (hits, count) in cast(Mapping[str, tuple[int, int]], row["classes"]).items():
            right[name] += hits
            images[name] += count
    body = sorted((Accuracy(right[name], images[name]).value, name) for name in images)
    return Table(
        "Accuracy by class, weakest first",
        (Column("class"), Column("images", "number"), Column("accuracy", "percent", heat=(0.0, 1.0))),
        tuple((name, images[name], value) for value, name in body),
    )
