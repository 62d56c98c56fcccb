"""A segmenter is tried before any long work: its outputs must fit the label maps, and be a function of one image."""

from __future__ import annotations

from shiftproof.audits.caveats import PROBE, Caveat, odd_behaviour
from shiftproof.errors import DataError
from shiftproof.models.behaviour import try_out
from shiftproof.subjects import Subject


def check_segmenter(subject: Subject) -> tuple[Caveat, ...]:
    """Try the model on a few images; refuse label maps that it cannot be compared with, and return what is odd."""
    known = subject.data.known_labels
    if known is None or len(known) < 2:
        raise DataError(
            "The label maps have one class.",
            expected="at least two classes: an audit measures how well they are told apart",
            got=f"classes {known.tolist() if known is not None else 'none'}",
        )
    count = max(1, min(PROBE, subject.batch_size // 2))
    batch = next(iter(subject.data.subset(range(min(count, len(subject.data)))).batches(count)))
    inputs = batch.inputs.to(subject.device)
    found = try_out(subject.model, inputs, 1 - inputs, (1 - inputs).flip(3) * 0.5, ask=subject.task.scores)
    return tuple(odd_behaviour(found, subject.data.noun))
