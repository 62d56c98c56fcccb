"""Press et al. 2023: accuracy along streams of corruptions, resets and margins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean, median, stdev
from typing import Any

from benchmarks.reproduce import papers
from benchmarks.reproduce.markdown import beside, markdown, shown
from benchmarks.reproduce.tables.files import Files, figures

SLOWER = ("eta", "eata", "rdumb", "guard", "sar", "deyo")
"""Methods that the first runs on CIFAR-10 had at rates slower than the public ones: those rows are not shown."""


def streams(files: Files) -> str:
    """Table 2 of paper 001."""
    found = figures(files, "streams")
    usual, tenfold = (
        {name: row for name, row in found.get(part, {}).items() if name not in SLOWER}
        for part in ("methods", "tenfold")
    )
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
    head = ["method", "accuracy, %", "last tenth", "10x rate: accuracy, %", "last tenth", "paper"]
    return markdown(head, rows)


def ccc(files: Files) -> str:
    """Return the long streams of paper 001."""
    found = figures(files, "streams-ccc")
    usual, tenfold = (
        {row["method"]: row for row in found.get(scale, []) if row["method"] not in SLOWER} for scale in ("1", "10")
    )

    def told(row: Mapping[str, Any] | None) -> list[str]:
        if row is None:
            return ["", ""]
        fell = row["collapsed_after"]
        return [shown(row["accuracy"], 1, 100), "" if fell is None else f"{fell:,}"]

    rows = [
        [name, *told(row), *told(tenfold.get(name)), shown(papers.CCC_MEDIUM.get(name), 1)]
        for name, row in usual.items()
    ]
    head = ["method", "accuracy, %", "collapsed after", "10x rate: accuracy, %", "collapsed after", "paper, CCC-Medium"]
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
        "last tenth",
        "paper, CIN-C",
        "CCC, accuracy, %",
        "last tenth",
        "paper, CCC-Easy",
    ]
    return markdown(head, rows)


def resets(files: Files) -> str:
    """Table 1 of paper 001: mean, deviation, lowest and highest over orders of the corruptions."""
    found = figures(files, "streams-resets").get("demo", {})
    rows = []
    for name in names_of(found):
        values = [row["methods"][name]["accuracy"] for row in found.values() if name in row["methods"]]
        steps = name.removeprefix("eta[reset=").removesuffix("]") if name != "source" else "source, not adapted"
        edges = [shown(edge, 1, 100) for edge in (min(values), max(values))]
        rows.append([steps, str(len(values)), _spread(values), *edges, shown(papers.RESETS.get(steps), 1)])
    rows.sort(key=lambda row: (row[0] == "never", int(row[0]) if row[0].isdigit() else 0))
    return markdown(["steps between resets", "orders", "accuracy, %", "lowest", "highest", "paper"], rows)


def margins(files: Files, table: str = "streams-margins") -> str:
    """Table 3 of paper 001: means over streams, or of one."""
    every = figures(files, table)
    found = every.get("margins") or _by_margin(every.get("demo", {}))
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


def _by_margin(streams: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return means over streams by method and margin, as `eata 0.4`."""
    found = {}
    for name in names_of(streams):
        if name != "source":
            held = [row["methods"][name]["accuracy"] for row in streams.values() if name in row["methods"]]
            found[name.replace("[entropy_margin=", " ").removesuffix("]")] = {"accuracy": mean(held)}
    return found


TARGETS = {
    target: [f"ccc-{target}-{speed}-{seed}" for speed, seed in ((1000, 43), (2000, 44), (5000, 45))]
    for target in ("easy", "medium", "hard")
}
"""Target -> its streams, from the fastest to the slowest."""
CELLS = [stream for streams in TARGETS.values() for stream in streams]
"""The streams of CCC's nine cells."""


def cells(files: Files, part: str = "demo") -> str:
    """Return the nine cells of CCC, and where methods collapse: fall below the source model and stay there."""
    found = figures(files, "streams-cells").get(part, {})
    rows = []
    for name in names_of(found):
        along = [[found.get(each, {}).get("methods", {}).get(name) for each in some] for some in TARGETS.values()]
        known = [row for some in along for row in some if row]
        fell = [row["collapsed at"] for row in known if row["collapsed at"] is not None]
        said = f"{len(fell)} of {len(known)}" if name != "source" else ""
        where = f"{int(median(fell)):,}" if fell else ""
        told = shown(mean(row["accuracy"] for row in known), 1, 100) if len(known) == len(CELLS) else ""
        cells_of = [
            ", ".join(shown(row and row["accuracy"], 1, 100) or "-" for row in some) if any(some) else ""
            for some in along
        ]
        rows.append([name, *cells_of, told, said, where])
    return markdown(["method", *TARGETS, "mean", "collapsed cells", "median collapse at image"], rows)


def orders(files: Files) -> str:
    """Return CIN-C over orders of the corruptions: mean, deviation, lowest and highest."""
    found = figures(files, "streams-orders").get("demo", {})
    rows = []
    for name in names_of(found):
        values = [row["methods"][name]["accuracy"] for row in found.values() if name in row["methods"]]
        gains = [
            row["methods"][name]["accuracy"] - row["methods"]["source"]["accuracy"]
            for row in found.values()
            if name in row["methods"]
        ]
        told = [_spread(values), *(shown(edge, 1, 100) for edge in (min(values), max(values)))]
        gained = "" if name == "source" else _spread(gains)
        rows.append([name, str(len(values)), *told, gained, shown(papers.CIN_C.get(name), 1)])
    return markdown(["method", "orders", "accuracy, %", "lowest", "highest", "above source, points", "paper"], rows)


def names_of(found: Mapping[str, Any]) -> list[str]:
    """Return all methods of some streams, in order."""
    return list(dict.fromkeys(name for row in found.values() for name in row["methods"]))


def _spread(values: Sequence[float]) -> str:
    """Return a mean in percent with the standard deviation."""
    return shown(mean(values), 1, 100) + (f" ± {100 * stdev(values):.1f}" if len(values) > 1 else "")
