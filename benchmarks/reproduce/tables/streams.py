"""Press et al. 2023: accuracy along streams of corruptions, resets and margins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.reproduce import papers
from benchmarks.reproduce.markdown import beside, markdown, shown
from benchmarks.reproduce.tables.files import Files, figures


def streams(files: Files) -> str:
    """Table 2 of paper 001."""
    found = figures(files, "streams")
    usual, tenfold = found.get("methods", {}), found.get("tenfold", {})
    rows = [
        [
            name,
            shown(row["accuracy"], 1, 100),
            shown(row["last tenth"], 1, 100),
            shown(tenfold.get(name, {}).get("accuracy"), 1, 100),
            shown(tenfold.get(name, {}).get("last tenth"), 1, 100),
            shown(papers.CIN_C.get(name), 1),
        ]
        for name, row in usual.items()
    ]
    head = ["method", "accuracy, %", "over the last tenth", "at ten times the rate", "over the last tenth", "paper"]
    return markdown(head, rows)


def ccc(files: Files) -> str:
    """Return the long streams of paper 001."""
    found = figures(files, "streams-ccc")
    usual, tenfold = ({row["method"]: row for row in found.get(scale, [])} for scale in ("1", "10"))

    def told(row: Mapping[str, Any] | None) -> list[str]:
        if row is None:
            return ["", ""]
        fell = row["collapsed_after"]
        return [shown(row["accuracy"], 1, 100), "" if fell is None else f"{fell:,}"]

    rows = [
        [name, *told(row), *told(tenfold.get(name)), shown(papers.CCC_MEDIUM.get(name), 1)]
        for name, row in usual.items()
    ]
    head = ["method", "accuracy, %", "collapsed after", "at ten times the rate", "collapsed after", "paper, CCC-Medium"]
    return markdown(head, rows)


def imagenet(files: Files) -> str:
    """Table 2 of paper 001, with ResNet-50."""
    found = figures(files, "streams-imagenet")

    def told(row: Mapping[str, Any]) -> list[str]:
        return [shown(row.get(name), 1, 100) for name in ("accuracy", "last tenth")]

    rows = [
        [
            name,
            *told(row),
            shown(papers.CIN_C.get(name), 1),
            *told(found.get("ccc", {}).get(name, {})),
            shown(papers.CCC_EASY.get(name), 1),
        ]
        for name, row in found.get("methods", {}).items()
    ]
    head = [
        "method",
        "CIN-C, accuracy, %",
        "over the last tenth",
        "paper",
        "CCC",
        "over the last tenth",
        "paper, CCC-Easy",
    ]
    return markdown(head, rows)


def resets(files: Files) -> str:
    """Table 1 of paper 001."""
    found = figures(files, "streams").get("resets", {})
    rows = [[k, beside(row["accuracy"], papers.RESETS.get(k), 1, 100)] for k, row in found.items()]
    return markdown(["steps between resets", "accuracy, % (paper)"], rows)


def margins(files: Files, table: str = "streams-margins") -> str:
    """Table 3 of paper 001."""
    found = figures(files, table).get("margins", {})
    values = sorted({name.split()[1] for name in found})
    rows = [
        [
            name,
            *(
                beside(found.get(f"{name} {value}", {}).get("accuracy"), papers.MARGINS[name].get(value), 1, 100)
                for value in values
            ),
        ]
        for name in ("eata", "rdumb")
        if values
    ]
    return markdown(["method", *(f"E0 = {value} ln C" for value in values)], rows)
