"""Ng et al. 2023, table 2d: measures of accuracy without labels over a pool of classifiers of sentence pairs."""

from __future__ import annotations

from typing import Any

from benchmarks.reproduce import papers
from benchmarks.reproduce.markdown import MISSING, markdown, shown
from benchmarks.reproduce.tables.estimation import RANKED, scores_of, with_interval
from benchmarks.reproduce.tables.files import Files, figures
from benchmarks.text_findings import OWN


def heads(files: Files) -> dict[str, Any]:
    """Return the figures of the heads for pairs of sentences."""
    found: dict[str, Any] = figures(files, "estimation-pairs").get("heads", {})
    return found


def scores(files: Files) -> str:
    """All scores, beside those of the paper's RoBERTa networks."""
    return scores_of(heads(files), papers.PAIRS, ("macro tau", "micro tau", "ID tau"), fits=("r2", "MAE"))


def accuracies(files: Files) -> str:
    """Return what each test domain is, and how accurate networks of the other domains are on it, %."""
    found = heads(files)
    if not found:
        return MISSING
    rows = [
        [
            name,
            str(about["pairs"]),
            shown(about["words"], 1),
            shown(about["most frequent label"], 1, 100),
            *(shown(found["domains"][name][column], 1) for column in ("accuracy", "spread")),
        ]
        for name, about in found["domains of"].items()
    ]
    head = ["test domain", "pairs", "words of a sentence", "most frequent label, %"]
    return markdown([*head, "accuracy of heads of other domains, %", "deviation"], rows)


def pools(files: Files) -> str:
    """Return macro tau on other domains, with intervals over networks: all heads, some of them, and some domains."""
    found = heads(files)
    rows = []
    for name, taus in found.get("intervals", {}).items():
        cells = [with_interval(taus.get(measure, {}), "mean") for measure in (*RANKED, OWN)]
        count = found["pools"].get(name, {"networks": found["kept"]})["networks"]
        rows.append([name, f"{count}", *cells, with_interval(taus.get(RANKED[0], {}), "ahead")])
    own = "accuracy on the own domain"
    return markdown(["macro tau", "heads", *RANKED, own, f"{RANKED[0]} ahead of {RANKED[-1]}"], rows)
