"""What a pool of text classifiers tells beside scores: where measures rank, how far networks differ, and why.

Rows are those of `benchmarks/text_pool.py`. Every function returns plain numbers by name; `table` shows them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from benchmarks.pool import records
from benchmarks.rank_intervals import drawn, interval, mean_of_known, weighted_taus
from benchmarks.text_domains import FAR
from shiftproof.estimators.protocol import PoolRecord, evaluate
from shiftproof.measures.estimation import kendall_tau
from shiftproof.runs import Cell, Row

Rows: TypeAlias = Sequence[tuple[Cell, Row]]
Findings: TypeAlias = dict[str, dict[str, float]]
"""Name of a row -> name of a column -> number."""

OWN = "accuracy on the own category"
"""What is known with labels of the training category."""

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


def accuracies(rows: Rows) -> dict[str, float]:
    """Return mean accuracies, %: in training, on the own category, on other categories and on each far domain.

    `spread` is the deviation on other categories, of networks of one category.
    """
    tests = [test for test in _domains(rows[0][1]) if test not in FAR]
    other = [some for test in tests for some in _by_category(rows, test)]
    found = {
        "training": [cast(float, row["training accuracy"]) for _, row in rows],
        "own category": [_domains(row)[str(cell["train"])]["accuracy"] for cell, row in rows],
        OTHERS: [one["accuracy"] for some in other for _, one in some],
        **{far: [_domains(row)[far]["accuracy"] for _, row in rows] for far in FAR if far in _domains(rows[0][1])},
    }
    spread = _deviation([[100 * one["accuracy"] for _, one in some] for some in other])
    return {**{name: 100 * float(np.mean(values)) for name, values in found.items()}, "spread": spread}


def intervals(
    rows: Rows,
    reference: str = "ATC-MC",
    draws: int = 1000,
    seed: int = 0,
    *,
    counted: Callable[[str, str], bool] = lambda train, test: test not in (train, *FAR),
) -> Findings:
    """Return macro tau on other categories by measure, with 95% intervals over networks.

    Networks of each training category are drawn anew with replacement, the same ones for all measures and domains.
    `ahead` is how far a measure is ahead of the reference, with its interval. The accuracy on the own category, which
    takes labels, is one of the measures. `counted` says which training and test domains count together.
    """
    rng, names = np.random.default_rng(seed), [*_measures(rows), OWN]
    taus = {name: list[NDArray[np.float64]]() for name in names}
    for train in sorted({str(cell["train"]) for cell, _ in rows}):
        some = [_domains(row) for cell, row in rows if cell["train"] == train]
        counts = drawn(len(some), draws, rng)
        for test in some[0]:
            if not counted(train, test):
                continue
            truth = [one[test]["accuracy"] for one in some]
            for name in names:
                values = [one[test]["measures"].get(name, one[train]["accuracy"]) for one in some]
                taus[name].append(weighted_taus(truth, values, counts))
    means = {name: mean_of_known(np.array(found)) for name, found in taus.items()}
    return {
        name: {**interval("mean", means[name]), **interval("ahead", means[name] - means[reference])} for name in names
    }


def ablations(rows: Rows, test: str) -> dict[str, float]:
    """Return micro tau of invariance with accuracy on one category, by what was varied (section 5.4, figure 4)."""
    truth = [_domains(row)[test]["accuracy"] for _, row in rows]
    names = cast("dict[str, float]", rows[0][1]["ablations"])
    taus = {
        name: kendall_tau([cast("dict[str, float]", row["ablations"])[name] for _, row in rows], truth)
        for name in names
    }
    return {name: tau for name, tau in taus.items() if tau is not None}


def micro(rows: Rows) -> dict[str, Findings]:
    """Return micro tau on each far domain by measure: networks of all categories are ranked together (table 3)."""
    found = {}
    for far in FAR:
        if far in _domains(rows[0][1]):
            truth = [_domains(row)[far]["accuracy"] for _, row in rows]
            taus = {
                name: kendall_tau([_domains(row)[far]["measures"][name] for _, row in rows], truth)
                for name in _measures(rows)
            }
            found[far] = {name: {"mean": tau} for name, tau in taus.items() if tau is not None}
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


def _measures(rows: Rows) -> Mapping[str, float]:
    measures: dict[str, float] = next(iter(_domains(rows[0][1]).values()))["measures"]
    return measures


def _domains(row: Row) -> dict[str, Any]:
    return cast("dict[str, Any]", row["domains"])


def _by_category(rows: Rows, test: str) -> list[list[tuple[Cell, dict[str, Any]]]]:
    """Return what was found on a test domain, by the other categories that networks were trained on."""
    trains = sorted({str(cell["train"]) for cell, _ in rows} - {test})
    return [[(cell, _domains(row)[test]) for cell, row in rows if cell["train"] == train] for train in trains]


def _deviation(groups: Sequence[Sequence[float]]) -> float:
    deviations = [float(np.std(some, ddof=1)) for some in groups if len(some) > 1]
    return float(np.mean(deviations)) if deviations else 0.0
