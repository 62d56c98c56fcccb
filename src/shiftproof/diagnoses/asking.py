"""What a model says of a slice of the images, under a shift or none: the work that failures are found in."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from shiftproof.data import as_images
from shiftproof.models import logits
from shiftproof.runs import Executor, OnProgress, Plan, Row, Store, Task, drive
from shiftproof.shifts import Shift
from shiftproof.subjects import Measurer, Subject

PART = 512
"""Images in a task: what a kill loses at most."""

Floats: TypeAlias = NDArray[np.float32]


def packed(values: NDArray[np.generic]) -> str:
    """Return numbers as text: float32, in base64."""
    return base64.b64encode(np.ascontiguousarray(values, np.float32).tobytes()).decode()


def unpacked(text: object, *shape: int) -> Floats:
    """Return the numbers of a text, in a shape."""
    return np.frombuffer(base64.b64decode(str(text)), np.float32).reshape(shape)


@dataclass(frozen=True)
class AnsweredSlice(Task[Subject]):
    """The logits of a slice of the images under a shift."""

    kind = "answers"
    shift: Shift | None
    start: int
    stop: int
    seed: int

    def measure(self, subject: Subject) -> Row:
        """Return the logits, packed."""
        found = []
        chosen = as_images(subject.data).subset(range(self.start, self.stop))
        for batch in chosen.batches(subject.batch_size, device=subject.device):
            images = batch.inputs if self.shift is None else self.shift(batch.inputs, batch.keys, seed=self.seed)
            found.append(logits(subject.fast_model, images))
        scores = torch.cat(found)
        return {"images": len(scores), "logits": packed(scores.numpy())}


def answers_under(
    subject: Subject,
    shifts: Sequence[Shift | None],
    *,
    seed: int,
    out: Path,
    executor: Executor,
    on_progress: OnProgress | None,
) -> list[Floats]:
    """Return the logits [N, K] of all images under each shift; what the run directory lacks is measured."""
    count = len(subject.data)
    tasks = tuple(
        AnsweredSlice(shift, start, min(start + PART, count), seed)
        for shift in shifts
        for start in range(0, count, PART)
    )
    plan = Plan(tasks, subject.fingerprints)
    with Store(out, subject.identity) as store:
        subject.check_answers(store)
        setup = partial(Measurer, subject)
        results = drive(plan, store, setup, executor=executor, on_progress=on_progress, essential="A measurement")
    rows = [result.row for result in results if result.row is not None]
    parts = [unpacked(row["logits"], int(str(row["images"])), -1) for row in rows]
    each = len(tasks) // len(shifts)
    return [np.concatenate(parts[place * each : (place + 1) * each]) for place in range(len(shifts))]
