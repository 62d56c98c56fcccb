"""An audit in stages: a report that stands early and is written again as results come in, and an end when it is enough.

First come some of the clean and corrupted inputs, then the other sections, then more inputs, twice as many each time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from shiftproof.audits.audit_record import AuditRecord
from shiftproof.audits.sections import planned
from shiftproof.audits.sections.base import Measurement, Scope
from shiftproof.runs import OnProgress, Plan, Result, Store, WorkerPool, drive

FIRST, INTERIM = 5.0, 20.0
"""Seconds of measuring before the first report and between two reports, at least."""
REPORTING = 0.05
"""The share of the time that reports may take before the last one."""


@dataclass(frozen=True)
class AuditStep:
    """Tasks that are measured together, and how many inputs are measured after them."""

    tasks: tuple[Measurement, ...]
    measured: int


def steps_of(tasks: Mapping[str, Sequence[Measurement]], scope: Scope) -> list[AuditStep]:
    """Return the tasks of a plan in the order of measuring: a first stage, the other sections in turn, later stages."""
    stages = [replace(scope, measured=bound) for bound in scope.stages]
    plans = [{name: planned(name, stage) for name in tasks} for stage in stages[:-1]] + [tasks]
    staged = [name for name in tasks if len(plans[0][name]) < len(tasks[name])]
    others = [tasks[name] for name in tasks if name not in staged]
    found, seen = [], set[Measurement]()
    for bound, plan in zip(scope.stages, plans, strict=True):
        first = [task for name in staged for task in plan[name]]
        for some in (first, *(others if bound == scope.stages[0] else [])):
            new = tuple(task for task in dict.fromkeys(some) if task not in seen)
            seen.update(new)
            if new:
                found.append(AuditStep(new, bound))
    return found


def measure(
    steps: Sequence[AuditStep],
    scope: Scope,
    store: Store,
    pool: WorkerPool,
    fingerprints: Mapping[str, str],
    report: Callable[[], object],
    on_progress: OnProgress | None = None,
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> Scope:
    """Measure step by step; return the scope with the number of inputs after which it was enough.

    After a step that took long enough `report` is called. It is enough when the time is up, or when the numbers whose
    precision was asked for are as precise; every stage that comes before the end is a look at them.
    """
    settings, begun = scope.settings, clock()
    told, wait, so_far = begun, FIRST, tuple[Measurement, ...]()
    total = sum(len(step.tasks) for step in steps)

    def tell(done: int, _: int, result: Result | None) -> None:
        if on_progress is not None and (result is not None or not so_far):
            on_progress(done, total, result)

    for number, step in enumerate(steps, 1):
        plan = Plan((*so_far, *step.tasks), fingerprints)
        drive(plan, store, pool, on_progress=tell)
        so_far = (*so_far, *step.tasks)
        if number == len(steps):
            break
        if steps[number].measured > step.measured:  # a stage ends here
            late = settings.minutes is not None and clock() - begun > 60 * settings.minutes
            if late or _precise(store, scope, step.measured):
                return replace(scope, measured=step.measured)
        if (asked := clock()) - told > wait:
            report()
            told = clock()
            wait = max(INTERIM, (told - asked) / REPORTING)
    return scope


def _precise(store: Store, scope: Scope, measured: int) -> bool:
    """Return whether the numbers are as precise as was asked for after so many inputs."""
    if scope.settings.precision is None:
        return False
    record = AuditRecord.of(store, scope).as_of(measured)
    width = None if record is None else record.half_width()
    return width is not None and 100 * width <= scope.settings.precision
