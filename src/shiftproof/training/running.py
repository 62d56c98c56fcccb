"""A run as tasks: the segments between checkpoints, each from the state that the one before it left."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import cast

import numpy as np
from torch import Tensor, nn

from shiftproof.data import ImageSet
from shiftproof.data.images.maskset import MaskSet
from shiftproof.errors import RunError
from shiftproof.keyed import Keyed
from shiftproof.measures.overlap import Overlap, unpack
from shiftproof.models import logits
from shiftproof.prediction_tasks import LABEL_MAPS, present_classes
from shiftproof.runs import Json, Plan, Row, Store, Task, drive
from shiftproof.training.goals import GoalScore, best_step, stalled
from shiftproof.training.loop import DivergedError, Loop
from shiftproof.training.recalibrating import recalibrate
from shiftproof.training.record import TrainingLog
from shiftproof.training.state import load_state, save_state
from shiftproof.training.team import Team

OnProgress = Callable[[int, int, Row | None], None]
Replan = Callable[[float, float], int]
"""The seconds up to the first checkpoint, and those of a step after the first few -> the epochs of the run."""

EPOCHS, PLANNED = "epochs of each part", "epochs planned at first"
"""What a run directory notes: how often it was extended, and how many epochs it was to have before steps were timed."""
CALIBRATION_STEPS = 16
"""Batches of the training set that statistics are taken anew from."""


def run(runner: Runner, subject: dict[str, str], team: Team) -> list[Row]:
    """Run the segments between checkpoints that are missing, and return the log of all."""
    if runner.folder is None:
        return [row for task in runner.segments() for row in _rows(runner.measure(task))]
    if not team.leads:
        runner.loop.ends, done = team.tell(((0,), 0))
        for task in runner.segments()[done:]:
            runner.measure(task)
        return []
    with Store(runner.folder, subject) as store:
        _extend(runner, store, subject)
        plan = Plan(runner.segments(), subject)
        finished = [result for result in store.results(plan) if result.row is not None]
        runner.log = [row for result in finished for row in _rows(result.row or {})]
        runner.record = TrainingLog(runner.folder, runner.log, runner.trackers)
        runner.tell(runner.log[-1] if runner.log else None)
        team.tell((runner.loop.ends, len(finished)))
        try:
            if len(finished) < 2 and _replan(runner, store, plan):
                plan = Plan(runner.segments(), subject)
            results = drive(plan, store, lambda: runner, essential="Training")
        finally:
            runner.record.close()
    return [row for result in results for row in _rows(result.row or {})]


def _extend(runner: Runner, store: Store, subject: dict[str, str]) -> None:
    """Let a run go on from where it ended before; refuse fewer epochs than it has, and to extend an unfinished one."""
    loop, epochs = runner.loop, runner.loop.settings.epochs
    parts: list[int] = json.loads(store.about().get(EPOCHS, "[]"))
    if runner.replan is not None and store.about().get(PLANNED) == str(epochs):  # as it was asked for before
        epochs = parts[-1]
    ended = parts[-1] if parts else epochs
    if epochs != ended:
        loop.ends = tuple(part * loop.feed.steps_per_epoch for part in parts)
        planned = runner.segments()
        left = len(planned) - len([each for each in store.results(Plan(planned, subject)) if each.row is not None])
        if epochs < ended or left:
            raise RunError(
                f"The run in {str(store.folder)!r} was made with another number of epochs.",
                expected=f"epochs {ended}, as in the folder" + ("; more, once these are done" if left else ", or more"),
                got=f"epochs {epochs}",
                fix=f"give --epochs {ended}, or choose another folder; this one is left as it is",
            )
    parts = [*parts, *([epochs] if not parts or epochs > ended else [])]
    loop.ends = tuple(part * loop.feed.steps_per_epoch for part in parts)
    store.note({EPOCHS: json.dumps(parts)})


def _replan(runner: Runner, store: Store, plan: Plan) -> bool:
    """Train to the first checkpoint, and set the epochs by the time that took, where that is wanted and not yet done.

    The schedule goes on as if they had been planned so. They are noted, so that a run that resumes keeps them.
    """
    loop = runner.loop
    if runner.replan is None or loop.team.size > 1 or PLANNED in store.about() or len(loop.ends) > 1:
        return False
    (first,) = drive(Plan(plan.tasks[:1], plan.fingerprints), store, lambda: runner, essential="Training")
    rows = _rows(first.row or {})
    later = rows[1:] or rows  # kernels are looked for, and views made ahead, in the first
    spent, each = _total(rows, "seconds"), _total(later, "seconds") / _total(later, "steps")
    epochs = max(1, runner.replan(spent, each))
    store.note({EPOCHS: json.dumps([epochs]), PLANNED: str(loop.settings.epochs)})
    loop.ends = (epochs * loop.feed.steps_per_epoch,)
    return True


def _total(rows: Sequence[Row], name: str) -> float:
    return sum(float(str(row[name])) for row in rows)


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
    trackers: tuple[str, ...] = ()
    replan: Replan | None = None
    record: TrainingLog | None = None
    log: list[Row] = field(default_factory=list)
    judge: nn.Module = field(init=False)
    score: GoalScore | None = field(init=False, default=None)
    best: dict[str, Tensor] | None = None
    diverged: DivergedError | None = None
    """Why the run ended early; `log` then ends at its last checkpoint."""

    def __post_init__(self) -> None:
        self.judge = copy.deepcopy(self.loop.network).eval()
        goal, feed = self.loop.settings.goal, self.loop.feed
        if goal is not None and self.validation is not None:
            seed = self.loop.settings.seed
            self.score = GoalScore(goal, self.validation, sigma=self.loop.sigma, seed=seed, batch_size=feed.batch)

    def segments(self) -> tuple[Segment, ...]:
        """Return what there is to do, as tasks."""
        return tuple(Segment(start, stop) for start, stop in pairwise([0, *self.loop.boundaries()]))

    def measure(self, task: Segment) -> Row:
        """Train over one segment."""
        return task.measure(self)

    def train(self, start: int, stop: int) -> Row:
        """Train from one step to another, and save the state it ends in; nothing is left to do once it stalled."""
        if self.loop.team.tell(stalled(self.log, self.loop.settings.patience)):
            return {"log": []}
        if self.loop.step != start:
            self.loop.load_state_dict(load_state(self._state(start), self.loop.device))
        rows: list[Row] = []

        def note(row: dict[str, Json]) -> None:
            if self.validation is not None and row["step"] == stop:
                row |= self._validated(self.validation)
            rows.append(row)
            self.log.append(row)
            if self.record is not None:
                self.record.add(row)
            self.tell(row)

        try:
            self.loop.run(stop, note)
        except DivergedError as error:
            self.diverged, self.log = error, [row for row in self.log if int(str(row["step"])) <= start]
            raise
        if self.score is not None and best_step(self.log) == stop:
            self._keep(stop)
        if self.folder is not None and self.loop.team.leads:
            self._save(start, stop)
        return {"log": rows}

    def tell(self, row: Row | None) -> None:
        """Let the watcher know how far the run is."""
        if self.on_progress is not None:
            self.on_progress(0 if row is None else int(str(row["step"])), self.loop.ends[-1], row)

    def finish(self) -> nn.Module:
        """Return the network as it is to be used: as it was at its best, at the end, or before it diverged."""
        best = best_step(self.log) if self.score is not None else None
        if best is not None:
            held = self.best if self.best is not None else load_state(self._best(best), self.loop.device)
            self.judge.load_state_dict(held)
        else:
            steps = self.loop.ends[-1] if self.diverged is None else int(str(self.log[-1]["step"]))
            if self.loop.step != steps:  # everything was done before, or some steps were too many
                self.loop.load_state_dict(load_state(self._state(steps), self.loop.device))
            self._judged()
        if self.loop.settings.recalibrate:
            steps = min(CALIBRATION_STEPS, self.loop.feed.steps_per_epoch)
            recalibrate(self.judge, (batch.inputs.flatten(0, 1) for batch in self.loop.feed.batches(0, steps)))
        return self.judge

    def _validated(self, data: ImageSet) -> dict[str, Json]:
        """Return the accuracy, under noise and clean where the recipe has noise: it is noisy images that count then."""
        network, batch, sigma = self._judged(), self.loop.feed.batch, self.loop.sigma
        self.loop.check_answers(network, data)
        if isinstance(data, MaskSet):
            found = overlap(network, data, batch)
            return found if self.score is None else {**found, "goal": found["miou"]}
        goal: dict[str, Json] = {} if self.score is None else {"goal": self.score(network)}
        clean = accuracy(network, data, batch)
        if sigma == 0.0:
            return {"accuracy": clean, **goal}
        noisy = accuracy(network, data, batch, sigma=sigma, seed=self.loop.settings.seed)
        return {"noisy_accuracy": noisy, "clean_accuracy": clean, **goal}

    def _judged(self) -> nn.Module:
        self.judge.load_state_dict(self.loop.weights())
        return self.judge

    def _state(self, step: int) -> Path:
        return self._place(f"state-{step}.pt")

    def _best(self, step: int) -> Path:
        return self._place(f"best-{step}.pt")

    def _place(self, name: str) -> Path:
        if self.folder is None:
            raise RuntimeError("there is no folder for states")
        return self.folder / name

    def _keep(self, step: int) -> None:
        """Keep the weights that are the best so far; those from before them go once a later state is saved."""
        self.best = self.loop.weights()
        if self.folder is not None:
            save_state(self._best(step), self.best)

    def _save(self, start: int, stop: int) -> None:
        """Write the state, and remove those from before the segment, which runs again if a kill comes now."""
        save_state(self._state(stop), self.loop.state_dict())
        kept = {self._state(start), self._state(stop), self._best(stop)}
        before = best_step([row for row in self.log if int(str(row["step"])) <= start])
        kept |= {self._best(step) for step in (before, best_step(self.log)) if step is not None}
        for pattern in ("state-*.pt", "best-*.pt"):
            for old in self._state(0).parent.glob(pattern):
                if old not in kept:
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
