"""Several audits in one table: every number of every run, and bars of how they differ from the first."""

from __future__ import annotations

from collections.abc import Sequence

from shiftproof.comparisons.audit_comparison import Comparison, Difference
from shiftproof.comparisons.audit_views import AS_THEY_ARE, HEADLINES, words
from shiftproof.reports.view import Column, Figure, Table, View

SIGNS = {"better": " +", "worse": " -"}
"""What stands behind a value that is better or worse than the first run's beyond chance."""
NOTE = "A + or - is better or worse than the first run beyond chance."


def side_by_side(found: Comparison) -> View:
    """Return every number of all runs, with bars of the headlines."""
    shown = [name for name in HEADLINES if name not in AS_THEY_ARE and _with(found, name)]
    return View(
        "side-by-side",
        "All runs side by side",
        f"How do {len(found.labels)} runs compare?",
        blocks=(*([_bars(found, shown)] if shown else []), table(found)),
        notes=(NOTE,),
    )


def table(found: Comparison) -> Table:
    """Return a row per number, and a column per run."""
    return Table(
        "Every number of every run",
        (Column("number"), *(Column(label) for label in found.labels)),
        tuple((words(name), *cells) for name, cells in rows(found)),
        caption=NOTE,
    )


def rows(found: Comparison) -> list[tuple[str, tuple[str, ...]]]:
    """Return every number that some run shares with the first, with its value in each run as text."""
    names = dict.fromkeys(one.name for some in found.differences.values() for one in some)
    made = []
    for name in names:
        own = _with(found, name)
        first = f"{own[0][1].one:.3f}"
        others = {label: f"{one.other:.3f}{SIGNS.get(one.verdict, '')}" for label, one in own}
        made.append((name, (first, *(others.get(label, "") for label in found.labels[1:]))))
    return made


def _with(found: Comparison, name: str) -> list[tuple[str, Difference]]:
    return [(label, one) for label, some in found.differences.items() for one in some if one.name == name]


def _bars(found: Comparison, names: Sequence[str]) -> Figure:
    """Draw the differences from the first run, with their intervals, in groups by number."""
    data = []
    for label in found.labels[1:]:
        some = [one for name in names for other, one in _with(found, name) if other == label]
        ends = [
            (one.value if one.low is None else one.low, one.value if one.high is None else one.high) for one in some
        ]
        data.append(
            {
                "type": "bar",
                "name": label,
                "x": [words(one.name) for one in some],
                "y": [100 * one.value for one in some],
                "error_y": {
                    "type": "data",
                    "symmetric": False,
                    "array": [100 * (high - one.value) for one, (_, high) in zip(some, ends, strict=True)],
                    "arrayminus": [100 * (one.value - low) for one, (low, _) in zip(some, ends, strict=True)],
                },
            }
        )
    plot = {
        "data": data,
        "layout": {"barmode": "group", "yaxis": {"title": {"text": f"points above {found.labels[0]}"}}},
    }
    columns = (Column("number"), *(Column(label, "number") for label in found.labels[1:]))
    lines: tuple[tuple[str | float, ...], ...] = tuple(
        (words(name), *(round(100 * one.value, 1) for _, one in _with(found, name))) for name in names
    )
    return Figure(f"What differs from {found.labels[0]}, in points", plot, Table("Differences", columns, lines))
