"""What a pool of text classifiers tells beside scores: where measures rank, how far networks differ, and why.

Rows are those of `benchmarks/text_pool.py`. Every function returns plain numbers by name; `table` shows them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np

from benchmarks.pool import records
from benchmarks.text_domains import FAR
from shiftproof.estimators.protocol import PoolRecord, evaluate
from shiftproof.measures.estimation import kendall_tau
from shiftproof.runs import Cell, Row

Rows: TypeAlias = Sequence[tuple[Cell, Row]]
Findings: TypeAlias = dict[str, dict[str, float]]
"""Name of a row -> name of a column -> number."""

OTHERS, EVERYTHING = "other categories", "all networks"


def standings(converged: Rows, rows: Rows) -> dict[str, Findings]:
    """Return macro tau by measure, its mean and deviation: on other categories, on far domains, and of all networks.

    The last is over all domains, with the networks that have not converged.
    """
    found = list(records(converged))
    groups = {
        OTHERS: [one for one in found if one.test not in FAR],
        **{name: [one for one in found if one.test == name] for name in FAR},
        EVERYTHING: list(records(rows)),
    }
    return {name: _macro_tau(some) for name, some in groups.items() if some}


def _macro_tau(some: Iterable[PoolRecord]) -> Findings:
    scores = {one.measure: one.macro_tau for one in evaluate(some)}
    return {
        measure: {"mean": tau.mean, **({} if tau.std is None else {"std": tau.std})}
        for measure, tau in scores.items()
        if tau is not None
    }


def spreads(rows: Rows, measure: str = "NI-EDA") -> Findings:
    """Return what there is to rank, in points: by test domain, how far networks of one other category differ."""
    found = {}
    for test in _domains(rows[0][1]):
        groups = _by_category(rows, test)
        if not groups:
            continue
        accuracies = [[100 * one["accuracy"] for _, one in some] for some in groups]
        values = [[100 * one["measures"][measure] for _, one in some] for some in groups]
        mean = float(np.mean([value for some in accuracies for value in some]))
        found[test] = {"accuracy": mean, "spread": _deviation(accuracies), f"spread of {measure}": _deviation(values)}
    return found


def influences(rows: Rows, settings: Iterable[str], measures: Iterable[str]) -> Findings:
    """Return what settings move: their tau with accuracy and with measures, the mean over pairs of domains."""
    tests = _domains(rows[0][1])
    known = [name for name in measures if name in next(iter(tests.values()))["measures"]]
    found = {}
    for setting in settings:
        taus: dict[str, list[float]] = {name: [] for name in ("accuracy", *known)}
        for test in tests:
            for some in _by_category(rows, test):
                values = [cast(float, cell[setting]) for cell, _ in some]
                for name in taus:
                    tau = kendall_tau(values, [one["measures"].get(name, one["accuracy"]) for _, one in some])
                    taus[name] += [] if tau is None else [tau]
        found[setting] = {name: float(np.mean(some)) for name, some in taus.items() if some}
    return found


def table(first: str, findings: Mapping[str, Mapping[str, float]], digits: int = 2) -> str:
    """Return findings as a table in Markdown."""
    columns = list(dict.fromkeys(name for row in findings.values() for name in row))
    lines = [f"| {first} | {' | '.join(columns)} |", f"|---{'|---' * len(columns)}|"]
    for name, row in findings.items():
        cells = (f"{row[column]:.{digits}f}" if column in row else "" for column in columns)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _domains(row: Row) -> dict[str, Any]:
    return cast("dict[str, Any]", row["domains"])


def _by_category(rows: Rows, test: str) -> list[list[tuple[Cell, dict[str, Any]]]]:
    """Return what was found on a test domain, by the other categories that networks were trained on."""
    trains = sorted({str(cell["train"]) for cell, _ in rows} - {test})
    return [[(cell, _domains(row)[test]) for cell, row in rows if cell["train"] == train] for train in trains]


def _deviation(groups: Sequence[Sequence[float]]) -> float:
    deviations = [float(np.std(some, ddof=1)) for some in groups if len(some) > 1]
    return float(np.mean(deviations)) if deviations else 0.0
