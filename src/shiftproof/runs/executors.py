"""Where tasks run: in this process, or in several. The same tasks, the same numbers.

An executor opens a pool for a `setup`, which makes a worker (loads the model and the data, once per process). A pool
gets tasks and yields a result per task as they finish; a task that fails is a result too. Workers are made when the
first tasks come and stay until the pool is closed.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Generator, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.queues import SimpleQueue
from types import TracebackType
from typing import Protocol, Self

from shiftproof.errors import ConfigurationError
from shiftproof.runs.hosting import Host, Packed, Setup, Worker, cores, measure, pack
from shiftproof.runs.limits import check_timeout
from shiftproof.runs.plan import Result
from shiftproof.runs.starting import start_method
from shiftproof.runs.task import AnyTask

DIED = "its process died twice, the second time with this task alone in it"


class WorkerPool(ABC):
    """Workers over one model and its data; a context manager that lets them go."""

    @abstractmethod
    def run(self, tasks: Iterable[AnyTask]) -> Generator[Result, None, None]:
        """Yield a result for every task, in any order."""

    def close(self) -> None:  # noqa: B027  (not every pool holds something)
        """Let the workers go."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Executor(Protocol):
    """A way to run tasks."""

    def open(self, setup: Setup) -> WorkerPool:
        """Return a pool whose workers `setup` makes."""


@dataclass(frozen=True)
class Inline:
    """Run the tasks one after another in this process.

    A task that runs longer than `timeout` seconds fails if Python can interrupt it, which it cannot while native code
    runs; `Processes` can.

    Args:
        timeout: Seconds after which a task fails. Default: no limit.

    >>> Inline(timeout=60)
    Inline(timeout=60)
    """

    timeout: float | None = None

    def __post_init__(self) -> None:
        check_timeout(self.timeout)

    def open(self, setup: Setup) -> WorkerPool:
        """Return a pool of one, here."""
        return _Here(setup, self.timeout)


class _Here(WorkerPool):
    def __init__(self, setup: Setup, timeout: float | None) -> None:
        self._setup, self._timeout = setup, timeout
        self._worker: Worker | None = None

    def run(self, tasks: Iterable[AnyTask]) -> Generator[Result, None, None]:
        """Yield results in the order of the tasks."""
        if self._worker is None:
            self._worker = self._setup()
        for task in tasks:
            yield measure(self._worker, task, self._timeout)


@dataclass(frozen=True)
class Processes:
    """Run the tasks in `count` new processes, each with its own worker.

    CPU cores are divided among the processes as threads. With `device="cuda"`, the processes are spread over the GPUs,
    and each sees only its own. If a process dies (killed, out of memory), no results are lost; tasks in flight run
    again at the end, one at a time, so that only a task that kills its process fails. If a task that timed out cannot
    be interrupted, its process is terminated.

    Args:
        count: Number of processes. Default: one per core or GPU.
        device: `cpu` or `cuda`.
        timeout: Seconds after which a task fails. Default: no limit.

    >>> Processes(2, timeout=60).count
    2
    """

    count: int | None = None
    device: str = "cpu"
    timeout: float | None = None

    def __post_init__(self) -> None:
        check_timeout(self.timeout)
        if self.count is not None and self.count < 1:
            raise ConfigurationError(
                "The number of worker processes must be positive.", expected="1 or more", got=str(self.count)
            )

    def open(self, setup: Setup) -> WorkerPool:
        """Return a pool of processes."""
        gpus = _gpus(self.device)
        count = self.count or (len(gpus) if self.device.startswith("cuda") else cores()) or 1
        return _Pool(pack(setup), count, gpus, self.timeout)


class _Pool(WorkerPool):
    def __init__(self, packed: Packed, count: int, gpus: Sequence[str], timeout: float | None) -> None:
        self._packed, self._count, self._gpus, self._timeout = packed, count, gpus, timeout
        self._pool: ProcessPoolExecutor | None = None

    def run(self, tasks: Iterable[AnyTask]) -> Generator[Result, None, None]:
        """Yield results as they come."""
        waiting, suspects = deque(tasks), deque[AnyTask]()
        try:
            while waiting:
                suspects.extend((yield from self._spread(waiting, 2 * self._count)))
            while suspects:
                for task in (yield from self._spread(suspects, 1)):
                    yield Result(task, None, died(DIED, self._timeout), 0.0)
        except BaseException:
            self._end()
            raise

    def close(self) -> None:
        """End the processes, which have nothing to do."""
        if self._pool is not None:
            self._pool.shutdown(wait=True)
            self._pool = None

    def _spread(self, waiting: deque[AnyTask], most: int) -> Generator[Result, None, list[AnyTask]]:
        """Take tasks off `waiting`, at most so many at a time; return those in flight when a process died."""
        pool = self._pool = self._pool or self._start()
        flying: dict[Future[Result], AnyTask] = {}
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
            self._end()
            return list(flying.values())
        return []

    def _start(self) -> ProcessPoolExecutor:
        context = start_method()
        seats = context.SimpleQueue()
        for number in range(self._count):
            seats.put(self._gpus[number % len(self._gpus)] if self._gpus else None)
        threads = max(1, cores() // self._count)
        return ProcessPoolExecutor(
            self._count,
            mp_context=context,
            initializer=_start_here,
            initargs=(self._packed, threads, seats, self._timeout, dict(os.environ)),
        )

    def _end(self) -> None:
        """End the processes now, whatever they do."""
        pool, self._pool = self._pool, None
        if pool is not None:
            for process in list(pool._processes.values()):  # `pool.terminate_workers()` from Python 3.14 on
                process.terminate()
            pool.shutdown(wait=False, cancel_futures=True)


def died(said: str, timeout: float | None) -> str:
    """Return what is said of a task that ended its worker, with the limit that may have been why."""
    return said if timeout is None else f"{said}; it may have run longer than {timeout:g} s, the time-out of a task"


def _gpus(device: str) -> list[str]:
    """Return the names of the GPUs to spread processes over: all that are visible, if none is chosen."""
    if device != "cuda":
        return []
    import torch

    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return visible or [str(number) for number in range(torch.cuda.device_count())]


_host: Host | None = None


def _start_here(
    packed: Packed,
    threads: int,
    seats: SimpleQueue[str | None],
    timeout: float | None,
    environment: Mapping[str, str],
) -> None:
    """Make this process's worker, once."""
    global _host  # noqa: PLW0603
    os.environ.update(environment)  # the driver's, which may have changed since the server of processes was started
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's to handle
    threading.Thread(target=_end_with_the_driver, daemon=True).start()
    if (gpu := seats.get()) is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    _host = Host(packed, threads, timeout)


def _end_with_the_driver() -> None:
    """End this process when the driver is gone: a pool whose owner was killed would wait for tasks for ever."""
    driver = multiprocessing.parent_process()
    if driver is not None:
        driver.join()
        os._exit(1)


def _measure_here(task: AnyTask) -> Result:
    if _host is None:
        raise RuntimeError("the worker process was not set up")
    return _host.measure(task)
