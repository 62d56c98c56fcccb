"""The audit's workbench: a worker that measures tasks, and what is tried before any long work."""

from __future__ import annotations

from shiftproof.audits.caveats import Caveat, try_model
from shiftproof.audits.sections.base import Measurement
from shiftproof.data import TextSet
from shiftproof.errors import DataError
from shiftproof.models import BatchFitter
from shiftproof.runs import Row
from shiftproof.subjects import Subject


class Measurer:
    """A worker of `runs` over one subject, in batches that fit into memory."""

    def __init__(self, subject: Subject) -> None:
        _ = subject.fingerprints  # loads it, and sees that it is what the driver has
        self.subject = subject
        self.fit = BatchFitter(subject.batch_size)

    def measure(self, task: Measurement) -> Row:
        """Let a task measure the subject."""
        return self.fit(lambda size: task.measure(self.subject.at_batch_size(size)))


def check_subject(subject: Subject) -> tuple[Caveat, ...]:
    """Try the model before any long work: outputs must be finite logits that fit the labels; return what is odd."""
    labels = subject.data.labels
    if labels is None and isinstance(subject.data, TextSet):
        raise DataError(
            "The texts have no labels.",
            expected="a column of labels, or one sub-folder per class",
            fix="--label-column NAME names it; shiftproof estimate works without labels",
        )
    if labels is not None and int(labels.min()) == int(labels.max()):
        raise DataError(
            f"All {_kind(subject)} have the same label.",
            expected="at least two classes: an audit measures how well they are told apart",
            got=f"{len(labels)} {_kind(subject)} of one class",
            fix="give the folder that holds one sub-folder per class",
        )
    return try_model(subject)


def _kind(subject: Subject) -> str:
    return "texts" if isinstance(subject.data, TextSet) else "images"
