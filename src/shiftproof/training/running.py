"""A run as tasks: the segments between checkpoints, each from the state that the one before it left."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import cast

import numpy as np
from torch import Tensor, nn

from shiftproof.data import ImageSet
from shiftproof.data.images.maskset import MaskSet
from shiftproof.keyed import Keyed
from shiftproof.measures.overlap import Overlap, unpack
from shiftproof.models import logits
from shiftproof.prediction_tasks import LABEL_MAPS, present_classes
from shiftproof.runs import Json, Plan, Row, Store, Task, drive
from shiftproof.training.loop import Loop
from shiftproof.training.record import TrainingLog
from shiftproof.training.state import load_state, save_state
from shiftproof.training.team import Team

OnProgress = Callable[[int, int, Row | None], None]


def run(runner: Runner, subject: dict[str, str], team: Team) -> list[Row]:
    """Run the segments between checkpoints that are missing, and return the log of all."""
    ends = runner.loop.boundaries()
    tasks = tuple(Segment(start, stop) for start, stop in pairwise([0, *ends]))
    if runner.folder is None:
        return [row for task in tasks for row in _rows(runner.measure(task))]
    if not team.leads:
        for task in tasks[team.tell(0) :]:
            runner.measure(task)
        return []
    plan = Plan(tasks, subject)
    with Store(runner.folder, subject) as store:
        done = [result for result in store.results(plan) if result.row is not None]
        before = [row for result in done for row in _rows(result.row or {})]
        runner.record = TrainingLog(runner.folder, before)
        runner.tell(before[-1] if before else None)
        team.tell(len(done))

        try:
            results = drive(plan, store, lambda: runner, essential="Training")
        finally:
            runner.record.close()
    return [row for result in results for row in _rows(result.row or {})]


@dataclass(frozen=True)
class Segment(Task["Runner"]):
    """The steps between two checkpoints."""

    kind = "train"
    start: int
    stop: int

    def measure(self, subject: Runner) -> Row:
        """Train over the segment."""
        return subject.train(self.start, self.stop)


@dataclass
class Runner:
    """A worker of `runs` over the segments of one run, which come in order."""

    loop: Loop
    folder: Path | None
    validation: ImageSet | None
    on_progress: OnProgress | None
    record: TrainingLog | None = None
    judge: nn.Module = field(init=False)

    def __post_init__(self) -> None:
        self.judge = copy.deepcopy(self.loop.network).eval()

    def measure(self, task: Segment) -> Row:
        """Train over one segment."""
        return task.measure(self)

    def train(self, start: int, stop: int) -> Row:
        """Train from one step to another, and save the state it ends in."""
        if self.loop.step != start:
            self.loop.load_state_dict(load_state(self._state(start), self.loop.device))
        rows: list[Row] = []

        def note(row: dict[str, Json]) -> None:
            if self.validation is not None and row["step"] == stop:
                row |= self._validated(self.validation)
            rows.append(row)
            if self.record is not None:
                self.record.add(row)
            self.tell(row)

        self.loop.run(stop, note)
        if self.folder is not None and self.loop.team.leads:
            self._save(start, stop)
        return {"log": rows}

    def tell(self, row: Row | None) -> None:
        """Let the watcher know how far the run is."""
        if self.on_progress is not None:
            self.on_progress(0 if row is None else int(str(row["step"])), self.loop.feed.steps, row)

    def finish(self) -> nn.Module:
        """Return the network as it is to be used."""
        steps = self.loop.feed.steps
        if self.loop.step != steps:  # everything was done before
            self.loop.load_state_dict(load_state(self._state(steps), self.loop.device))
        return self._judged()

    def _validated(self, data: ImageSet) -> dict[str, Json]:
        """Return the accuracy, under noise and clean where the recipe has noise: it is noisy images that count then."""
        network, batch, sigma = self._judged(), self.loop.feed.batch, self.loop.sigma
        if isinstance(data, MaskSet):
            return overlap(network, data, batch)
        clean = accuracy(network, data, batch)
        if sigma == 0.0:
            return {"accuracy": clean}
        noisy = accuracy(network, data, batch, sigma=sigma, seed=self.loop.settings.seed)
        return {"noisy_accuracy": noisy, "clean_accuracy": clean}

    def _judged(self) -> nn.Module:
        self.judge.load_state_dict(self.loop.weights())
        return self.judge

    def _state(self, step: int) -> Path:
        if self.folder is None:
            raise RuntimeError("there is no folder for states")
        return self.folder / f"state-{step}.pt"

    def _save(self, start: int, stop: int) -> None:
        """Write the state, and remove those from before the segment, which runs again if a kill comes now."""
        save_state(self._state(stop), self.loop.state_dict())
        for old in self._state(0).parent.glob("state-*.pt"):
            if old not in (self._state(start), self._state(stop)):
                old.unlink(missing_ok=True)


def accuracy(network: nn.Module, data: ImageSet, batch_size: int = 256, *, sigma: float = 0.0, seed: int = 0) -> float:
    """Return the share of images that a network in evaluation mode gives their label.

    With `sigma`, Gaussian noise of that standard deviation is on every image, one draw by the seed and the image.
    """
    right = 0
    for batch in data.batches(batch_size):
        images = batch.inputs
        if sigma:
            images = images + Keyed(seed, batch.keys).fork("train/validation").normal(0.0, sigma, images.shape[1:])
        right += int((logits(network, images).argmax(1) == cast("Tensor", batch.labels)).sum())
    return right / len(data)


def overlap(network: nn.Module, data: MaskSet, batch_size: int = 16) -> dict[str, Json]:
    """Return mIoU and pixel accuracy of a segmenter in evaluation mode."""
    rows = [
        LABEL_MAPS.tally(cast("Tensor", batch.labels), LABEL_MAPS.scores(network, batch.inputs))
        for batch in data.batches(batch_size)
    ]
    counts = np.concatenate([unpack(str(row["overlap"]), int(str(row["classes"]))) for row in rows])
    found = Overlap(counts, present_classes(data))
    return {"miou": round(found.value, 6), "accuracy": round(found.pixel_accuracy, 6)}


def _rows(row: Row) -> Sequence[Row]:
    return cast("Sequence[Row]", row.get("log", ()))
