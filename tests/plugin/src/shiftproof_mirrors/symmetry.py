"""A section of the audit: whether an image and its mirror image get the same answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from shiftproof.audits.sections.base import Measurement, Scope, Section, Work, passes
from shiftproof.audits.sections.measuring import rows
from shiftproof.measures import Accuracy
from shiftproof.models import logits
from shiftproof.reports.view import Sentence, View
from shiftproof.runs import Result, Row
from shiftproof.subjects import Subject


@dataclass(frozen=True)
class MirroredSlice(Measurement):
    """A slice of the images, and its mirror images."""

    kind = "symmetry"
    start: int
    stop: int

    def measure(self, subject: Subject) -> Row:
        """Count the images whose mirror image gets the same answer."""
        (batch,) = subject.data.subset(range(self.start, self.stop)).batches(self.stop - self.start)
        one, other = (logits(subject.model, images).argmax(1) for images in (batch.inputs, batch.inputs.flip(-1)))
        return {"same": int((one == other).sum()), "images": len(batch)}

    def work(self) -> Work:
        """Count two passes of the slice."""
        return passes(2 * (self.stop - self.start))


class Symmetry(Section):
    """How often an image and its mirror image get the same answer."""

    name = "symmetry"
    title = "In the mirror"
    question = "Does the model give an image and its mirror image the same answer?"

    def plan(self, scope: Scope) -> Iterator[MirroredSlice]:
        """Plan every slice of the images."""
        return (MirroredSlice(*part) for part in scope.slices())

    def view(self, results: Sequence[Result]) -> View:
        """Tell how often the answers agree."""
        found = [Accuracy(cast(int, row["same"]), cast(int, row["images"])) for _, row in rows(results, MirroredSlice)]
        if not found:
            return View(self.name, self.title, self.question, notes=("Nothing was measured.",))
        agreed = Accuracy.sum(found)
        said = (Sentence(f"{100 * agreed.value:.1f}% of images and their mirror images get the same answer."),)
        return View(self.name, self.title, self.question, verdict=said, numbers={"symmetry": agreed.value})
