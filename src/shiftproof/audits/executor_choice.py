"""Where an audit's tasks run fastest on a CPU: one after another with all threads, or one process for each core.

Tried with the work that most tasks are made of: inputs that are read, shifted and asked of. Here the processes are
threads of this one, each with one thread for arithmetic; they share cores and memory as processes would.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch

from shiftproof.audits.costs import free_memory, peak_memory
from shiftproof.audits.forecast import passes_of
from shiftproof.audits.pacing import WORTHWHILE
from shiftproof.audits.sections.base import Measurement, Scope
from shiftproof.audits.sections.measuring import predictions
from shiftproof.errors import ConfigurationError
from shiftproof.prediction_tasks import CLASSES
from shiftproof.runs import Executor, Inline, Plan, Processes
from shiftproof.runs.hosting import cores, pack
from shiftproof.shifts import Shift
from shiftproof.subjects import Measurer, Subject

FASTER = 1.08
"""Processes have to be faster by so much: each loads the model and the data."""
LONG = 2 * WORTHWHILE
"""Operations of an audit from which on starting processes pays: about half a minute of a small network."""
ROOM = 0.5
"""The share of the free memory that processes may take, each as much as this one has taken so far."""
PATIENCE = 0.5
"""Seconds that each way is tried for, after a first time that does not count."""


def quickest_executor(
    subject: Subject,
    scope: Scope,
    plan: Plan,
    operations: float,
    given: Inline,
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> Executor:
    """Return what runs the tasks of a plan fastest; in this process where nothing else was found to be faster.

    `operations` are those of a pass of one input; `given` is what runs them in this process.
    """
    tasks = [task for task in plan.identities().values() if isinstance(task, Measurement)]
    several = int(min(cores(), ROOM * free_memory() / peak_memory().get("process", 1)))
    wanted = subject.device == "cpu" and several > 1 and operations * passes_of(tasks) >= LONG
    if not wanted or scope.task != CLASSES.name or not _can_be_sent(subject):
        return given
    shift = next(iter(scope.grid()), None)
    alone = pace(subject, shift, 1, torch.get_num_threads(), clock)
    together = pace(subject, shift, several, 1, clock)
    return Processes(several, timeout=given.timeout) if together > FASTER * alone else given


def pace(subject: Subject, shift: Shift | None, workers: int, threads: int, clock: Callable[[], float]) -> float:
    """Return how many inputs a second so many workers read, shift and ask of, with so many threads each."""
    places = range(min(subject.batch_size, len(subject.data)))

    def work(_: int) -> float:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            predictions(subject, places, shift, 0)
            rounds, begun = 0, clock()
            while not rounds or clock() - begun < PATIENCE:
                predictions(subject, places, shift, 0)
                rounds += 1
            return rounds * len(places) / max(clock() - begun, 1e-9)
        finally:
            torch.set_num_threads(before)

    with ThreadPoolExecutor(workers) as pool:
        return sum(pool.map(work, range(workers)))


def _can_be_sent(subject: Subject) -> bool:
    """Whether other processes can be given the model and the data."""
    try:
        pack(partial(Measurer, subject))
    except ConfigurationError:
        return False
    return True
