"""Run what is missing from a plan, and keep each result as it comes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, nullcontext
from typing import TypeAlias

from shiftproof.errors import RunError
from shiftproof.runs.executors import Executor, Inline, WorkerPool
from shiftproof.runs.hosting import Setup
from shiftproof.runs.plan import Plan, Result
from shiftproof.runs.store import Store
from shiftproof.runs.task import AnyTask

OnProgress: TypeAlias = Callable[[int, int, Result | None], None]
"""Hears how far a run is: `on_progress(done, all, result)`, at the start without a result, then after each one."""


def drive(
    plan: Plan,
    store: Store,
    setup: Setup | WorkerPool,
    *,
    executor: Executor | None = None,
    on_progress: OnProgress | None = None,
    essential: str | None = None,
) -> list[Result]:
    """Run the tasks of a plan that the store lacks and return the results of all of them, in the plan's order.

    `setup` makes the workers, on an executor, and is not called when nothing is missing; a pool that is open already
    serves many plans. `on_progress` hears of each new result after it is in the store. Failed tasks are kept with
    their error and run again next time; the others go on, unless the work is `essential`, such as "Training": then the
    first failure ends it, because a gap would make the rest wrong.

    Args:
        plan: The tasks.
        store: Where results are kept.
        setup: Makes a worker, or an open pool of workers.
        executor: Where tasks run; by default in this process.
        on_progress: Called with the results done, all, and the last one.
        essential: The name of work that a failure ends.
    """
    identities = plan.identities()
    done = store.done() & identities.keys()
    missing: dict[AnyTask, str] = {task: identity for identity, task in identities.items() if identity not in done}
    if on_progress is not None:
        on_progress(len(done), len(identities), None)
    if missing:
        with (
            nullcontext(setup) if isinstance(setup, WorkerPool) else (executor or Inline()).open(setup) as pool,
            closing(pool.run(tuple(missing))) as results,
        ):
            for count, result in enumerate(results, len(done) + 1):
                store.save(missing[result.task], result)
                if essential is not None:
                    stop_at_failure(result, essential)
                if on_progress is not None:
                    on_progress(count, len(identities), result)
    return list(store.find(identities))


def stop_at_failure(result: Result, what: str) -> None:
    """Raise the error of a failed task: a user's own as it is, an unforeseen one by its last line.

    Args:
        result: The result of a task.
        what: The name of the work.
    """
    if result.error is None:
        return
    unforeseen = result.error.startswith("Traceback")
    raise RunError(f"{what} failed: {result.error.strip().splitlines()[-1]}" if unforeseen else result.error)
