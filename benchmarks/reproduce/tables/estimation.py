"""Ng et al. 2023: how well measures tell accuracy without labels, by pool of networks, and by distance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from benchmarks.pool import COLUMNS
from benchmarks.reproduce import papers
from benchmarks.reproduce.markdown import MISSING, beside, markdown, shown
from benchmarks.reproduce.tables.files import Files, figures

SHOWN = (0.0, 0.0625, 0.125, 0.1875, 0.25, 0.3125, 0.375, 0.5, 0.75, 1.0)
"""Distances on the sphere, in multiples of pi, near which it is told how well measures rank."""


def _pool(files: Files, part: str, paper: Mapping[str, Sequence[float | None]], taus: Sequence[str]) -> str:
    """Return the scores of measures over a pool; the paper's R2 is beside r2, which it seems to be."""
    columns = ("R2", "r2", "MAE", *taus)
    rows = []
    for measure, row in figures(files, f"estimation-{part}").get("scores", {}).items():
        theirs = (None, *paper.get(measure, (None,) * (len(columns) - 1)))
        means = [row.get(COLUMNS[name], {}).get("mean") for name in columns]
        cells = [
            beside(mean, value, 2 if name == "MAE" else 3)
            for mean, value, name in zip(means, theirs, columns, strict=True)
        ]
        rows.append([measure, *cells])
    return markdown(["measure", *columns], rows)


def cifar(files: Files) -> str:
    """Table 2b of paper 004, CI10."""
    return _pool(files, "cifar", papers.CI10, ("macro tau", "ID tau", "arch tau"))


def digits(files: Files) -> str:
    """Table 2b of paper 004, Numbers."""
    return _pool(files, "digits", papers.NUMBERS, ("macro tau", "ID tau", "arch tau"))


def text(files: Files) -> str:
    """Table 2c of paper 004, CNN."""
    return _pool(files, "text", papers.SENTIMENT, ("macro tau", "micro tau", "ID tau"))


def text_by_domain(files: Files) -> str:
    """Return macro tau of table 2c by where networks are tested."""
    taus = figures(files, "estimation-text").get("macro tau", {})
    named = {"other categories": "other categories", "sst2": "SST-2", "imdb": "IMDB", "all networks": "all networks"}
    rows = []
    for measure in papers.SENTIMENT:
        found = [taus.get(where, {}).get(measure, {}) for where in named]
        if any(found):
            spreads = [" ± ".join(shown(one[part]) for part in ("mean", "std") if part in one) for one in found]
            rows.append([measure, *spreads])
    return markdown(["macro tau", *named.values()], rows)


def hypersphere(files: Files) -> str:
    """Return figure 3b of paper 004 as numbers: Kendall's tau at some distances."""
    curves = sphere_curves(files)
    if not curves:
        return MISSING
    distances = [distance for distance, _ in next(iter(curves.values()))]
    places = [min(range(len(distances)), key=lambda place: abs(distances[place] - near)) for near in SHOWN]
    rows = [
        [f"{distances[place]:.2f} pi", *(shown(curve[place][1], 2) for curve in curves.values())] for place in places
    ]
    zeros = [beside(first_zero(curve), papers.SPHERE_ZERO, 2) for curve in curves.values()]
    return markdown(["distance", *curves], [*rows, ["first zero of tau, in pi", *zeros]])


def sphere_curves(files: Files) -> dict[str, list[tuple[float, float]]]:
    """Return pairs of distance, in multiples of pi, and tau, by measure and length of training."""
    return {
        f"{measure}, {length}": [(row["distance"], row[measure]) for row in found["by distance"]]
        for length, found in figures(files, "hypersphere").items()
        for measure in ("NI", "ATC")
    }


def first_zero(curve: Sequence[tuple[float, float]]) -> float | None:
    """Return where a line through points first comes down to 0; None where it does not."""
    for (start, above), (end, below) in pairwise(curve):
        if above > 0 >= below:
            return start + (end - start) * above / (above - below)
    return None
