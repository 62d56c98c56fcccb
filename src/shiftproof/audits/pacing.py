"""How a model is asked fastest here: batch sizes and layouts, tried for a second or two before a long audit.

Its answers are the same up to rounding, whatever is chosen. A run that goes on keeps to what it began with.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Self

from torch import Tensor

from shiftproof.audits.costs import PACE
from shiftproof.audits.forecast import passes_of
from shiftproof.audits.planning import threads_of
from shiftproof.audits.sections.base import Measurement
from shiftproof.data import Batch
from shiftproof.models.folding import LAYOUTS, Folded, Layout
from shiftproof.runs import Json, Plan, Store
from shiftproof.subjects import Subject

WORTHWHILE = 5e12
"""Operations of an audit from which on a trial pays: counted, not timed, so that it is the same on every machine."""
SIZES = (0.5, 2.0, 4.0)
"""Batch sizes that are tried beside the usual one, as shares of it."""
FASTER = 1.05
"""What is not faster by so much is not chosen."""
ALIKE = 0.01
"""How far scores may be apart in another layout, as a share of their range: GPUs round to few digits."""
PATIENCE = 0.25
"""Seconds that a way of asking is tried for, after a first batch that does not count; one batch at least."""


@dataclass(frozen=True)
class Pace:
    """A way of asking, and how many inputs a second that gave."""

    batch_size: int
    layout: Layout | None
    folded: bool
    per_second: float

    @classmethod
    def of(cls, subject: Subject, clock: Callable[[], float]) -> Self:
        """Time the model of a subject in its batches."""
        fast = subject.fast_model
        inputs = _batch(subject).inputs
        subject.task.scores(fast, inputs)
        best, begun = float("inf"), clock()
        while best == float("inf") or clock() - begun < PATIENCE:
            start = clock()
            subject.task.scores(fast, inputs)  # on the CPU in the end: a device is waited for
            best = min(best, (clock() - start) / len(inputs))
        layout = fast.layout if isinstance(fast, Folded) else None
        return cls(len(inputs), layout, isinstance(fast, Folded), 1 / max(best, 1e-9))

    def given_to(self, subject: Subject) -> Subject:
        """Return a subject that is asked so."""
        return subject.asked(self.batch_size, self.layout)

    def to_row(self) -> dict[str, Json]:
        """Return the pace as JSON values."""
        return {**asdict(self), "per_second": round(self.per_second, 1)}


def quickest(
    subject: Subject,
    plan: Plan,
    operations: float,
    store: Store,
    *,
    workers: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> Subject:
    """Return the subject in the way in which it is asked fastest, and note that; as it is where no trial would pay.

    `operations` are those of a pass of one input; so many `workers` share the cores. A batch size that the user gave is
    kept.
    """
    noted = store.about().get(PACE)
    if noted is not None:
        return Pace(**json.loads(noted)).given_to(subject)
    tasks = [task for task in plan.identities().values() if isinstance(task, Measurement)]
    if operations * passes_of(tasks) < WORTHWHILE or not isinstance(_batch(subject).inputs, Tensor):
        return subject
    with threads_of(workers):
        chosen = Pace.of(subject, clock)
        for ways in (_layouts, _sizes):
            for way in ways(chosen, subject):
                found = _tried(way.given_to(subject), subject, clock)
                if found is not None and found.per_second > FASTER * chosen.per_second:
                    chosen = found
    store.note({PACE: json.dumps(chosen.to_row())})
    return chosen.given_to(subject)


def _layouts(pace: Pace, subject: Subject) -> Iterator[Pace]:
    """Yield the other layouts, on a GPU: on a CPU one is faster for all."""
    if pace.layout is not None and subject.device != "cpu":
        yield from (replace(pace, layout=layout) for layout in LAYOUTS if layout != pace.layout)


def _sizes(pace: Pace, subject: Subject) -> Iterator[Pace]:
    """Yield other batch sizes, where the user gave none, and as far as there are inputs."""
    if subject.given_batch is None:
        for share in SIZES:
            size = max(1, round(share * subject.batch_size))
            if size <= len(subject.data):
                yield replace(pace, batch_size=size)


def _tried(subject: Subject, usual: Subject, clock: Callable[[], float]) -> Pace | None:
    """Return the pace of a subject; None where this way of asking fails, for want of memory or otherwise.

    A network in another layout is to answer as it does in the usual one.
    """
    try:
        if subject.layout != usual.layout:
            inputs = _batch(usual).inputs
            own, other = (usual.task.scores(each.fast_model, inputs) for each in (usual, subject))
            if float((own - other).abs().max()) > ALIKE * float(own.max() - own.min()):
                return None
        return Pace.of(subject, clock)
    except Exception:
        return None


def _batch(subject: Subject) -> Batch:
    size = min(subject.batch_size, len(subject.data))
    (batch,) = subject.data.subset(range(size)).batches(size, device=subject.device)
    return batch
