"""An estimate that is killed goes on: what each shifted copy said, and the answer, are kept in a run directory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from shiftproof.data import Dataset
from shiftproof.estimators.results import ClassEstimate, Estimate
from shiftproof.estimators.source_copies import Copy
from shiftproof.models.answers import check_behaviour
from shiftproof.runs import AnyTask, Plan, Row, Store, Task, drive
from shiftproof.shifts import Shift
from shiftproof.version import __version__


@dataclass(frozen=True)
class ShiftedCopy(Task["Kept"]):
    """A copy of the source under a shift, with those in other class mixes that are drawn from it.

    None is the source as it is, and a text the name of a set of the user's own.
    """

    kind = "estimate.copies"
    shift: Shift | str | None

    def measure(self, subject: Kept) -> Row:
        """Observe the copy."""
        return {"copies": [asdict(one) for one in cast("list[Copy]", subject.work(self.shift))]}


@dataclass(frozen=True)
class EstimatedSet(Task["Kept"]):
    """The answer for a set without labels."""

    kind = "estimate.answer"
    method: str

    def measure(self, subject: Kept) -> Row:
        """Observe the set and estimate."""
        return cast(Row, asdict(cast(Estimate, subject.work(self.method))))


@dataclass(frozen=True)
class Kept:
    """A run directory of estimates, or none; also the worker of `runs` that does the `work` in hand.

    `identity` is the model's fingerprint, from before it was first run: a model may count its calls. `terms` are what
    decides the numbers besides the model and the source, as digests.
    """

    folder: Path | None
    model: Callable[..., Any]
    identity: str
    source: Dataset
    terms: Mapping[str, str]
    work: Callable[[Any], object]

    def measure(self, task: AnyTask) -> Row:
        """Do the work of a task."""
        return task.measure(self)

    def copies(
        self, shifts: Sequence[Shift | str | None], on_progress: Callable[[int, int], None] | None
    ) -> tuple[Copy, ...]:
        """Return what the copies of the source say."""
        rows = self._rows([ShiftedCopy(shift) for shift in shifts], on_progress)
        return tuple(Copy.from_row(one) for row in rows for one in cast("list[dict[str, Any]]", row["copies"]))

    def answer(self, method: str) -> Estimate:
        """Return the answer for a set."""
        (row,) = self._rows([EstimatedSet(method)], None)
        return _estimate(cast("dict[str, Any]", row))

    def _rows(self, tasks: Sequence[AnyTask], on_progress: Callable[[int, int], None] | None) -> list[Row]:
        def tell(done: int, total: int, result: object) -> None:
            if on_progress is not None and (result is not None or done):
                on_progress(done, total)

        if self.folder is None:
            rows = []
            for number, task in enumerate(tasks):
                rows.append(self.measure(task))
                tell(number + 1, len(tasks), task)
            return rows
        about = {"version": __version__, "model": self.identity, "source": self.source.take().fingerprint}
        with Store(self.folder, about) as store:
            check_behaviour(store, self.model, self.source.take())
            plan = Plan(tuple(tasks), {**about, **self.terms})
            results = drive(plan, store, lambda: self, on_progress=tell, essential="Estimating")
        found = {result.task: result.row for result in results if result.row is not None}
        return [found[task] for task in tasks]


def _estimate(row: dict[str, Any]) -> Estimate:
    others = tuple(map(_estimate, row["others"]))
    lists = {name: tuple(row[name]) for name in ("warnings", "notes")}
    classes = tuple(ClassEstimate(**one) for one in row["by_class"])
    return Estimate(**{**row, **lists, "others": others, "by_class": classes})
