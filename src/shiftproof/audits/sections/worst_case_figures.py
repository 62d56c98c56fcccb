"""How the section on the worst case shows what was tried: kinds of change, curves, the worst chains, and pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from shiftproof.audits.sections.wording import interval, percent, title
from shiftproof.audits.sections.worst_case_search import SIMILARITY, SearchedParts, SearchedSpace
from shiftproof.measures import Accuracy
from shiftproof.reports.view import Column, Figure, Gallery, Picture, Table
from shiftproof.runs import Json, Row

WORST = 5
"""Chains that are listed."""
RARE = 0.001
DASHES = ("solid", "dash", "dot", "dashdot")
"""Lines of the kinds of change."""


@dataclass(frozen=True)
class Found:
    """A chain in words, with its accuracy, its similarity where that was measured, and whether it keeps the content."""

    words: str
    fitness: float
    similarity: float | None = None
    admissible: bool = True


@dataclass(frozen=True)
class WorstChain:
    """The worst chain of a space: its accuracy on images that had no part in choosing it, and on those that had.

    `searched` is its accuracy where it was searched, `before` on all images that it was chosen by; `spread` are the
    accuracies of each seed's own worst chain on images that it was not searched on.
    """

    words: str
    accuracy: Accuracy
    searched: float
    before: float
    similarity: float
    spread: tuple[float, ...]
    pictures: Sequence[Mapping[str, Json]]

    @classmethod
    def of(cls, row: Row) -> WorstChain:
        """Read a row."""
        right, images = cast(int, row["right"]), cast(int, row["images"])
        searched, before, similarity = (cast(float, row[name]) for name in ("searched", "before", "similarity"))
        spread = tuple(cast(Sequence[float], row["spread"]))
        pictures = cast(Sequence[Mapping[str, Json]], row["pictures"])
        return cls(str(row["chain"]), Accuracy(right, images), searched, before, similarity, spread, pictures)


def runs_in(row: Row) -> list[list[Found]]:
    """Return the chains that each seed of a search tried."""
    return [found_in(trials) for trials in cast(Mapping[str, Json], row["runs"]).values()]


def found_in(trials: Json) -> list[Found]:
    """Return the chains of trials."""
    held = cast(Mapping[str, Sequence[Json]], trials)
    columns = (held[name] for name in ("words", "fitness", "similarity", "admissible"))
    return [
        Found(str(words), cast(float, fitness), cast("float | None", similarity), bool(admissible))
        for words, fitness, similarity, admissible in zip(*columns, strict=True)
    ]


def surviving(
    hits: NDArray[np.bool_], parts: SearchedParts, searched: Sequence[tuple[SearchedSpace, Row]]
) -> tuple[Accuracy, Accuracy]:
    """Return the accuracy of images as they are, and the share that is right under all of the worst chains too.

    The first is of the images that chains are measured on, the second of those that they are compared on. `hits` says
    of both who was right as they are.
    """
    each = hits[: parts.compared]
    for _, found in searched:
        if "surviving" in found:
            bits = np.unpackbits(np.frombuffer(bytes.fromhex(str(found["surviving"])), np.uint8))
            each = each & bits[: len(each)].astype(bool)
    measured = hits[parts.compared :]
    return Accuracy(int(measured.sum()), len(measured)), Accuracy(int(each.sum()), len(each))


def space_table(chains: Mapping[str, WorstChain], each: Accuracy) -> Table:
    """Tabulate the worst chain of every kind of change, and what is right under all of them."""
    ranked = sorted(chains.items(), key=lambda entry: entry[1].accuracy.value)
    body = tuple(
        (
            kind,
            chain.accuracy.value,
            interval(chain.accuracy),
            title(chain.words),
            chain.searched,
            " to ".join(dict.fromkeys(percent(value) for value in (min(chain.spread), max(chain.spread)))),
            round(chain.similarity, 2),
        )
        for kind, chain in ranked
    )
    every = ("worst for each image", each.value, interval(each), "of the chains compared", None, "", None)
    return Table(
        "The worst chain of every kind of change",
        (
            Column("kind"),
            Column("accuracy", "percent", heat=(0.0, 1.0)),
            Column("interval"),
            Column("chain"),
            Column("where searched", "percent"),
            Column("over seeds"),
            Column("similarity", "number"),
        ),
        (*body, every),
        caption="Accuracy is on images that had no part in choosing the chain; where searched is on the images of the "
        "search. Over seeds is the range over the worst chains of single searches, on images not used in them. The "
        "last row is the share of images that are right unchanged and under every chain compared.",
    )


def rare_accuracy(random: Sequence[Found]) -> float | None:
    """Return the accuracy that the lowest 0.1% of random chains do not reach; None of too few to show it."""
    return float(np.quantile([found.fitness for found in random], RARE)) if len(random) * RARE >= 1 else None


def density(random: Sequence[Found], kept: Found, clean: float) -> Figure:
    """Draw how random chains spread, with the worst found, the lowest 0.1% of many, and the clean accuracy."""
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
                "name": "random chains",
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
                "title": {"text": "accuracy under a chain, %"},
                "range": [100 * min(float(edges[0]), *(value for _, value in marks)) - 1, 101],
            },
            "yaxis": {"title": {"text": "random chains"}},
        },
    }
    table = Table(
        "Random chains by accuracy",
        (Column("accuracy from", "percent"), Column("to", "percent"), Column("chains", "number")),
        tuple((float(low), float(high), int(n)) for low, high, n in zip(edges[:-1], edges[1:], counts, strict=True)),
    )
    half = f"Half of {len(random)} random chains leave it at {percent(float(np.median(values)))} or more"
    finding = f"{half}; the worst found leaves {percent(kept.fitness)}"
    return Figure(finding, plot, table, caption="The left end of the distribution is what random choice alone finds.")


def progress(tried: Mapping[str, Sequence[Sequence[Found]]]) -> Figure:
    """Draw the lowest accuracy so far of every kind of change, from every seed."""
    curves = {
        f"{kind}, seed {number}" if len(runs) > 1 else kind: np.minimum.accumulate(
            [found.fitness if found.admissible else 1.0 for found in run]
        )
        for kind, runs in tried.items()
        for number, run in enumerate(runs, start=1)
        if run
    }
    kinds = {name: place for place, kind in enumerate(tried) for name in curves if name.partition(",")[0] == kind}
    data = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "line": {
                "shape": "hv",
                "color": f"var(--series-{1 + kinds[name]})",
                "dash": DASHES[kinds[name]],
            },
            "x": list(range(1, len(curve) + 1)),
            "y": (100 * curve).round(2).tolist(),
        }
        for name, curve in curves.items()
    ]
    steps = [step for step in (1, 5, 10, 20, 30, 50, 100, 200, 500, 1000) if step <= max(map(len, curves.values()))]
    table = Table(
        "Lowest accuracy so far",
        (Column("chains tried", "number"), *(Column(name, "percent") for name in curves)),
        tuple(
            (step, *(float(curve[step - 1]) if step <= len(curve) else None for curve in curves.values()))
            for step in steps
        ),
    )
    best = min(curves, key=lambda name: float(curves[name][-1]))
    layout = {
        "xaxis": {"title": {"text": "chains tried"}},
        "yaxis": {"title": {"text": "lowest accuracy so far, %"}},
    }
    finding = f"The search of {best} goes lowest: {percent(float(curves[best][-1]))} on the images of the search"
    return Figure(
        finding,
        {"data": data, "layout": layout},
        table,
        caption="Equal lines are seeds of one kind. A line that still falls at its end suggests that a longer search "
        "finds worse. Chains that do not keep the content are left out.",
    )


def worst_table(found: Sequence[Found], measure: str = "accuracy") -> Table:
    """Tabulate the worst chains."""
    distinct = {one.words: one for one in found}
    ranked = sorted(distinct.values(), key=lambda one: one.fitness)[:WORST]
    return Table(
        "The worst chains that were tried",
        (
            Column("chain"),
            Column(f"{measure} where searched", "percent", heat=(0.0, 1.0)),
            Column("similarity", "number"),
            Column("keeps the content"),
        ),
        tuple(
            (
                title(one.words),
                one.fitness,
                None if one.similarity is None else round(one.similarity, 2),
                "yes" if one.admissible else "no",
            )
            for one in ranked
        ),
        caption=f"Colour edits and corruptions keep the content at a mean structural similarity of {SIMILARITY:g} or "
        "more; moves and covered squares always do.",
    )


def galleries(chain: WorstChain) -> Iterator[Gallery]:
    """Show images before and after the worst chain."""
    pairs = [
        Picture(str(entry[when]), when, bool(entry[mark]))
        for entry in chain.pictures
        for when, mark in (("before", "was_right"), ("after", "right"))
    ]
    if pairs:
        yield Gallery(
            "Before and after the worst chain",
            tuple(pairs),
            caption="The first images whose answers the chain turns from right to wrong.",
        )
