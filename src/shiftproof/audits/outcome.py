"""What came of an audit, made from the store alone: views, numbers, `results.json`, `results.csv` and the report."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shiftproof.audits.sections import section
from shiftproof.audits.sections.base import Scope
from shiftproof.audits.sections.wording import of_texts
from shiftproof.audits.settings import Settings
from shiftproof.audits.view import Masthead, View
from shiftproof.errors import RunError
from shiftproof.runs import Json, Plan, Result, Store, write_atomically

BULKY = ("pictures", "texts", "hits", "milliseconds")
"""Fields of a row that stay in the store and out of the exported files: large ones, and times."""


@dataclass(frozen=True)
class Audit:
    """A finished audit: where its files are, what it found, and the numbers a pipeline can gate on."""

    folder: Path
    masthead: Masthead
    views: tuple[View, ...]
    numbers: Mapping[str, float]
    failures: tuple[str, ...]

    @property
    def report(self) -> Path:
        """The report to open in a browser."""
        return self.folder / "report.html"


def conclude(store: Store) -> Audit:
    """Read a run's store, let every section say what its results mean, and write the files."""
    noted = store.about().get("audit")
    if noted is None:
        raise RunError(f"The run in {str(store.folder)!r} is not an audit.", expected="a folder `audit` wrote")
    about: dict[str, Any] = json.loads(noted)
    settings = Settings(**{name: _frozen(value) for name, value in about["settings"].items()})
    scope = Scope(settings, **about["scope"])
    made = {name: section(name) for name in settings.sections}
    cells = {name: tuple(one.plan(scope)) for name, one in made.items()}
    results = {name: store.results(Plan(cells[name], about["fingerprints"])) for name in made}
    views = tuple(one.view(results[name]) for name, one in made.items())
    if scope.inputs == "texts":
        views = tuple(map(of_texts, views))
    everything = store.results(Plan(tuple(cell for some in cells.values() for cell in some), about["fingerprints"]))
    failures = tuple(f"{result.cell}: {result.error}" for result in everything if result.error is not None)
    numbers = {name: value for view in views for name, value in view.numbers.items()}
    planned = len({cell for some in cells.values() for cell in some})
    masthead = _masthead(about, scope, results, failures, planned - len(everything))
    _export(store.folder, about, numbers, everything)
    audit = Audit(store.folder, masthead, views, numbers, failures)
    _write_report(audit)
    return audit


def _write_report(audit: Audit) -> None:
    from shiftproof.audits import report

    report.write(audit.report, audit.masthead, audit.views)


def _masthead(
    about: Mapping[str, Any],
    scope: Scope,
    results: Mapping[str, Sequence[Result]],
    failures: tuple[str, ...],
    missing: int,
) -> Masthead:
    seconds = {name: sum(result.seconds for result in some) for name, some in results.items()}
    prints = about["fingerprints"]
    facts = {
        scope.inputs: f"{scope.images:,}",
        "budget": about["budget"],
        "device": about["device"],
        "measuring time": f"{sum(seconds.values()):.0f} s",
        "written": time.strftime("%Y-%m-%d %H:%M"),
        "model fingerprint": prints["model"],
        "data fingerprint": prints["data"],
    }
    method = {
        "version": f"shiftproof {prints['version']}",
        "seed": str(scope.settings.seed),
        "shifts": ", ".join(scope.settings.shifts),
        "severities": ", ".join(f"{severity:g}" for severity in scope.settings.severities),
        **{f"time for {name}": f"{value:.1f} s" for name, value in seconds.items()},
    }
    if about["data_notes"]:
        method["data"] = " ".join(about["data_notes"])
    if missing:
        method["not measured"] = f"{missing} cells; run the same command again to measure them"
    return Masthead(about["model"], about["data"], facts, about["command"], method, failures)


def _export(folder: Path, about: Mapping[str, Any], numbers: Mapping[str, float], results: Sequence[Result]) -> None:
    """Write `results.json`, where everything but the block `timing` is the same for every run, and `results.csv`."""
    rows: list[dict[str, Json]] = [
        {
            "task": result.cell.task,
            **result.cell.parameters,
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
        "numbers": numbers,
        "cells": rows,
        "timing": {
            "seconds": round(sum(result.seconds for result in results), 3),
            "cells": [round(result.seconds, 4) for result in results],
        },
    }
    write_atomically(folder / "results.json", json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    names = list(dict.fromkeys(name for row in rows for name, value in row.items() if not isinstance(value, dict)))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(folder / "results.csv", text.getvalue())


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
