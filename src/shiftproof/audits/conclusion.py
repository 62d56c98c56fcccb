"""What came of an audit, made from the store alone: views, numbers, `results.json`, `results.csv` and the reports."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from shiftproof.audits import mistakes
from shiftproof.audits.audit_record import AuditRecord
from shiftproof.audits.audited_images import AuditedImages
from shiftproof.audits.caveats import caveats, with_caveats
from shiftproof.audits.costs import Costs, duration
from shiftproof.audits.image_answers import ImageAnswers, frame
from shiftproof.audits.requirements import Check, Requirement, check
from shiftproof.audits.sections.base import Scope
from shiftproof.audits.sections.packed_answers import CONFIDENCES, PREDICTED
from shiftproof.audits.sections.shift_names import named
from shiftproof.audits.untold import limits
from shiftproof.data.base import NOUNS
from shiftproof.errors import RunError
from shiftproof.prediction_tasks import CLASSES
from shiftproof.reports import notebook
from shiftproof.reports.notebook import Figures
from shiftproof.reports.view import Masthead, View
from shiftproof.runs import Json, Result, Store, write_atomically
from shiftproof.slices import ImageTable

CLEAN = "clean"
"""The section whose cells every audit measures, asked for or not: what the others say means little without them."""
CORRUPTIONS = "corruptions"
"""The section that reads a suite."""
WHERE_WRONG = (CLEAN, CORRUPTIONS, "failures")
"""Sections on what goes wrong."""
BULKY = (
    *("pictures", "texts", "hits", PREDICTED, CONFIDENCES, "overlap", "before", "after"),
    *("milliseconds", "scores", "mixing", "copies", "profile"),
)
"""Fields of a row that stay in the store and out of the exported files: large ones, and times."""


@dataclass(frozen=True)
class Audit:
    """The result of an audit: its files, its sections, and the numbers a pipeline can gate on.

    Args:
        folder: The run directory.
        masthead: Model, data and settings, as in the head of the report.
        views: The sections, as the report shows them.
        numbers: Every number by name, such as `clean_accuracy` or `accuracy.fog`; accuracies are fractions.
        failed: Error messages of the tasks that failed.
        missing: Number of planned tasks without a result.
        task: `classification` or `segmentation`.
        checks: The requirements, and whether each holds.
        answers: Predictions per image; None if the run did not store them.
    """

    folder: Path
    masthead: Masthead
    views: tuple[View, ...]
    numbers: Mapping[str, float]
    failed: tuple[str, ...]
    """Error messages of the tasks that failed."""
    missing: int = 0
    """Planned tasks without a result: the audit was stopped, or its store is damaged."""
    task: str = CLASSES.name
    """`classification` or `segmentation`."""
    checks: tuple[Check, ...] = ()
    """The requirements, and whether each holds."""
    answers: ImageAnswers | None = field(default=None, repr=False, compare=False)
    """Predictions per image; None if the run did not store them."""

    @property
    def passed(self) -> bool:
        """Whether the audit is complete and every requirement holds."""
        return not self.missing and all(one.passed for one in self.checks)

    @property
    def unfinished(self) -> str:
        """A message on missing tasks; empty if none are missing."""
        if not self.missing:
            return ""
        return f"Unfinished: {self.missing:,} planned tasks have no result. Run the same command again to measure them."

    @property
    def report(self) -> Path:
        """Path of the HTML report."""
        return self.folder / "report.html"

    def failures(
        self,
        shift: str | None = None,
        severity: float | None = None,
        method: str | None = None,
        *,
        most: int | None = None,
    ) -> Any:
        """Return the mistakes as a pandas DataFrame: a row per image and condition, the most confident first.

        `shift` is a name such as `fog` or `clean`; `method` is an adaptation method, or `source` for the unadapted
        model. Without them, all are included. `most` limits the rows per shift, severity and method.
        """
        return frame(self.mistakes(shift, severity, method, most=most))

    def mistakes(
        self,
        shift: str | None = None,
        severity: float | None = None,
        method: str | None = None,
        *,
        most: int | None = None,
    ) -> ImageTable:
        """Return the same rows as `failures` as a dict of columns, without pandas."""
        if self.answers is None:
            raise RunError(
                f"The run in {str(self.folder)!r} did not store predictions per input.",
                fix="run the audit again into another folder",
            )
        return self.answers.mistakes(most=most, shift=shift, severity=severity, method=method)

    def plot(self, section: str | None = None) -> Figures:
        """Return the charts of the report, or of one section, as Plotly figures."""
        return notebook.figures(self.views, section)

    def _repr_html_(self) -> str:
        return notebook.html(self)

    def __repr__(self) -> str:
        return notebook.text(self)


def conclude(
    store: Store,
    require: Sequence[Requirement] = (),
    scope: Scope | None = None,
    *,
    write: bool = True,
    interim: bool = False,
) -> Audit:
    """Read a run's store, let every section say what its results mean, check what is required, and write the files.

    Results image by image, which are long, are not written while measuring goes on (`interim`).
    """
    record = AuditRecord.of(store, scope).so_far()
    about, scope, everything = record.about, record.scope, record.everything()
    noun = NOUNS[scope.inputs]
    found = caveats(about.get("caveats", ()), record.results[CLEAN], noun)
    answers = _answers(store, record)
    views = record.views()
    if answers is not None and answers.answers:
        views = _placed(mistakes.view(answers, store.about(), noun), views)
    views = with_caveats(views, found, noun)
    failed = tuple(f"{result.task}: {result.error}" for result in everything if result.error is not None)
    numbers = {name: value for view in views for name, value in view.numbers.items()}
    missing = record.missing
    costs = Costs.of(store, everything)
    masthead = _masthead(about, scope, costs, failed, missing)
    audit = Audit(store.folder, masthead, views, numbers, failed, missing, scope.task, answers=answers)
    audit = replace(audit, checks=check(require, audit))
    if write:
        _export(store.folder, about, [caveat.text for caveat in found], numbers, everything, costs)
        _write_report(audit)
        if answers is not None and not interim:
            answers.write(store.folder, scope.inputs)
    return audit


def answers_in(store: Store, scope: Scope | None = None) -> ImageAnswers | None:
    """Return what a run's store holds of single inputs; None of a run that did not keep it."""
    return _answers(store, AuditRecord.of(store, scope).so_far())


def _answers(store: Store, record: AuditRecord) -> ImageAnswers | None:
    images = AuditedImages.from_note(store.about())
    return None if images is None else ImageAnswers.of(images, record.everything())


def _placed(shown: View, views: tuple[View, ...]) -> tuple[View, ...]:
    """Put the view of single mistakes after those on what goes wrong, and before those on what can be done."""
    place = max((number for number, view in enumerate(views, 1) if view.section in WHERE_WRONG), default=len(views))
    return *views[:place], shown, *views[place:]


def _write_report(audit: Audit) -> None:
    from shiftproof.reports import html

    html.write(audit.report, audit.masthead, audit.views)


def _masthead(
    about: Mapping[str, Any],
    scope: Scope,
    costs: Costs,
    failures: tuple[str, ...],
    missing: int,
) -> Masthead:
    prints = about["fingerprints"]
    reached = scope.images if scope.measured is None else scope.measured
    facts = {
        scope.inputs: f"{reached:,}" + (f" of {scope.images:,} so far" if missing and reached < scope.images else ""),
        **({"cells": f"{len(scope.cells):,}"} if scope.cells else {}),
        "budget": about["budget"],
        "device": about["device"],
        "measuring time": duration(sum(costs.measured.values())),
        **({"peak memory": f"{max(costs.memory.values()) / 2**30:.1f} GiB"} if costs.memory else {}),
        "measured": costs.ended,
        "model fingerprint": prints["model"],
        "data fingerprint": prints.get("suite", prints["data"]),
    }
    method = {
        "version": f"shiftproof {prints['version']}",
        "seed": str(scope.settings.seed),
        "shifts": ", ".join(named(shift) for shift in (*scope.settings.shifts, *scope.settings.fixed)),
        "severities": ", ".join(f"{severity:g}" for severity in scope.settings.severities),
    }
    if scope.cells:
        own = method.pop("shifts"), method.pop("severities")
        names = dict.fromkeys(cell.name for cell in scope.cells)
        method["suite"] = f"{len(scope.cells)} cells, read from files: {', '.join(names)}"
        if scope.settings.sections != (CORRUPTIONS,):
            method["shifts of other sections"] = f"{own[0]}, at severities {own[1]}, of the clean images"
    if costs.planned:
        spent, planned = sum(costs.measured.values()), sum(costs.planned.values())
        method["time"] = f"{duration(spent)} of measuring; the plan announced {duration(planned)}"
        if (share := costs.efficiency()) is not None:
            made = f"{round(sum(costs.passes.values()), -2):,.0f}"
            method["time"] += f"; {100 * share:.0f}% of it is what {made} passes take in the model alone"
    if pace := costs.told_pace(scope.inputs):
        method["passes"] = pace
    if scope.settings.scale < 1:
        method["what was cut"] = scope.told_cut(about["operations"])
    if about["data_notes"]:
        method["data"] = " ".join(about["data_notes"])
    if missing:
        method["not measured"] = f"{missing} cells; run the same command again to measure them"
    said = limits(scope)
    return Masthead(about["model"], about["data"], facts, about["command"], method, failures, costs.times, said)


def _export(
    folder: Path,
    about: Mapping[str, Any],
    said: Sequence[str],
    numbers: Mapping[str, float],
    results: Sequence[Result],
    costs: Costs,
) -> None:
    """Write `results.json`, where everything but the block `timing` is the same for every run, and `results.csv`."""
    rows: list[dict[str, Json]] = [
        {
            **result.task.describe(),
            **{name: value for name, value in (result.row or {}).items() if name not in BULKY},
            **({"error": result.error} if result.error else {}),
        }
        for result in results
    ]
    content = {
        "model": about["model"],
        "data": about["data"],
        "fingerprints": about["fingerprints"],
        "settings": about["settings"],
        "caveats": said,
        "numbers": numbers,
        "cells": rows,
        "timing": {**costs.to_row(), "cells": [round(result.seconds, 4) for result in results]},
    }
    write_atomically(folder / "results.json", json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    names = list(dict.fromkeys(name for row in rows for name, value in row.items() if not isinstance(value, dict)))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(folder / "results.csv", text.getvalue())
