"""Cells on a Ray cluster: an actor per core or GPU keeps the model and the data; the driver alone writes the store.

Ray is an extra: `pip install 'shiftproof[ray]'`, with the same version of shiftproof on every node.
"""

from __future__ import annotations

import signal
import threading
from collections import deque
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from shiftproof.errors import ConfigurationError, RunError, ShiftproofError
from shiftproof.runs.executors import WorkerPool, died
from shiftproof.runs.hosting import Host, Packed, Setup, pack
from shiftproof.runs.limits import check_timeout
from shiftproof.runs.plan import Result
from shiftproof.runs.task import AnyTask

DEPTH = 2
"""Cells that a worker has at a time: one at work, and one beside it, so that it never waits for the driver."""
MAX_FAILED_STARTS = 3
"""So many workers in a row may die before they are ready; more is no accident."""
DIED = "its worker died twice, the second time with this task alone in it"


@dataclass(frozen=True)
class Ray:
    """Run the tasks in `workers` actors of a Ray cluster; None is as many as the cluster has room for.

    `address` is that of a cluster (`auto`, `ray://head:10001`); None is the one that Ray finds (`RAY_ADDRESS`), or else
    one of this machine alone, for as long as the run takes. A worker takes `gpus_per_worker`, which may be a fraction,
    and `cpus_per_worker`, which are its threads too. The tasks of a worker that dies run again at the end, each alone
    in a worker, so that one which kills its worker is found and fails alone. A task that runs longer than `timeout`
    seconds fails.
    """

    workers: int | None = None
    address: str | None = None
    gpus_per_worker: float = 0.0
    cpus_per_worker: float = 1.0
    timeout: float | None = None

    def __post_init__(self) -> None:
        check_timeout(self.timeout)
        if (self.workers is not None and self.workers < 1) or self.gpus_per_worker < 0 or self.cpus_per_worker <= 0:
            raise ConfigurationError(
                "Invalid Ray worker settings.",
                expected="1 worker or more, each with a share of a processor, and of a GPU if it needs one",
                got=f"workers {self.workers}, GPUs {self.gpus_per_worker:g}, processors {self.cpus_per_worker:g}",
            )

    def open(self, setup: Setup) -> WorkerPool:
        """Return a pool of actors."""
        ray = _import()
        return _Actors(ray, self, pack(setup, ray.cloudpickle.dumps))  # which takes a script's own functions along


@dataclass
class _Actor:
    """A worker on the cluster: its handle, whether its model is loaded, and the tasks it has, the first at work."""

    handle: Any
    ready: bool = False
    tasks: list[AnyTask] = field(default_factory=list)


class _Actors(WorkerPool):
    def __init__(self, ray: Any, terms: Ray, packed: Packed) -> None:
        self._ray, self._terms, self._packed = ray, terms, packed
        self._joined = self._ours = False
        self._failed_starts = 0
        self._actors: list[_Actor] = []
        self._flying: dict[Any, tuple[_Actor, AnyTask | None]] = {}

    def run(self, tasks: Iterable[AnyTask]) -> Generator[Result, None, None]:
        """Yield results as they come."""
        if not self._joined:
            self._join()
        waiting, suspects, lost = deque(tasks), deque[AnyTask](), deque[AnyTask]()
        try:
            yield from self._spread(waiting, suspects, DEPTH)
            yield from self._spread(suspects, lost, 1)
            for task in lost:
                yield Result(task, None, died(DIED, self._terms.timeout), 0.0)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let the actors go, and the cluster too if it was started for this run."""
        for actor in self._actors:
            self._ray.kill(actor.handle)
        self._actors, self._flying = [], {}
        if self._joined and self._ours:
            self._ray.shutdown()
        self._joined = False

    def _spread(self, waiting: deque[AnyTask], lost: deque[AnyTask], depth: int) -> Generator[Result, None, None]:
        """Take tasks off `waiting`, at most `depth` per worker; those of workers that die go to `lost`."""
        while waiting or any(actor.tasks for actor in self._actors):
            while len(self._actors) < min(self._count, -(-self._left(waiting) // depth)):
                self._start()
            for actor in self._actors:
                while actor.ready and waiting and len(actor.tasks) < depth:
                    self._give(actor, waiting.popleft())
            for reference in self._finished():
                actor, task = self._flying.pop(reference)
                try:
                    result = self._ray.get(reference)
                except self._ray.exceptions.RayTaskError as error:
                    raise _reason(error.cause) from error
                except self._ray.exceptions.RayError as error:
                    self._drop_dead_worker(actor, lost, error)
                    break  # what else is finished is found again, without the dead one's
                if task is None:
                    actor.ready = True
                else:
                    self._failed_starts = 0
                    actor.tasks.remove(task)
                    yield result

    def _left(self, waiting: deque[AnyTask]) -> int:
        return len(waiting) + sum(len(actor.tasks) for actor in self._actors)

    def _finished(self) -> list[Any]:
        """Wait for one answer, and return it with all others that are there."""
        references = list(self._flying)
        self._ray.wait(references, num_returns=1, fetch_local=False)
        done, _ = self._ray.wait(references, num_returns=len(references), timeout=0)
        return list(done)

    def _start(self) -> None:
        threads = max(1, int(self._terms.cpus_per_worker))
        actor = _Actor(self._made.remote(self._content, threads, self._terms.timeout))
        self._actors.append(actor)
        self._flying[actor.handle.ready.remote()] = actor, None

    def _give(self, actor: _Actor, task: AnyTask) -> None:
        actor.tasks.append(task)
        self._flying[actor.handle.measure.remote(task)] = actor, task

    def _drop_dead_worker(self, actor: _Actor, lost: deque[AnyTask], error: Exception) -> None:
        """Forget a dead worker; its tasks are lost for now."""
        self._actors.remove(actor)
        self._ray.kill(actor.handle)  # should it still live: an answer can be lost without its worker
        self._flying = {reference: one for reference, one in self._flying.items() if one[0] is not actor}
        lost.extend(actor.tasks)
        if not actor.ready:
            self._failed_starts += 1
            if self._failed_starts > MAX_FAILED_STARTS:
                raise RunError(
                    "Workers of the cluster die before they are ready.",
                    reason=str(error).splitlines()[0],
                    fix="see Ray's logs; memory for the model and the data may be short: try fewer workers a node",
                )

    def _join(self) -> None:
        """Connect to the cluster, or start one, and see how many workers it has room for."""
        ray, terms = self._ray, self._terms
        self._ours = not ray.is_initialized()
        if self._ours:
            _connect(ray, terms.address)
        self._joined = True
        options = {"num_cpus": terms.cpus_per_worker, "num_gpus": terms.gpus_per_worker, "max_restarts": 0}
        self._made = ray.remote(Actor).options(**options)
        self._content = ray.put(self._packed)
        self._count = terms.workers or _room(ray.cluster_resources(), terms)


class Actor(Host):
    """The worker of one actor."""

    def ready(self) -> bool:
        """Answer when the model and the data are loaded."""
        return True


def _reason(cause: Exception) -> ShiftproofError:
    """Return what stopped a worker: a setup's own error as it was raised there."""
    if isinstance(cause, ShiftproofError):
        return cause
    return RunError("A worker of the cluster failed.", reason=f"{type(cause).__name__}: {cause}")


def _room(resources: dict[str, float], terms: Ray) -> int:
    """Return how many workers fit on the cluster as it is now."""
    fitting = int(resources.get("CPU", 0) // terms.cpus_per_worker)
    if terms.gpus_per_worker:
        fitting = min(fitting, int(resources.get("GPU", 0) / terms.gpus_per_worker + 1e-9))
    if fitting < 1:
        raise ConfigurationError(
            "The Ray cluster has no room for a worker.",
            expected=f"{terms.cpus_per_worker:g} processors and {terms.gpus_per_worker:g} GPUs for each",
            got=f"{resources.get('CPU', 0):g} processors and {resources.get('GPU', 0):g} GPUs in all",
            fix="give a smaller share, or a number of workers, which then wait for the cluster to grow",
        )
    return fitting


def check_installed() -> None:
    """Refuse to go on without Ray, at once and without the second it takes to import it."""
    if find_spec("ray") is None:
        raise _missing("it is not installed")


def _import() -> Any:
    try:
        import ray
        import ray.exceptions
    except (ImportError, RuntimeError) as error:
        raise _missing(f"{type(error).__name__}: {error}") from error
    return ray


def _missing(got: str) -> ConfigurationError:
    return ConfigurationError(
        "The ray executor needs Ray.",
        got=got,
        fix="pip install 'shiftproof[ray]', or use the processes executor",
    )


def _connect(ray: Any, address: str | None) -> None:
    """Connect, quietly; requests to end stay ours to handle, though Ray would take them."""
    main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", configure_logging=False)
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
        raise ConfigurationError(
            "The Ray cluster cannot be reached.",
            got=address or "no address",
            reason=(str(error).splitlines() or [type(error).__name__])[0],
            fix="start one with `ray start --head`, and give its address or auto",
        ) from error
    finally:
        if main:
            signal.signal(signal.SIGTERM, before)
