"""Run what is missing from a plan, and keep each result as it comes."""

from __future__ import annotations

from collections.abc import Callable

from shiftproof.runs.executors import Executor, Inline, Setup
from shiftproof.runs.plan import Cell, Plan, Result
from shiftproof.runs.store import Store


def drive(
    plan: Plan,
    store: Store,
    setup: Setup,
    *,
    executor: Executor | None = None,
    watch: Callable[[Result], None] | None = None,
) -> list[Result]:
    """Run the cells of a plan that the store lacks and return the results of all of them, in the plan's order.

    `setup` makes the worker and is not called when nothing is missing. `watch` is told of each new result after it is
    in the store. Failed cells are kept with their error and run again next time.
    """
    identities = plan.identities()
    done = store.done()
    missing: dict[Cell, str] = {cell: identity for identity, cell in identities.items() if identity not in done}
    if missing:
        for result in (executor or Inline()).run(setup, tuple(missing)):
            store.save(missing[result.cell], result)
            if watch is not None:
                watch(result)
    return store.results(plan)
