"""Where cells run: in this process, or in several. The same cells, the same numbers.

An executor gets a `setup`, which makes a worker (loads the model and the data, once per process), and cells; it yields
a result per cell as they finish. A cell that fails is a result too.
"""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from shiftproof.errors import ConfigurationError, ShiftproofError
from shiftproof.runs.plan import Cell, Result, Row, canonical


class Worker(Protocol):
    """What measures cells."""

    def measure(self, cell: Cell) -> Row:
        """Return the numbers of a cell."""


Setup: TypeAlias = Callable[[], Worker]


class Executor(Protocol):
    """A way to run cells."""

    def run(self, setup: Setup, cells: Iterable[Cell]) -> Iterator[Result]:
        """Yield a result for every cell, in any order."""


@dataclass(frozen=True)
class Inline:
    """Run the cells one after another in this process."""

    def run(self, setup: Setup, cells: Iterable[Cell]) -> Iterator[Result]:
        """Yield results in the order of the cells."""
        worker = setup()
        for cell in cells:
            yield _measure(worker, cell)


@dataclass(frozen=True)
class Processes:
    """Run the cells in `count` fresh processes, each with its own worker.

    A process that dies (killed, out of memory) takes no result with it. The cells that were in flight run again at the
    end, one at a time, so that one which kills its process is found and fails alone.
    """

    count: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ConfigurationError(
                "The number of worker processes must be positive.", expected="1 or more", came=str(self.count)
            )

    def run(self, setup: Setup, cells: Iterable[Cell]) -> Iterator[Result]:
        """Yield results as they come."""
        try:
            pickle.dumps(setup)
        except Exception as error:
            raise ConfigurationError(
                "The model or data cannot be sent to worker processes.",
                reason=str(error),
                instead="give them as text (a path or a name), which each process loads, or use the inline executor",
            ) from error
        waiting, suspects = deque(cells), deque[Cell]()
        while waiting:
            suspects.extend((yield from _pooled(setup, waiting, self.count, 2 * self.count)))
        while suspects:
            for cell in (yield from _pooled(setup, suspects, 1, 1)):
                yield Result(cell, None, "its process died twice, the second time with this cell alone in it", 0.0)


def _pooled(setup: Setup, waiting: deque[Cell], count: int, most: int) -> Generator[Result, None, list[Cell]]:
    """Take cells off `waiting` into a pool, at most so many at a time; return those in flight when a process died."""
    others = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=_start, initargs=(setup,))
    flying: dict[Future[Result], Cell] = {}
    try:
        while waiting or flying:
            while waiting and len(flying) < most:
                flying[pool.submit(_measure_here, waiting[0])] = waiting[0]
                waiting.popleft()  # only once it is in flight: a submission to a broken pool raises
            for future in wait(flying, return_when=FIRST_COMPLETED).done:
                result = future.result()
                del flying[future]
                yield result
    except BrokenProcessPool:
        return list(flying.values())
    except BaseException:
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return []


def _measure(worker: Worker, cell: Cell) -> Result:
    start = time.perf_counter()
    try:
        row, error = worker.measure(cell), None
        canonical(row)  # what cannot be stored, such as NaN, is this cell's failure and nobody else's
    except ShiftproofError as problem:
        row, error = None, str(problem)
    except Exception:  # one cell's failure must not cost the others; its trace is kept with it
        row, error = None, traceback.format_exc()
    return Result(cell, row, error, time.perf_counter() - start)


_setup: Worker | ShiftproofError | None = None


def _start(setup: Setup) -> None:
    """Make this process's worker, once. An error in it is kept for the cells to report: a pool would swallow it."""
    global _setup  # noqa: PLW0603
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's to handle
    try:
        _setup = setup()
    except ShiftproofError as error:
        _setup = error


def _measure_here(cell: Cell) -> Result:
    if isinstance(_setup, ShiftproofError):
        raise _setup
    if _setup is None:
        raise RuntimeError("the worker process was not set up")
    return _measure(_setup, cell)
