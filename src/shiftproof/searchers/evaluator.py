"""Fitness of tuples as tasks of a run: each tuple on a range of images is measured once, kept, and never lost."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor

from shiftproof.data import ImageSet
from shiftproof.data.images.levels import divide_
from shiftproof.errors import DataError, RunError
from shiftproof.models import BatchFitter
from shiftproof.runs import Inline, OnProgress, Plan, Result, Row, Store, Task, WorkerPool, drive
from shiftproof.searchers.applying import MEMORY, Applier
from shiftproof.searchers.constraint import Constraint
from shiftproof.searchers.fitness import Classification, Fitness
from shiftproof.searchers.search_trace import Score, check_fitness
from shiftproof.searchers.space import Genes, Space
from shiftproof.shifts import ImageShift
from shiftproof.shifts.image_shift import CACHED
from shiftproof.shifts.levels import to_bytes

MAX_TASK_IMAGES = 2_000
"""Images of one cell: a kill costs no more than these."""
UNHEARD = 8
"""Batches that a GPU may be asked of before the answer to the first is heard: the scores of all are held till then."""


@dataclass(frozen=True)
class HeldImages:
    """The images of a search, held in memory as bytes [N, C, H, W] on the device that transforms them."""

    images: Tensor
    keys: Tensor

    def __len__(self) -> int:
        return len(self.images)


def hold(data: ImageSet, device: str = "cpu") -> HeldImages:
    """Read all images of a set into memory."""
    if len(data) == 0:
        raise DataError("There are no images to search with.")
    parts = [(to_bytes(batch.inputs), batch.keys) for batch in data.batches(256)]
    images, keys = (torch.cat(some) for some in zip(*parts, strict=True))
    return HeldImages(images.to(device), keys)


@dataclass(frozen=True)
class TriedTuple(Task["Evaluator"]):
    """A tuple of steps on a range of images."""

    kind = "search"
    steps: tuple[ImageShift, ...]
    start: int
    stop: int
    seed: int

    def measure(self, subject: Evaluator) -> Row:
        """Return the counts of the tuple."""
        return subject.fit(lambda size: subject.count(self.steps, self.start, self.stop, size))


class Evaluator:
    """The worker of a search: applies chains to images and counts the model's results.

    It can be pickled to worker processes, with its images and model.

    Args:
        space: The transformations and their levels.
        pixels: The images.
        fitness: What is measured.
        constraint: What an admissible chain must keep.
        batch_size: Images in a batch.
        seed: The seed of what shifts draw.
        memory: Bytes that intermediate images may take.
    """

    def __init__(
        self,
        space: Space,
        pixels: HeldImages,
        fitness: Fitness,
        constraint: Constraint | None = None,
        *,
        batch_size: int = 64,
        seed: int = 0,
        memory: int = MEMORY,
    ) -> None:
        self.pixels, self.fitness, self.constraint = pixels, fitness, constraint or Constraint()
        self.space, self.fit = space, BatchFitter(batch_size)
        self.steps = {step.label: step for step in space.steps}
        self.applier = Applier(pixels.images, pixels.keys, seed=seed, memory=memory)

    @property
    def on_cpu(self) -> bool:
        """Whether the images are on a CPU."""
        return self.pixels.images.device.type == "cpu"

    def __call__(self) -> Evaluator:
        """Be the worker."""
        return self

    def task(self, genes: Genes, start: int, stop: int) -> TriedTuple:
        """Return the task of a tuple on a range of images."""
        return TriedTuple(tuple(self.space.steps[gene] for gene in genes), start, stop, self.applier.seed)

    def score(self, rows: Sequence[Row], images: int) -> Score:
        """Return what the rows of a tuple, over as many images, come to."""
        for row in rows:
            if "outside" in row:
                check_fitness(float(str(row["outside"])))
        counts = np.sum([cast("list[float]", row["counts"]) for row in rows], axis=0)
        if not self.constraint:
            return Score(self.fitness.value(counts))
        sums = np.sum([cast("list[float]", row["sums"]) for row in rows], axis=0)
        admissible, similarity, agreement = self.constraint.judge(sums, images)
        violation = self.constraint.violation(similarity, agreement)
        return Score(self.fitness.value(counts), admissible, similarity, agreement, violation=violation)

    def measure(self, task: TriedTuple) -> Row:
        """Return the counts of a tuple on a range of images."""
        return task.measure(self)

    def measure_all(self, tasks: Sequence[TriedTuple]) -> list[Row]:
        """Return the counts of several tuples; where each image is judged alone, these share the model's batches."""
        fitness = self.fitness
        if not isinstance(fitness, Classification):
            return [self.measure(task) for task in tasks]
        return self.fit(lambda size: self._count_all(tasks, fitness, size))

    def _count_all(self, tasks: Sequence[TriedTuple], fitness: Classification, batch_size: int) -> list[Row]:
        asked: deque[tuple[list[int], Callable[[], list[bool]]]] = deque()
        counts = np.zeros((len(tasks), 2))
        sums = [torch.zeros(2, dtype=torch.float64, device=self.pixels.images.device) for _ in tasks]
        waiting: list[tuple[int, Tensor, slice]] = []

        def ask() -> None:
            """Ask the model of the images that wait: whose they are, and what will be the answer."""
            owners = [number for number, images, _ in waiting for _ in range(len(images))]
            places = [row for _, _, rows in waiting for row in range(rows.start, rows.stop)]
            asked.append((owners, fitness.ask(torch.cat([images for _, images, _ in waiting]), places)))
            waiting.clear()
            hear(0 if self.on_cpu else UNHEARD)

        def hear(left: int) -> None:
            """Count the answers of the batches asked first, but of so many."""
            while len(asked) > left:
                owners, answer = asked.popleft()
                np.add.at(counts, owners, np.stack([answer(), np.ones(len(owners))], 1))

        for number, task in enumerate(tasks):
            for first, last in self._parts(task.start, task.stop, batch_size):
                made, some = self._applied(task.steps, first, last)
                sums[number] += some
                for rows in self._batches(first, last, batch_size):
                    room = batch_size - sum(len(held) for _, held, _ in waiting)
                    if waiting and rows.stop - rows.start > room:
                        ask()
                    waiting.append((number, made[rows.start - first : rows.stop - first], rows))
        if waiting:
            ask()
        hear(0)
        counted: list[Row] = [{"counts": some} for some in counts.tolist()]
        if not self.constraint or not counted:
            return counted
        return [{**row, "sums": some} for row, some in zip(counted, torch.stack(sums).tolist(), strict=True)]

    def _applied(self, steps: Sequence[ImageShift], first: int, last: int) -> tuple[Tensor, Tensor]:
        """Return images after steps, float32 in [0, 1], and what the constraint makes of them, [2]."""
        levels = self.applier.levels(steps, first, last)
        before = self.pixels.images[first:last]
        sums = (
            self.constraint.tally(before.float(), levels) if self.constraint else torch.zeros((), device=before.device)
        )
        return divide_(levels), sums

    def count(self, steps: Sequence[ImageShift], start: int, stop: int, batch_size: int) -> Row:
        """Return the counts of steps in turn on a range of images."""
        counts, sums = np.zeros(0), torch.zeros(2, dtype=torch.float64, device=self.pixels.images.device)
        for first, last in self._parts(start, stop, batch_size):
            images, some_sums = self._applied(steps, first, last)
            sums += some_sums
            for rows in self._batches(first, last, batch_size):
                some, _ = self.fitness.tally(images[rows.start - first : rows.stop - first], rows)
                counts = counts + some if len(counts) else some
        value = self.fitness.value(counts)
        if not 0.0 <= value <= 1.0:  # NaN included; whoever reads the row stops at it, as no other tuple will do better
            return {"outside": repr(value)}
        row: dict[str, Sequence[float]] = {"counts": counts.tolist()}
        return {**row, "sums": sums.tolist()} if self.constraint else row

    def _parts(self, start: int, stop: int, batch_size: int) -> Iterator[tuple[int, int]]:
        """Cut a range into parts that stay in a CPU's cache over a tuple's steps, whole batches each."""
        if self.fitness.whole:
            yield start, stop
            return
        fitting = CACHED // self.pixels.images[0].numel() if self.on_cpu else MAX_TASK_IMAGES
        size = batch_size * max(1, round(fitting / batch_size))
        for first in range(start, stop, size):
            yield first, min(first + size, stop)

    def _batches(self, first: int, last: int, batch_size: int) -> Iterator[slice]:
        size = last - first if self.fitness.whole else batch_size
        for start in range(first, last, size):
            yield slice(start, min(start + size, last))


class Evaluation:
    """Evaluates chains for a searcher on a pool of workers, with results cached in a store.

    A chain measured before, in this search or in an interrupted run, is not measured again. A chain that fails is
    recorded with its error; if all chains of a batch fail, the search ends.

    Args:
        evaluator: What measures a chain.
        store: Where results are kept.
        fingerprints: What they are measured on.
        pool: Open workers; by default everything happens here.
        on_progress: Called as on_progress(done, total, result).
    """

    def __init__(
        self,
        evaluator: Evaluator,
        store: Store,
        fingerprints: Mapping[str, str],
        pool: WorkerPool | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        self.evaluator, self.store = evaluator, store
        self.fingerprints, self.on_progress = dict(fingerprints), on_progress
        self.pool = pool or Inline().open(evaluator)
        self._ends: dict[Genes, list[int]] = {}

    def __call__(self, tuples: Sequence[Genes], images: int | None = None, /) -> list[Score]:
        """Return the scores of tuples on the first `images` images, all by default."""
        count = len(self.evaluator.pixels) if images is None else images
        before = len(self._ends)
        ranges = {genes: self._ranges(genes, count) for genes in sorted(set(tuples))}  # shared first steps side by side
        tasks = {genes: [self.evaluator.task(genes, *one) for one in some] for genes, some in ranges.items()}
        plan = Plan(tuple(task for some in tasks.values() for task in some), self.fingerprints)
        found = drive(plan, self.store, self.pool, on_progress=self._after(before))
        results = {result.task: result for result in found}
        scores = {genes: self._score([results[task] for task in some], count) for genes, some in tasks.items()}
        errors = [score.error for score in scores.values() if score.error is not None]
        if errors and len(errors) == len(scores):
            raise RunError(
                f"None of {len(scores)} chains could be evaluated.",
                reason=errors[0],
                fix="repair what failed and run the same search again: what was evaluated before is kept",
            )
        return [scores[genes] for genes in tuples]

    def _after(self, before: int) -> OnProgress | None:
        """Return what hears of one batch of tuples and tells of all that were tried."""
        on_progress = self.on_progress
        return (
            None
            if on_progress is None
            else lambda done, total, result: on_progress(before + done, before + total, result)
        )

    def _ranges(self, genes: Genes, count: int) -> list[tuple[int, int]]:
        """Cut the first `count` images where this tuple's evaluations ended so far, and at the most a cell may hold."""
        ends = self._ends.setdefault(genes, [])
        while not ends or ends[-1] < count:
            ends.append(min(count, (ends[-1] if ends else 0) + MAX_TASK_IMAGES))
        return list(zip([0, *ends], ends, strict=False))

    def _score(self, results: Sequence[Result], images: int) -> Score:
        for result in results:
            if result.error is not None:
                return Score(None, error=_reason(result.error))
        return self.evaluator.score([result.row or {} for result in results], images)


class Direct:
    """Evaluates chains without a store, for a search inside other work; each chain is measured once.

    Args:
        evaluator: What measures a chain.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator = evaluator
        self._scores: dict[tuple[Genes, int], Score] = {}

    def __call__(self, tuples: Sequence[Genes], images: int | None = None, /) -> list[Score]:
        """Return the scores of tuples; an error of the model is raised."""
        count = len(self.evaluator.pixels) if images is None else images
        new = [genes for genes in sorted(set(tuples)) if (genes, count) not in self._scores]
        rows = self.evaluator.measure_all([self.evaluator.task(genes, 0, count) for genes in new])
        for genes, row in zip(new, rows, strict=True):
            self._scores[genes, count] = self.evaluator.score([row], count)
        return [self._scores[genes, count] for genes in tuples]


def _reason(error: str) -> str:
    """Return the line of an error that says what happened: a traceback's last, a paragraph's whole."""
    return error.strip().splitlines()[-1] if error.startswith("Traceback") else error
