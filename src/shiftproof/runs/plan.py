"""What is to be done: a plan is a list of tasks, and a result is a task with what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shiftproof.runs.task import AnyTask, Row, canonical


@dataclass(frozen=True)
class Result:
    """A finished task: its row of numbers, or the error that stopped it, and the seconds it took.

    Args:
        task: The task.
        row: Its numbers; None where it failed.
        error: Why it failed.
        seconds: How long it took.
    """

    task: AnyTask
    row: Row | None
    error: str | None
    seconds: float


@dataclass(frozen=True)
class Plan:
    """Tasks in the order they should run, and the fingerprints of what they are measured on.

    Args:
        tasks: The tasks, in order.
        fingerprints: What they are measured on.

    >>> from shiftproof.runs import Cell
    >>> len(Plan((Cell("square", x=2), Cell("square", x=2)), {"data": "none"}).identities())
    1
    """

    tasks: tuple[AnyTask, ...]
    fingerprints: Mapping[str, str]

    def identities(self) -> dict[str, AnyTask]:
        """Return the tasks by identity, in order and without repeats."""
        fingerprints = canonical(dict(self.fingerprints))
        return {task.identity_on(fingerprints): task for task in self.tasks}
