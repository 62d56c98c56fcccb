"""Put the figures of this folder into docs/reproduction.md, beside those of the papers.

    python -m benchmarks.reproduce.page            # writes the tables between their marks
    python -m benchmarks.reproduce.page --check    # fails where the page and the figures differ

The page is written by hand but for its tables, which lie between `<!-- begin NAME -->` and `<!-- end NAME -->`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.reproduce import papers
from benchmarks.reproduce.heat_maps import drawing
from shiftproof.models.named import cards
from shiftproof.runs import write_atomically

HERE = Path(__file__).parent
FIGURES = HERE / "figures"
PAGE = HERE.parents[1] / "docs" / "reproduction.md"
PICTURE = PAGE.parent / "_static" / "certified-waves.svg"
MISSING = "Not run."


def main() -> int:
    """Write or check the page; return 1 where it is out of date."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    text = PAGE.read_text()
    made, picture = filled(text), heat_maps()
    if options.check:
        return int(made != text or (picture or "") != (PICTURE.read_text() if PICTURE.is_file() else ""))
    write_atomically(PAGE, made)
    if picture is not None:
        write_atomically(PICTURE, picture)
    return 0


def filled(text: str) -> str:
    """Return the page with its tables made anew."""

    def table(match: re.Match[str]) -> str:
        name = match["name"]
        return f"<!-- begin {name} -->\n\n{TABLES[name]().strip()}\n\n<!-- end {name} -->"

    return re.sub(r"<!-- begin (?P<name>[\w-]+) -->.*?<!-- end (?P=name) -->", table, text, flags=re.DOTALL)


def load(name: str) -> dict[str, Any] | None:
    """Return the file of figures of a table, None where it was not run."""
    path = FIGURES / f"{name}.json"
    found: dict[str, Any] | None = json.loads(path.read_text()) if path.is_file() else None
    return found


def figures(name: str) -> dict[str, Any]:
    """Return the figures of a table; none where it was not run."""
    found = load(name)
    return {} if found is None else found["figures"]


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown, its first column to the left and the others to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) if len(lines) > 2 else MISSING


def shown(value: float | None, digits: int = 3, scale: float = 1) -> str:
    """Return a number, or nothing for one that there is not."""
    return "" if value is None else f"{scale * value:.{digits}f}"


def beside(ours: float | None, paper: float | None, digits: int = 3, scale: float = 1) -> str:
    """Return our number with the paper's in brackets."""
    return f"{shown(ours, digits, scale)} ({shown(paper, digits)})" if paper is not None else shown(ours, digits, scale)


def adaptation() -> str:
    """Table 1 of paper 000."""
    rows = []
    for part, name in (
        ("resnet20", "ResNet-20, CIFAR-10-C"),
        ("resnet56", "ResNet-56, CIFAR-10-C"),
        ("imagenet-efficientnet_lite0", "EfficientNet-Lite0, ImageNet-C"),
        ("imagenet-resnet50", "ResNet-50, ImageNet-C"),
    ):
        found = figures(f"statistics-{part}").get("adaptation", {})
        if found:
            ways = [found.get(way, {}) for way in ("without", "partial", "full")]
            errors = [shown(way.get("error"), 1, 100) for way in ways]
            itself = {} if part.startswith("imagenet") else {"mce": 100.0}  # what the ratio is to
            rows.append([name, *errors, *(shown(way.get("mce"), 1) for way in ({**ways[0], **itself}, *ways[1:]))])
    rows.append(["paper: ResNet-50, ImageNet-C", *papers.ADAPTATION])
    head = ["network", "error, %, without", "partial", "full", "mCE, without", "partial", "full"]
    return markdown(head, rows)


def regression() -> str:
    """Table 11 of paper 000."""
    ours = figures("statistics-resnet20").get("hold-out regression", {})
    rows = [
        [
            category,
            beside(100 * ours[category]["true"], true, 1),
            beside(100 * ours[category]["predicted"], predicted, 1),
            beside(100 * ours[category]["mean absolute difference"], off, 1),
        ]
        for category, (true, predicted, off) in papers.REGRESSION.items()
        if category in ours
    ]
    return markdown(["category", "error, %, true", "predicted", "mean absolute difference"], rows)


def linearity() -> str:
    """Error against distance, paper 000."""
    rows = []
    for part, name in (("resnet20", "ResNet-20"), ("resnet56", "ResNet-56")):
        found = figures(f"statistics-{part}").get("distances")
        if found:
            rows.append([name, shown(found["r_squared"], 2), shown(found["slope"], 3)])
    return markdown(["network", "R2 of a line through the 75 corruptions", "error per unit of distance"], rows)


def grid() -> str:
    """Table 12 of paper 000."""
    parts = [figures(f"statistics-{part}") for part in ("single", "grid")]
    if not any(parts):
        return MISSING
    found = {
        name: {n: row for part in parts for n, row in part.get(name, {}).items()} for name in ("errors", "best prior")
    }
    errors = dict(sorted(found["errors"].items(), key=lambda item: int(item[0])))
    priors = [name for name in next(iter(errors.values())) if name != "source"]
    rows = []
    for n, row in errors.items():
        best = found["best prior"][n]
        bounds = [
            best[name] if isinstance(best[name], str) else f"{best[name]:g}" for name in ("lower bound", "upper bound")
        ]
        rows.append([n, *(shown(row[prior], 1, 100) for prior in priors), str(best["measured"]), *bounds])
    head = ["n", *(f"N = {prior}" for prior in priors), "best N", "lower bound's", "upper bound's"]
    return markdown(head, rows)


def streams() -> str:
    """Table 2 of paper 001."""
    found = figures("streams")
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


def ccc() -> str:
    """Return the long streams of paper 001."""
    found = figures("streams-ccc")
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


def imagenet() -> str:
    """Table 2 of paper 001, with ResNet-50."""
    found = figures("streams-imagenet")

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


def resets() -> str:
    """Table 1 of paper 001."""
    found = figures("streams").get("resets", {})
    rows = [[k, beside(row["accuracy"], papers.RESETS.get(k), 1, 100)] for k, row in found.items()]
    return markdown(["steps between resets", "accuracy, % (paper)"], rows)


def margins(table: str = "streams-margins") -> str:
    """Table 3 of paper 001."""
    found = figures(table).get("margins", {})
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


def certificates() -> str:
    """Table 1 of paper 002."""
    rows = []
    for recipe, paper in papers.CERTIFICATES.items():
        found = figures(f"certificates-{recipe.replace('+', '-')}")
        if "clean" in found:
            common, groups = found.get("common", {}), found.get("common", {}).get("groups", {})
            ours = [found["clean"]["acr"], common.get("macr"), *(groups.get(band) for band in ("low", "mid", "high"))]
            ours.append(found.get("bar", {}).get("macr"))
            cells = [beside(mine, theirs) for mine, theirs in zip(ours, paper, strict=True)]
            rows.append([recipe, *cells, shown(found.get("spectrum", {}).get("CIFAR-10-F"))])
    return markdown(["recipe", "clean ACR", "mACR, C", "low", "mid", "high", "mACR, C-bar", "mACR, F"], rows)


def waves() -> str:
    """Return the heat maps of paper 002, by band."""
    rows = []
    for recipe in papers.CERTIFICATES:
        found = figures(f"certificates-{recipe.replace('+', '-')}").get("spectrum")
        if found:
            rows.append(
                [recipe, shown(found["clean"]), *(shown(found["bands"][band]) for band in ("low", "mid", "high"))]
            )
    return markdown(["recipe", "clean", "low waves", "mid", "high"], rows)


def heat_maps() -> str | None:
    """Return the heat maps of paper 002 as a picture; None where none was measured."""
    found = {
        recipe: figures(f"certificates-{recipe.replace('+', '-')}").get("spectrum") for recipe in papers.CERTIFICATES
    }
    maps = {recipe: spectrum["waves"] for recipe, spectrum in found.items() if spectrum}
    title = "Average certified radius under a wave of L2 norm 4, by cycles across and down; no cycles in the middle"
    return drawing(maps, title) if maps else None


def named() -> str:
    """Return the networks that come with the package."""
    rows = [
        [
            f"`{name}`",
            found["training"]["recipe"],
            shown(found["measured"]["clean"]["acr"]),
            f"{found['measured']['clean']['images']}, {found['measured']['clean']['n']:,}",
            shown(found["measured"].get("mACR on CIFAR-10-C")),
            shown(found["measured"].get("mACR on CIFAR-10-C-bar")),
        ]
        for name, found in cards().items()
    ]
    return markdown(["name", "recipe", "clean ACR", "images, n", "mACR, C", "mACR, C-bar"], rows)


def worst_case(
    task: str, paper: Mapping[str, Mapping[str, float]], tests: Mapping[str, Callable[[Any], float | None]]
) -> str:
    """Tables 1, 3, 4 and 5 of paper 003: a row per test, a column per recipe."""
    recipes = ("erm", "rda", "rsda", "esda", "rda-mixed", "rsda-mixed", "esda-mixed")
    found = {recipe: figures(f"worst-case-{task}-{recipe}") for recipe in recipes}
    found = {recipe: some for recipe, some in found.items() if some}
    if not found:
        return MISSING
    rows = [
        [test, *(beside(read(some), paper.get(test, {}).get(recipe)) for recipe, some in found.items())]
        for test, read in tests.items()
    ]
    return markdown(["test", *(recipe.replace("-", ", ") for recipe in found)], rows)


def _searched(name: str, value: str = "worst") -> Callable[[Any], float | None]:
    return lambda found: found.get(name, {}).get(value)


def _accuracy(name: str) -> Callable[[Any], float | None]:
    return lambda found: found.get("accuracy", {}).get(name)


def mnist() -> str:
    """Tables 1 and 3 of paper 003."""
    tests = {"original": _accuracy("original"), "RS": _searched("RS"), "ES": _searched("ES")}
    tests |= {"ES, as published": _searched("ES, as published")}
    return worst_case("mnist", papers.MNIST, {**tests, "negative": _accuracy("negative"), "USPS": _accuracy("USPS")})


def cifar() -> str:
    """Table 4 of paper 003."""
    tests = {"original": _accuracy("original"), "RS": _searched("RS"), "ES": _searched("ES")}
    tests |= {"ES, as published": _searched("ES, as published")}
    return worst_case("cifar", papers.CIFAR, {**tests, "ImageNet as CIFAR-10": _accuracy("ImageNet as CIFAR-10")})


def camvid() -> str:
    """Table 5 of paper 003."""
    tests = {"original": _searched("RS", "clean"), "RS": _searched("RS"), "ES": _searched("ES")}
    return worst_case("camvid", papers.CAMVID, tests)


def faces() -> str:
    """Table 6 of paper 003."""
    found = figures("worst-case-faces")
    first = next(iter(found.values()), None)
    rows = [] if first is None else [["original", beside(first["clean"], papers.FACES["original"])]]
    rows += [[name, beside(row["worst"], papers.FACES.get(name))] for name, row in found.items()]
    return markdown(["test", "faces found (paper)"], rows)


def estimation(part: str, paper: Mapping[str, Sequence[float | None]]) -> str:
    """Table 2b of paper 004."""
    scores = figures(f"estimation-{part}").get("scores", {})
    names = ("r_squared", "mae", "macro_tau", "id_tau", "arch_tau")
    rows = []
    for measure, row in scores.items():
        theirs = paper.get(measure, (None,) * len(names))
        means = [row.get(name, {}).get("mean") for name in names]
        cells = [
            beside(mean, value, 2 if name == "mae" else 3)
            for mean, value, name in zip(means, theirs, names, strict=True)
        ]
        rows.append([measure, *cells])
    return markdown(["measure", "R2", "MAE", "macro tau", "ID tau", "arch tau"], rows)


def costs() -> str:
    """Return what every figure cost, with what was cut."""
    rows = []
    for path in sorted(FIGURES.rglob("*.json")):
        found = json.loads(path.read_text())
        name = path.relative_to(FIGURES).with_suffix("").as_posix()
        cells = [f"`{name}`", found["device"], f"{found['seconds'] / 60:.1f}", str(found["seed"]), found["commit"]]
        rows.append([*cells, "; ".join(found["cut"])])
    return markdown(["figures", "device", "minutes", "seed", "commit", "cut"], rows)


TABLES: dict[str, Callable[[], str]] = {
    "adaptation": adaptation,
    "regression": regression,
    "linearity": linearity,
    "grid": grid,
    "streams": streams,
    "ccc": ccc,
    "imagenet": imagenet,
    "resets": resets,
    "margins": margins,
    "margins-cin-c": lambda: margins("streams-margins-cin-c"),
    "certificates": certificates,
    "waves": waves,
    "named": named,
    "mnist": mnist,
    "cifar": cifar,
    "camvid": camvid,
    "faces": faces,
    "estimation-cifar": lambda: estimation("cifar", papers.CI10),
    "estimation-digits": lambda: estimation("digits", papers.NUMBERS),
    "costs": costs,
}
"""Mark -> the table between it and its end."""


if __name__ == "__main__":
    sys.exit(main())
