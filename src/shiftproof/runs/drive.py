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
"""Progress callback, `on_progress(done, total, result)`: called at the start without a result, then after each one."""


def drive(
    plan: Plan,
    store: Store,
    setup: Setup | WorkerPool,
    *,
    executor: Executor | None = None,
    on_progress: OnProgress | None = None,
    essential: str | None = None,
) -> list[Result]:
    """Run the tasks of a plan that have no result in the store, and return all results in the plan's order.

    `setup` is not called if nothing is missing; an open pool can serve several plans. `on_progress` is called after
    each new result is stored. Failed tasks are stored with their error and run again next time. Other tasks continue,
    unless the work is `essential`, such as "Training": then the first failure ends it, because the rest depends on it.

    Args:
        plan: The tasks.
        store: Where results are kept.
        setup: Function that makes a worker, or an open pool of workers.
        executor: The executor. Default: run in this process.
        on_progress: Called as on_progress(done, total, result).
        essential: Name of the work, if the first failure must end it. Default: continue after failures.
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
