"""Ng et al. 2023: how well measures tell accuracy without labels, by pool of networks, and by distance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from benchmarks.pool import COLUMNS
from benchmarks.reproduce import papers
from benchmarks.reproduce.markdown import MISSING, beside, markdown, shown
from benchmarks.reproduce.tables.files import Files, figures
from benchmarks.text_findings import OWN

SHOWN = (0.0, 0.0625, 0.125, 0.1875, 0.25, 0.3125, 0.375, 0.5, 0.75, 1.0)
"""Distances on the sphere, in multiples of pi, near which it is told how well measures rank."""


FAMILIES = {"cnn": "CNNs", "head": "heads"}
"""Architecture of text classifiers -> what the page calls them."""

POOLS = {"all texts": "", "fewer texts too": ", fewer texts too", "no label noise": ", no label noise"}
"""Pool of text classifiers -> what is added to the family's name."""

WHERE = {
    "training": "training", "own category": "own category", "other categories": "other categories", "sst2": "SST-2",
    "imdb": "IMDB", "spread": "deviation, other categories",
}  # fmt: skip
"""Accuracy -> the head of its column."""

VARIED = {"inputs": "test texts", "views": "views of each text", "magnitude": "tokens corrupted"}
"""What is varied in the neighbourhood -> the same in words."""

RANKED = ("NI-SSMBA", "NI-EDA", "NI-RandRep", "ATC-MC")
"""Measures of texts that are compared; with two classes ATC-NE is ATC-MC."""


def scores_of(
    found: Mapping[str, Any],
    paper: Mapping[str, Sequence[float | None]],
    taus: Sequence[str],
    fits: Sequence[str] = ("R2", "r2", "MAE"),
) -> str:
    """Return the scores of measures over a pool; the paper's R2 is beside r2, which it seems to be."""
    columns = (*fits, *taus)
    rows = []
    for measure, row in found.get("scores", {}).items():
        known = paper.get(measure, (None,) * (len(taus) + 2))
        theirs = known if "R2" not in fits else (None, *known)
        means = [row.get(COLUMNS[name], {}).get("mean") for name in columns]
        cells = [
            beside(mean, value, 2 if name == "MAE" else 3)
            for mean, value, name in zip(means, theirs, columns, strict=True)
        ]
        rows.append([measure, *cells])
    return markdown(["measure", *columns], rows)


def cifar(files: Files) -> str:
    """Table 2b of paper 004, CI10."""
    return scores_of(figures(files, "estimation-cifar"), papers.CI10, ("macro tau", "ID tau", "arch tau"))


def digits(files: Files) -> str:
    """Table 2b of paper 004, Numbers."""
    return scores_of(figures(files, "estimation-digits"), papers.NUMBERS, ("macro tau", "ID tau", "arch tau"))


def text(files: Files, architecture: str = "cnn") -> str:
    """Table 2c of paper 004: CNN, or heads beside RoBERTa."""
    paper = {"cnn": papers.SENTIMENT, "head": papers.ENCODED_SENTIMENT}[architecture]
    return scores_of(texts(files, architecture), paper, ("macro tau", "micro tau", "ID tau"), fits=("r2", "MAE"))


def texts(files: Files, architecture: str) -> dict[str, Any]:
    """Return the figures of the text classifiers of an architecture."""
    found: dict[str, Any] = figures(files, "estimation-text").get(architecture, {})
    return found


def _text_pools(files: Files) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Return accuracies and taus of every pool of text classifiers, by its name in words."""
    return {
        f"{FAMILIES[architecture]}{POOLS[pool]}": (about, texts(files, architecture)["intervals"][pool])
        for architecture in FAMILIES
        for pool, about in texts(files, architecture).get("pools", {}).items()
    }


def text_accuracies(files: Files) -> str:
    """Return how many networks each pool of text classifiers has, and how accurate they are, %."""
    rows = [
        [name, f"{about['networks']}", *(shown(about.get(column), 1) for column in WHERE)]
        for name, (about, _) in _text_pools(files).items()
    ]
    return markdown(["pool", "networks", *WHERE.values()], rows)


def text_pools(files: Files) -> str:
    """Return macro tau on other categories by pool, with intervals over networks."""
    rows = []
    for name, (_, taus) in _text_pools(files).items():
        cells = [with_interval(taus.get(measure, {}), "mean") for measure in (*RANKED, OWN)]
        rows.append([name, *cells, with_interval(taus.get(RANKED[0], {}), "ahead")])
    return markdown(["macro tau", *RANKED, OWN, f"{RANKED[0]} ahead of {RANKED[-1]}"], rows)


def with_interval(found: Mapping[str, float], name: str) -> str:
    """Return a number of some findings with its interval; nothing where it is missing."""
    if name not in found:
        return ""
    return f"{found[name]:.3f} ({found[f'{name} low']:.3f} to {found[f'{name} high']:.3f})"


def text_by_domain(files: Files) -> str:
    """Return tau by where networks are tested, and with the networks that did not converge."""
    rows = []
    for architecture, family in FAMILIES.items():
        found = texts(files, architecture)
        macro, micro = found.get("macro tau", {}), found.get("micro tau", {})
        for measure in RANKED:
            one = [macro.get(where, {}).get(measure, {}) for where in ("other categories", "all networks")]
            far = [group.get(where, {}).get(measure, {}) for where in ("sst2", "imdb") for group in (macro, micro)]
            if any(one):
                rows.append([f"{family}, {measure}", *(shown(each.get("mean")) for each in (one[0], *far, one[1]))])
    head = ["tau", "other categories", "SST-2", "SST-2, micro", "IMDB", "IMDB, micro", "all networks"]
    return markdown(head, rows)


def text_ablations(files: Files) -> str:
    """Return figure 4 of paper 004 as numbers: micro tau of NI-SSMBA by what is varied."""
    panels = text_panels(files)
    rows = [
        [f"{varied}: {value}", *(f"{dict(curve)[value]:.3f}" for curve in curves.values())]
        for varied, curves in panels.items()
        for value, _ in next(iter(curves.values()))
    ]
    families = next(iter(panels.values())) if panels else {}
    return markdown(["micro tau of NI-SSMBA on video", *families], rows)


def text_panels(files: Files) -> dict[str, dict[str, list[tuple[str, float]]]]:
    """Return pairs of a value and micro tau of NI-SSMBA, by what is varied and by family of networks."""
    found = {family: texts(files, architecture).get("ablations", {}) for architecture, family in FAMILIES.items()}
    return {
        told: {family: _varied(taus, kind) for family, taus in found.items() if _varied(taus, kind)}
        for kind, told in VARIED.items()
        if any(_varied(taus, kind) for taus in found.values())
    }


def _varied(taus: Mapping[str, float], kind: str) -> list[tuple[str, float]]:
    """Return the values of one kind in order, with their taus."""
    pairs = [(name.partition("=")[2], tau) for name, tau in taus.items() if name.startswith(f"{kind}=")]
    return sorted(pairs, key=lambda pair: float(pair[0].rstrip("%")))


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
