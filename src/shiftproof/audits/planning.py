"""How large an audit is, and how long it takes: its scope, a share of the budget that fits a time, and the forecast."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from shiftproof.audits.audit_settings import AuditSettings
from shiftproof.audits.audited_images import AuditedImages
from shiftproof.audits.costs import BARE, PLANNED
from shiftproof.audits.disk_space import refuse_full_disk, space_needed
from shiftproof.audits.forecast import Forecast, Prices, estimate, kept
from shiftproof.audits.sections import planned
from shiftproof.audits.sections.base import Measurement, Scope
from shiftproof.audits.suite_subjects import SuiteSubject
from shiftproof.errors import RunError
from shiftproof.models import BatchFitter
from shiftproof.runs import Executor, Inline, Plan, Processes, Store
from shiftproof.runs.hosting import cores
from shiftproof.subjects import Subject

SCALES = (1.0, 0.7, 0.5, 0.35, 0.25, 0.18, 0.12, 0.09, 0.06, 0.045, 0.03, 0.02, 0.01)
"""Shares of a budget that a time is spent on, the largest that fits."""


def scope_of(settings: AuditSettings, images: int, subject: Subject) -> Scope:
    """Return the scope of an audit of so many inputs."""
    data = subject.labelled_data
    scope = Scope(settings, images, data.side, data.kind, task=data.task)
    if isinstance(subject, SuiteSubject):
        gentlest = None if subject.clean else subject.cell(subject.suite.gentlest)
        return replace(scope, cells=subject.cells, gentlest=gentlest)
    scope = replace(scope, per_image=settings.per_image(images))
    return scope if settings.precision is None else replace(scope, looks=len(scope.stages))


def fitting_scale(minutes: float, settings: Callable[..., AuditSettings], subject: Subject, workers: int) -> float:
    """Return the largest share of a budget that should not take longer; the least there is where none is so small."""
    available = len(subject.labelled_data)
    with threads_of(workers):
        prices = Prices(subject.taking(min(available, 64)))
        for scale in SCALES:
            made = settings(scale=scale)
            scope = scope_of(made, min(made.images or available, available), subject)
            tasks = dict.fromkeys(task for name in made.sections for task in planned(name, scope))
            numbered = {str(number): task for number, task in enumerate(tasks)}
            if estimate(numbered, set(), prices, at_a_time=workers).seconds <= 60 * minutes:
                return scale
    return SCALES[-1]


def noted_scale(folder: Path, minutes: float) -> float | None:
    """Return the share of a budget that a run in a folder was given for the same time; None where there is none.

    It was chosen by a clock: a run that goes on must not choose again.
    """
    try:
        with Store(folder) as store:
            about = json.loads(store.about().get("audit", "{}"))
    except RunError:
        return None
    settings = about.get("settings", {})
    return settings.get("scale") if settings.get("minutes") == minutes else None


def tell_plan(
    plan: Plan,
    store: Store,
    subject: Subject,
    executor: Executor,
    on_plan: Callable[[Forecast], None] | None,
) -> bool:
    """Tell how long what is missing should take, and note it, where somebody listens; return whether any is missing.

    A run that its disk has no room for is refused.
    """
    tasks = {identity: task for identity, task in plan.identities().items() if isinstance(task, Measurement)}
    done = store.done()
    if not tasks.keys() - done:
        return False
    disk = space_needed(tasks.values(), AuditedImages.from_note(store.about()), subject.labelled_data.side)
    refuse_full_disk(store.folder, disk)
    if on_plan is None:
        return True
    workers = at_a_time(executor)
    with threads_of(workers):
        forecast = BatchFitter(subject.batch_size)(
            lambda size: estimate(tasks, done, Prices(subject.at_batch_size(size)), at_a_time=workers)
        )
    store.note({PLANNED: json.dumps(forecast.planned), BARE: json.dumps(forecast.bare)})
    on_plan(replace(forecast, disk=disk))
    return True


def told_cut(tasks: Mapping[str, Sequence[Measurement]], whole: Scope, why: str, forecast: Forecast) -> Forecast:
    """Return a forecast that says which sections have less than the whole scope would give them, and why."""
    if not why:
        return forecast
    return replace(forecast, kept=kept(tasks, {name: planned(name, whole) for name in tasks}), why=why)


def at_a_time(executor: Executor) -> int:
    """Return how many tasks an executor runs at once, as far as it is known beforehand."""
    if isinstance(executor, Inline):
        return 1
    given = getattr(executor, "count", getattr(executor, "workers", None))
    return given or (cores() if isinstance(executor, Processes) else 1)


@contextmanager
def threads_of(workers: int) -> Iterator[None]:
    """Compute with as many threads as each of so many workers will have."""
    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, threads // workers))
    try:
        yield
    finally:
        torch.set_num_threads(threads)
