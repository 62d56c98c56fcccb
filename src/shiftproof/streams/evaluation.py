"""Evaluate a model, or one that adapts, along a stream: a trace, written as it goes, that a second call resumes."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shiftproof.errors import DataError, ModelError, RunError
from shiftproof.models import Adaptive, fingerprint
from shiftproof.models.identity import digest
from shiftproof.models.weights import read_tensors
from shiftproof.runs import Json, OnProgress, Plan, Row, Store, Task, drive, write_atomically
from shiftproof.streams.stream import Stream
from shiftproof.streams.trace import Trace
from shiftproof.version import __version__

CHUNK = 100
"""Batches between two savings: a kill costs what came since the last."""

Model = Callable[[Tensor], Any]


def evaluate(
    model: Model,
    stream: Stream,
    *,
    out: str | Path | None = None,
    stop: int | None = None,
    chunk: int = CHUNK,
    predictions: bool = False,
    on_progress: OnProgress | None = None,
) -> Trace:
    """Evaluate a model along a stream, from its current position to the end or to `stop`.

    A model that adapts (`shiftproof.adapters.adapt`) learns along the way and is told of every change of shift. With a
    run directory `out`, the trace and the state of the model are saved every `chunk` batches, and the same call on a
    fresh model and stream resumes an interrupted run: bit for bit on one device, as far as its arithmetic is
    deterministic. A stream without labels needs `predictions`.

    Args:
        model: Any model.
        stream: The stream; it is read from its current position.
        out: Run directory; the same call resumes it. Default: none.
        stop: Position to stop at. Default: the end of the stream.
        chunk: Batches between two saves.
        predictions: Whether to keep the prediction of every image.
        on_progress: Called as on_progress(done, total, result).

    >>> from shiftproof import adapt, load_data, load_model
    >>> from shiftproof.streams import Concatenated
    >>> stream = Concatenated(load_data("demo"), shifts=["contrast"], length=128)
    >>> trace = evaluate(adapt(load_model("demo"), "bn"), stream)
    >>> len(trace.right), trace.accuracy > 0.5
    (2, True)
    """
    if stream.data.labels is None and not predictions:
        raise DataError(
            "The stream has no labels.",
            expected="images with labels, which the accuracy of a trace needs",
            fix="predictions=True keeps the predictions, which need no labels",
        )
    if predictions and stream.task.per_pixel:
        raise DataError(
            "Predicted label maps are not kept.",
            expected="predictions=False: a map for each image is too large for a trace",
        )
    begin, end = stream.position, len(stream) if stop is None else min(stop, len(stream))
    step = chunk * stream.batch_size
    tasks = tuple(Chunk(low, min(low + step, end), predictions) for low in range(begin, end, step))
    if not tasks:
        raise DataError("The stream is at its end.", got=f"position {begin} of {len(stream)}")
    runner = _Runner(model, stream, None if out is None else Path(out))
    if out is None:
        rows = [runner.measure(task) for task in tasks]
        return Trace.join(rows)
    subject = {
        "version": __version__,
        "model": model.identity() if isinstance(model, Adaptive) else fingerprint(model),
        "stream": digest([stream.fingerprint, stream.batch_size, begin]),
        "device": stream.device.type,
    }
    plan = Plan(tasks, subject)
    with Store(Path(out), subject) as store:
        # In order, and the first that fails ends it, because the next ones start from its state.
        results = drive(plan, store, lambda: runner, on_progress=on_progress, essential="Evaluating the stream")
    stream.seek(end)
    return Trace.join(result.row for result in results if result.row is not None)


@dataclass(frozen=True)
class Chunk(Task["_Runner"]):
    """The positions of a stream between two savings."""

    kind = "trace"
    start: int
    stop: int
    predictions: bool = False

    def measure(self, subject: _Runner) -> Row:
        """Run the chunk."""
        return subject.run(self.start, self.stop, self.predictions)


@dataclass
class _Runner:
    """A worker of `runs` over the chunks of one stream, which must come in order."""

    model: Model
    stream: Stream
    folder: Path | None

    def __post_init__(self) -> None:
        self.adaptive = self.model if isinstance(self.model, Adaptive) else None
        self.reached = self.stream.position

    def measure(self, task: Chunk) -> Row:
        """Run one chunk."""
        return task.measure(self)

    def run(self, start: int, stop: int, predictions: bool = False) -> Row:
        """Run from one position to another, and save the state it ends in."""
        if start != self.reached and self.adaptive is not None:
            self._load(self.adaptive, start)
        self.stream.seek(start)
        row = self._run(stop, predictions)
        self.reached = stop
        if self.adaptive is not None and self.folder is not None:
            self._save(self.adaptive, stop, keep=start)
        resets, updates = (0, 0) if self.adaptive is None else (self.adaptive.resets, self.adaptive.updates)
        return {"start": start, **row, "resets": resets, "updates": updates}

    def _run(self, stop: int, predictions: bool) -> dict[str, Json]:
        images: list[Json] = []
        kept: dict[str, list[Json]] = {"predicted": [], "confidences": []} if predictions else {}
        right: list[Json] = []
        milliseconds: list[Json] = []
        shifts: list[tuple[str, int]] = []
        task = self.stream.task
        for batch in self.stream.batches(stop):
            begun = time.perf_counter()
            if self.adaptive is not None:
                self.adaptive.announce(batch.shift)
            with torch.set_grad_enabled(self.adaptive is not None):
                logits = task.checked(self.model(batch.inputs), batch.inputs)
            milliseconds.append(round(1e3 * (time.perf_counter() - begun), 3))
            right.append(0 if batch.labels is None else task.right(batch.labels, logits).sum().item())
            if self.adaptive is not None and batch.labels is not None:
                self.adaptive.grade(batch.labels.cpu())
            if predictions:
                sure, classes = logits.softmax(1).max(1)
                kept["predicted"] += classes.tolist()
                kept["confidences"] += [round(value, 4) for value in sure.tolist()]
            images.append(len(batch))
            if shifts and shifts[-1][0] == batch.shift:
                shifts[-1] = batch.shift, shifts[-1][1] + len(batch)
            else:
                shifts.append((batch.shift, len(batch)))
        self.stream.seek(stop)
        return {"images": images, "right": right, "milliseconds": milliseconds, "shifts": shifts, **kept}

    def _state(self, position: int) -> Path:
        if self.folder is None:
            raise RuntimeError("there is no folder for states")
        return self.folder / f"state-{position}.pt"

    def _save(self, model: Adaptive, position: int, keep: int) -> None:
        """Write the state, and remove those from before the chunk, which may have to run again until it is stored."""
        content = io.BytesIO()
        torch.save(model.state_dict(), content)
        write_atomically(self._state(position), content.getvalue())
        for old in self._state(0).parent.glob("state-*.pt"):
            if old not in (self._state(position), self._state(keep)):
                old.unlink(missing_ok=True)

    def _load(self, model: Adaptive, position: int) -> None:
        path = self._state(position)
        try:
            state = read_tensors(path, device=self.stream.device)
        except ModelError as error:
            raise RunError(
                f"The state of the model at position {position} is gone or cannot be read.",
                reason=error.facts["got"],
                fix=f"remove the folder {str(self.folder)!r}, and run the same command to start again",
            ) from error
        model.load_state_dict(state)
