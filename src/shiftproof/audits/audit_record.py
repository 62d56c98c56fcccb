"""What a store holds of an audit: what it was about, its plan, and its results, read back section by section."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shiftproof.audits.audit_settings import AuditSettings
from shiftproof.audits.sections import planned, section
from shiftproof.audits.sections.base import Measurement, Scope
from shiftproof.errors import RunError
from shiftproof.reports.view import Sentence, View
from shiftproof.runs import AnyTask, Result, Store

TASKS = "tasks"
"""A note in a store: the identities of the tasks of each section, in the order of its plan."""
HEADLINES = {"clean_accuracy", "corruption_accuracy", "miou", "corruption_miou"}
"""The numbers whose precision can be asked for."""


@dataclass(frozen=True)
class AuditRecord:
    """What a store holds of an audit: what it was about, its plan, and the results so far, by section.

    Of an audit that is not finished, what is measured in stages is told as of the last stage that is; `missing` is how
    many of all its tasks have no result.
    """

    about: Mapping[str, Any]
    scope: Scope
    tasks: Mapping[str, tuple[Measurement, ...]]
    results: Mapping[str, list[Result]]
    missing: int

    @classmethod
    def of(cls, store: Store, scope: Scope | None = None) -> AuditRecord:
        """Read a store, which must be an audit's; the scope it was planned with is made again where it is not given."""
        noted = store.about().get("audit")
        if noted is None:
            raise RunError(
                f"The run in {str(store.folder)!r} is not an audit.",
                expected="a folder that `shiftproof audit` wrote; `shiftproof report` also takes those of train, "
                "certify, spectrum and search",
            )
        about: dict[str, Any] = json.loads(noted)
        scope = scope or Scope.from_row(AuditSettings.from_row(about["settings"]), about["scope"])
        identities: dict[str, list[str]] = json.loads(store.about()[TASKS])
        tasks = {name: planned(name, scope) for name in identities}
        results = {name: _found(store, identities[name], some) for name, some in tasks.items()}
        done = {result.task for some in results.values() for result in some}
        missing = len({task for some in tasks.values() for task in some} - done)
        return cls(about, scope, tasks, results, missing)

    def so_far(self) -> AuditRecord:
        """Return what there is of an audit as of its last stage that has all its results; all where none has."""
        if not self.missing:
            return self
        found = (self.as_of(bound) for bound in reversed(self.scope.stages[:-1]))
        return next((stage for stage in found if stage is not None), self)

    def as_of(self, measured: int) -> AuditRecord | None:
        """Return what there is after so many inputs of what is measured in stages; None where some of that is missing.

        Sections that have no stages are as they are.
        """
        scope = replace(self.scope, measured=measured)
        tasks = {name: planned(name, scope) for name in self.tasks}
        done = {result.task for some in self.results.values() for result in some}
        staged = [some for name, some in tasks.items() if len(some) < len(self.tasks[name])]
        if not staged or not all(task in done for some in staged for task in some):
            return None
        wanted = {name: set(some) for name, some in tasks.items()}
        kept = {name: [each for each in some if each.task in wanted[name]] for name, some in self.results.items()}
        return replace(self, scope=scope, tasks=tasks, results=kept)

    def views(self) -> tuple[View, ...]:
        """Let every section say what its results mean; no number is given that lacks one of its tasks."""
        return tuple(
            _whole(
                section(name, self.scope.inputs, self.scope.looks, self.scope.task).view(self.results[name]),
                self.tasks[name],
                {result.task for result in self.results[name] if result.row is not None},
                self.scope.task,
            )
            for name in self.scope.settings.sections
        )

    def half_width(self) -> float | None:
        """Return how far the clean accuracy and that under corruption may be off, the larger; None: not known."""
        found = []
        for name in self.results:
            values = section(name, task=self.scope.task).per_image(self.results[name])
            for number in HEADLINES & values.keys():
                interval = values[number].interval(among=self.scope.looks)
                found.append(1.0 if interval is None else (interval.high - interval.low) / 2)
        return max(found, default=None)

    def everything(self) -> list[Result]:
        """Return all results, in the order of the plan; a task that two sections planned is there once."""
        return list({result.task: result for some in self.results.values() for result in some}.values())


def noted(tasks: Mapping[str, Sequence[Measurement]], fingerprints: Mapping[str, str]) -> str:
    """Return the note of what an audit planned, so that its results are found whatever has changed in code since."""
    return json.dumps({name: [task.identity(fingerprints) for task in some] for name, some in tasks.items()})


def _found(store: Store, identities: Sequence[str], tasks: Sequence[Measurement]) -> list[Result]:
    """Return the results of tasks by the identities that were noted; refuse those that say they are of others."""
    pairs = dict(zip(identities, tasks, strict=True))
    for identity, described in store.descriptions(pairs).items():
        if described != str(pairs[identity]):
            raise ValueError(f"it holds {described} where {pairs[identity]} is planned")
    return list(store.find(pairs))


@contextmanager
def understood(folder: str | Path) -> Iterator[None]:
    """Say of a run directory that it cannot be understood, where what it holds is not what an audit wrote."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunError(
            f"Cannot read the audit in {str(folder)!r}.",
            expected="a folder that `shiftproof audit` of this version wrote",
            got=f"{type(error).__name__}: {error}",
            fix="run the audit again into another folder; this one is left as it is",
        ) from error


def _whole(view: View, planned: Collection[Measurement], measured: Collection[AnyTask], task: str) -> View:
    """Return a view without the numbers that lack tasks; where there are some, also without what was said by them."""
    lacking = [task for task in planned if task not in measured]
    needs = section(view.section, task=task).needs
    numbers = {name: value for name, value in view.numbers.items() if not any(needs(name, task) for task in lacking)}
    if len(numbers) == len(view.numbers):
        return view
    said = f"{view.title}: {len(lacking):,} of {len(planned):,} tasks have no result, so no overall figure is given."
    notes = ("Means in the tables and charts are over the results so far, not over the whole plan.", *view.notes)
    return replace(view, verdict=(Sentence(said, "bad"),), tiles=(), actions=(), notes=notes, numbers=numbers)
