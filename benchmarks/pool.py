"""What pools of models share: networks trained as the cells of a run, and the scores of measures over them.

A pool is a worker of `shiftproof.runs` whose rows hold `domains`: for each test domain the `accuracy` of the network
and its `measures`. The evaluation is that of Ng et al. 2023, section 4.3 (`shiftproof.estimators.protocol`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from shiftproof.errors import RunError
from shiftproof.estimators.protocol import PoolRecord, Scores
from shiftproof.runs import Cell, Executor, Inline, Json, Plan, Processes, Result, Row, Setup, Store, drive

COLUMNS = {
    "R2": "r_squared",
    "r2": "squared_correlation",
    "MAE": "mae",
    "macro tau": "macro_tau",
    "micro tau": "micro_tau",
    "ID tau": "id_tau",
    "arch tau": "arch_tau",
}
"""The columns of a table: R2 is that of the fitted line, r2 the squared correlation (see `Scores`)."""


def train_pool(
    cells: Sequence[Cell], setup: Setup, prints: Mapping[str, str], *, out: Path, workers: int = 1
) -> list[tuple[Cell, Row]]:
    """Train and measure the networks that are missing, and return the rows of all that there are."""
    executor: Executor = Inline() if workers == 1 else Processes(workers)
    with Store(out, {"pool": "3"}) as store:
        found = drive(Plan(tuple(cells), prints), store, setup, executor=executor, on_progress=_tell)
    return [(result.task, result.row) for result in found if isinstance(result.task, Cell) and result.row is not None]


def check_time(stop_at: float | None) -> None:
    """Refuse to begin anything after an hour of `time.time()`; what was not begun is done by the next call."""
    if stop_at is not None and time.time() > stop_at:
        raise RunError("The time is up.", fix="give the same command again: it goes on from here")


def records(rows: Iterable[tuple[Cell, Row]]) -> Iterator[PoolRecord]:
    """Yield one record per network, test domain and measure."""
    for cell, row in rows:
        for test, found in cast("dict[str, dict[str, Any]]", row["domains"]).items():
            for measure, value in found["measures"].items():
                architecture = str(cell.parameters().get("architecture", "cnn"))
                name = f"{architecture}-{cell['number']}"
                yield PoolRecord(name, architecture, str(cell["train"]), test, measure, value, found["accuracy"])


def ranked(scores: Iterable[Scores]) -> list[Scores]:
    """Return scores with the best macro tau first."""
    return sorted(scores, key=lambda found: -(found.macro_tau.mean if found.macro_tau else -1.0))


def as_json(scores: Iterable[Scores]) -> dict[str, dict[str, Json]]:
    """Return the mean, the deviation and the number of groups of every score, by measure."""
    return {
        one.measure: {name: value for name, value in one.to_row().items() if name != "measure" and value is not None}
        for one in ranked(scores)
    }


def as_table(scores: Iterable[Scores]) -> str:
    """Return the scores as a table in Markdown."""
    lines = [f"| measure | {' | '.join(COLUMNS)} |", "|---" * (1 + len(COLUMNS)) + "|"]
    for one in ranked(scores):
        cells = (getattr(one, name) for name in COLUMNS.values())
        lines.append(f"| {one.measure} | {' | '.join('' if cell is None else str(cell) for cell in cells)} |")
    return "\n".join(lines)


def _tell(done: int, count: int, result: Result | None) -> None:
    if result is None:
        return
    about = result.task.parameters()
    name, train = f"{done} of {count}, {about.get('architecture', 'model')} {about['number']}", str(about["train"])
    if result.row is None:
        print(f"{name}: {(result.error or '').strip().splitlines()[-1]}", flush=True)
        return
    own = cast("dict[str, dict[str, Any]]", result.row["domains"])[train]["accuracy"]
    print(f"{name}: {own:.3f} on {train}, {result.seconds:.0f} s", flush=True)
