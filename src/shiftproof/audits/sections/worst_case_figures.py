"""How the section on the worst case shows what was tried: densities, curves, the worst tuples, and pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from shiftproof.audits.sections.wording import percent
from shiftproof.reports.view import Column, Figure, Gallery, Picture, Table
from shiftproof.runs import Json, Row

SIMILARITY = 0.8
"""A tuple counts as leaving images recognisable from this mean structural similarity on."""
WORST = 5
"""Tuples that are listed."""
RARE = 0.001


@dataclass(frozen=True)
class Found:
    """A tuple in words, with its accuracy and its similarity."""

    words: str
    fitness: float
    similarity: float

    @property
    def admissible(self) -> bool:
        """Whether it leaves the images recognisable."""
        return self.similarity >= SIMILARITY


def found_in(row: Row) -> list[Found]:
    """Return the tuples of a row."""
    trials = cast(Mapping[str, Sequence[Json]], row["trials"])
    return [
        Found(str(words), cast(float, fitness), cast(float, similarity))
        for words, fitness, similarity in zip(trials["words"], trials["fitness"], trials["similarity"], strict=True)
    ]


def rare_accuracy(random: Sequence[Found]) -> float | None:
    """Return the accuracy that the lowest 0.1% of random tuples do not reach; None of too few to show it."""
    return float(np.quantile([found.fitness for found in random], RARE)) if len(random) * RARE >= 1 else None


def density(random: Sequence[Found], kept: Found, clean: float) -> Figure:
    """Draw how random tuples spread, with the worst found, the lowest 0.1% of many, and the clean accuracy."""
    values = np.array([found.fitness for found in random])
    edges = np.linspace(np.floor(20 * values.min()) / 20, 1.0, 21)
    counts, edges = np.histogram(values, edges)
    middles = (edges[1:] + edges[:-1]) / 2
    rare = rare_accuracy(random)
    top = int(counts.max())
    marks = [("worst found", kept.fitness), ("clean", clean)]
    marks = marks if rare is None else [("lowest 0.1%", rare), *marks]
    plot = {
        "data": [
            {
                "type": "bar",
                "name": "random tuples",
                "x": (100 * middles).round(2).tolist(),
                "y": counts.tolist(),
                "width": round(100 * float(edges[1] - edges[0]), 3),
            },
            *(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "name": name,
                    "x": [round(100 * value, 2)] * 2,
                    "y": [0, top],
                }
                for name, value in marks
            ),
        ],
        "layout": {
            "bargap": 0,
            "xaxis": {
                "title": {"text": "accuracy under a tuple, %"},
                "range": [100 * min(float(edges[0]), *(value for _, value in marks)) - 1, 101],
            },
            "yaxis": {"title": {"text": "random tuples"}},
        },
    }
    table = Table(
        "Random tuples by accuracy",
        (Column("accuracy from", "percent"), Column("to", "percent"), Column("tuples", "number")),
        tuple((float(low), float(high), int(n)) for low, high, n in zip(edges[:-1], edges[1:], counts, strict=True)),
    )
    half = f"Half of {len(random)} random tuples leave it at {percent(float(np.median(values)))} or more"
    finding = f"{half}; the worst found leaves {percent(kept.fitness)}"
    return Figure(finding, plot, table, caption="How far left the distribution reaches is what chance alone can do.")


def progress(random: Sequence[Found], runs: Sequence[Sequence[Found]]) -> Figure:
    """Draw the lowest accuracy so far of every searcher."""
    named = [("random", random), *((f"evolution, run {number}", run) for number, run in enumerate(runs, start=1))]
    curves = {
        name: np.minimum.accumulate([found.fitness if found.admissible else 1.0 for found in some])
        for name, some in named
        if some
    }
    data = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "line": {"shape": "hv"},
            "x": list(range(1, len(curve) + 1)),
            "y": (100 * curve).round(2).tolist(),
        }
        for name, curve in curves.items()
    ]
    steps = [step for step in (1, 10, 20, 50, 100, 200, 500, 1000) if step <= max(map(len, curves.values()))]
    table = Table(
        "Lowest accuracy so far",
        (Column("tuples tried", "number"), *(Column(name, "percent") for name in curves)),
        tuple(
            (step, *(float(curve[step - 1]) if step <= len(curve) else None for curve in curves.values()))
            for step in steps
        ),
    )
    best = min(curves, key=lambda name: float(curves[name][-1]))
    layout = {
        "xaxis": {"title": {"text": "tuples tried"}},
        "yaxis": {"title": {"text": "lowest accuracy so far, %"}},
    }
    finding = f"{best.capitalize()} finds the worst tuple that keeps the content: {percent(float(curves[best][-1]))}"
    return Figure(
        finding,
        {"data": data, "layout": layout},
        table,
        caption="A line that still falls at its end says that there is worse to be found. Tuples that change the "
        "content do not count.",
    )


def worst_table(found: Sequence[Found]) -> Table:
    """Tabulate the worst tuples."""
    distinct = {one.words: one for one in found}
    ranked = sorted(distinct.values(), key=lambda one: one.fitness)[:WORST]
    return Table(
        "The worst tuples that were tried",
        (
            Column("operations in turn"),
            Column("accuracy", "percent", heat=(0.0, 1.0)),
            Column("similarity", "number"),
            Column("keeps the content"),
        ),
        tuple((one.words, one.fitness, round(one.similarity, 2), "yes" if one.admissible else "no") for one in ranked),
        caption=f"Content is kept from a mean structural similarity of {SIMILARITY:g} on.",
    )


def galleries(measured: Sequence[Row], kept: Found) -> Iterator[Gallery]:
    """Show the worst tuple, with the pictures of a cell whose worst it is."""
    for row in measured:
        shown = cast(Sequence[Mapping[str, Json]], row.get("pictures", ()))
        if not shown or kept != min((one for one in found_in(row) if one.admissible), key=lambda one: one.fitness):
            continue
        pairs = [
            Picture(str(entry[when]), when, bool(entry[mark]))
            for entry in shown
            for when, mark in (("before", "was_right"), ("after", "right"))
        ]
        yield Gallery(
            "Before and after the worst tuple",
            tuple(pairs),
            caption="First images that the tuple turns from right to wrong.",
        )
        return
