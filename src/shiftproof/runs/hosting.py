"""What happens where tasks run: the setup is unpacked and called once, and tasks are measured, whatever they raise."""

from __future__ import annotations

import os
import pickle
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, cast

from shiftproof.errors import INTERRUPTIONS, ConfigurationError, RunError, ShiftproofError
from shiftproof.registry import registered, registry
from shiftproof.runs import limits
from shiftproof.runs.limits import TimedOut, time_limit
from shiftproof.runs.plan import Result
from shiftproof.runs.task import AnyTask, Row, canonical
from shiftproof.runs.user_modules import FILES, make_importable
from shiftproof.version import __version__


class Worker(Protocol):
    """What measures tasks."""

    def measure(self, task: Any, /) -> Row:
        """Return the numbers of a task; which types of task there can be is known to who plans them."""


Setup: TypeAlias = Callable[[], Worker]
"""Function that makes a worker, called in the process that runs it."""


def measure(worker: Worker, task: AnyTask, timeout: float | None = None, *, hosted: bool = False) -> Result:
    """Return the result of a task; what it raises is its result too, and so is that it ran longer than `timeout`.

    `hosted` says that this is a worker process: nobody interrupts it but the code of the task itself, and a task that
    hangs may end it.
    """
    start = time.perf_counter()
    try:
        with time_limit(timeout, fatal=hosted):
            row, error = worker.measure(task), None
        canonical(row)  # what cannot be stored, such as NaN, is this task's failure and nobody else's
    except ShiftproofError as problem:
        row, error = None, str(problem)
    except TimedOut as problem:
        row, error = None, f"{problem}\n  where  {_trace(problem)}"
    except BaseException as problem:  # one task's failure must not cost the others; its trace is kept with it
        if isinstance(problem, INTERRUPTIONS) and not hosted:
            raise
        row, error = None, traceback.format_exc()
    return Result(task, row, error, time.perf_counter() - start)


@dataclass(frozen=True)
class Packed:
    """A setup on its way to another process: as bytes, so that it is not unpacked before that process is ready."""

    version: str
    content: bytes
    registered: tuple[tuple[str, str, bytes], ...] = ()
    files: tuple[tuple[str, str], ...] = ()


def pack(setup: Setup, dumps: Callable[[Any], bytes] = pickle.dumps) -> Packed:
    """Return a setup that can be sent to another process with the same version installed."""
    try:
        return Packed(__version__, dumps(setup), tuple(_registered(dumps)), tuple(FILES.items()))
    except Exception as error:
        raise ConfigurationError(
            "The model or data cannot be sent to worker processes.",
            reason=str(error),
            fix="give them as text (a path or a name), which each process loads, or use the inline executor",
        ) from error


def _registered(dumps: Callable[[Any], bytes]) -> Iterator[tuple[str, str, bytes]]:
    """Yield what was registered in this process; what cannot be sent is missed only where it is used."""
    for kind, name, thing in registered():
        with suppress(Exception):
            yield kind, name, dumps(thing)


class Host:
    """The worker of one process, with so many threads for arithmetic and a limit of time for each task.

    An error in the setup is kept for the driver, who hears of it with the first task: it stops all tasks alike.
    """

    def __init__(self, packed: Packed, threads: int, timeout: float | None = None) -> None:
        self._timeout = timeout
        self._worker: Worker | None = None
        self._problem: ShiftproofError | None = None
        try:
            self._worker = _unpack(packed, threads)()
        except INTERRUPTIONS:
            raise
        except ShiftproofError as error:
            self._problem = error
        except BaseException as error:
            self._problem = RunError(
                "A worker process could not be set up.", reason=f"{type(error).__name__}: {error}", trace=_trace(error)
            )

    def measure(self, task: AnyTask) -> Result:
        """Measure a task, or raise what stopped the setup."""
        if self._problem is not None:
            raise self._problem
        return measure(cast(Worker, self._worker), task, self._timeout, hosted=True)


def _unpack(packed: Packed, threads: int) -> Setup:
    if packed.version != __version__:
        raise ConfigurationError(
            "A worker has another version of shiftproof than the driver.",
            expected=packed.version,
            got=__version__,
            fix="install the same version on every node",
        )
    os.environ["OMP_NUM_THREADS"] = str(threads)  # what is loaded from here on, torch among them, goes by it
    if "torch" in sys.modules:
        import torch

        torch.set_num_threads(threads)
    make_importable(dict(packed.files))
    for kind, name, thing in packed.registered:
        with suppress(Exception):  # what was defined in a notebook cannot be found here
            registry(kind).register(name, pickle.loads(thing))
    return cast(Setup, pickle.loads(packed.content))  # from the driver, through a pipe; never from a file


def _trace(error: BaseException) -> str:
    places = traceback.extract_tb(error.__traceback__)
    last = next((one for one in reversed(places) if one.filename != limits.__file__), places[-1])
    return f"{last.filename}, line {last.lineno}"


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
