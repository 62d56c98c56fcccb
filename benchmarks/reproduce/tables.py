"""The tables of docs/reproduction.md: one function for each, from the files of figures to Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from benchmarks.reproduce import papers
from benchmarks.reproduce.markdown import MISSING, beside, markdown, shown
from shiftproof.models.named import cards

Files: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Name -> what a file of figures holds: the figures themselves, and where they come from."""


def figures(files: Files, name: str) -> dict[str, Any]:
    """Return the figures of a table; none where it was not run."""
    found: dict[str, Any] = files[name]["figures"] if name in files else {}
    return found


def adaptation(files: Files) -> str:
    """Table 1 of paper 000."""
    rows = []
    for part, name in (
        ("resnet20", "ResNet-20, CIFAR-10-C"),
        ("resnet56", "ResNet-56, CIFAR-10-C"),
        ("imagenet-efficientnet_lite0", "EfficientNet-Lite0, ImageNet-C"),
        ("imagenet-resnet50", "ResNet-50, ImageNet-C"),
    ):
        found = figures(files, f"statistics-{part}").get("adaptation", {})
        if found:
            ways = [found.get(way, {}) for way in ("without", "partial", "full")]
            errors = [shown(way.get("error"), 1, 100) for way in ways]
            itself = {} if part.startswith("imagenet") else {"mce": 100.0}  # what the ratio is to
            rows.append([name, *errors, *(shown(way.get("mce"), 1) for way in ({**ways[0], **itself}, *ways[1:]))])
    rows.append(["paper: ResNet-50, ImageNet-C", *papers.ADAPTATION])
    head = ["network", "error, %, without", "partial", "full", "mCE, without", "partial", "full"]
    return markdown(head, rows)


def regression(files: Files) -> str:
    """Table 11 of paper 000."""
    ours = figures(files, "statistics-resnet20").get("hold-out regression", {})
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


def linearity(files: Files) -> str:
    """Error against distance, paper 000."""
    rows = []
    for part, name in (("resnet20", "ResNet-20"), ("resnet56", "ResNet-56")):
        found = figures(files, f"statistics-{part}").get("distances")
        if found:
            rows.append([name, shown(found["r_squared"], 2), shown(found["slope"], 3)])
    return markdown(["network", "R2 of a line through the 75 corruptions", "error per unit of distance"], rows)


def grid(files: Files) -> str:
    """Table 12 of paper 000."""
    parts = [figures(files, f"statistics-{part}") for part in ("single", "grid")]
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


def certified(files: Files, recipe: str) -> dict[str, Any]:
    """Return the figures of a recipe's certificates."""
    return figures(files, f"certificates-{recipe.replace('+', '-')}")


def certificates(files: Files) -> str:
    """Table 1 of paper 002."""
    rows = []
    for recipe, paper in papers.CERTIFICATES.items():
        found = certified(files, recipe)
        if "clean" in found:
            common, groups = found.get("common", {}), found.get("common", {}).get("groups", {})
            ours = [found["clean"]["acr"], common.get("macr"), *(groups.get(band) for band in ("low", "mid", "high"))]
            ours.append(found.get("bar", {}).get("macr"))
            cells = [beside(mine, theirs) for mine, theirs in zip(ours, paper, strict=True)]
            rows.append([recipe, *cells, shown(found.get("spectrum", {}).get("CIFAR-10-F"))])
    return markdown(["recipe", "clean ACR", "mACR, C", "low", "mid", "high", "mACR, C-bar", "mACR, F"], rows)


def waves(files: Files) -> str:
    """Return the heat maps of paper 002, by band."""
    rows = []
    for recipe in papers.CERTIFICATES:
        found = certified(files, recipe).get("spectrum")
        if found:
            rows.append(
                [recipe, shown(found["clean"]), *(shown(found["bands"][band]) for band in ("low", "mid", "high"))]
            )
    return markdown(["recipe", "clean", "low waves", "mid", "high"], rows)


def named(_: Files) -> str:
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
    files: Files,
    task: str,
    paper: Mapping[str, Mapping[str, float]],
    tests: Mapping[str, Callable[[Any], float | None]],
) -> str:
    """Tables 1, 3, 4 and 5 of paper 003: a row per test, a column per recipe."""
    recipes = ("erm", "rda", "rsda", "esda", "rda-mixed", "rsda-mixed", "esda-mixed")
    found = {recipe: figures(files, f"worst-case-{task}-{recipe}") for recipe in recipes}
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


SEARCHED = {"original": _accuracy("original")} | {name: _searched(name) for name in ("RS", "ES", "ES, as published")}


def mnist(files: Files) -> str:
    """Tables 1 and 3 of paper 003."""
    others = {name: _accuracy(name) for name in ("negative", "USPS")}
    return worst_case(files, "mnist", papers.MNIST, {**SEARCHED, **others})


def cifar(files: Files) -> str:
    """Table 4 of paper 003."""
    other = "ImageNet as CIFAR-10"
    return worst_case(files, "cifar", papers.CIFAR, {**SEARCHED, other: _accuracy(other)})


def camvid(files: Files) -> str:
    """Table 5 of paper 003."""
    tests = {"original": _searched("RS", "clean"), "RS": _searched("RS"), "ES": _searched("ES")}
    return worst_case(files, "camvid", papers.CAMVID, tests)


def faces(files: Files) -> str:
    """Table 6 of paper 003."""
    found = figures(files, "worst-case-faces")
    first = next(iter(found.values()), None)
    rows = [] if first is None else [["original", beside(first["clean"], papers.FACES["original"])]]
    rows += [[name, beside(row["worst"], papers.FACES.get(name))] for name, row in found.items()]
    return markdown(["test", "faces found (paper)"], rows)


def estimation(files: Files, part: str, paper: Mapping[str, Sequence[float | None]]) -> str:
    """Table 2b of paper 004."""
    scores = figures(files, f"estimation-{part}").get("scores", {})
    names = ("r_squared", "squared_correlation", "mae", "macro_tau", "id_tau", "arch_tau")
    rows = []
    for measure, row in scores.items():
        theirs = (None, *paper.get(measure, (None,) * (len(names) - 1)))  # whose R2 is a squared correlation
        means = [row.get(name, {}).get("mean") for name in names]
        cells = [
            beside(mean, value, 2 if name == "mae" else 3)
            for mean, value, name in zip(means, theirs, names, strict=True)
        ]
        rows.append([measure, *cells])
    return markdown(["measure", "R2", "r2", "MAE", "macro tau", "ID tau", "arch tau"], rows)


def costs(files: Files) -> str:
    """Return what every figure cost, with what was cut."""
    rows = []
    for name, found in files.items():
        cells = [f"`{name}`", found["device"], f"{found['seconds'] / 60:.1f}", str(found["seed"]), found["commit"]]
        rows.append([*cells, "; ".join(found["cut"])])
    return markdown(["figures", "device", "minutes", "seed", "commit", "cut"], rows)


TABLES: dict[str, Callable[[Files], str]] = {
    "adaptation": adaptation,
    "regression": regression,
    "linearity": linearity,
    "grid": grid,
    "streams": streams,
    "ccc": ccc,
    "imagenet": imagenet,
    "resets": resets,
    "margins": margins,
    "margins-cin-c": lambda files: margins(files, "streams-margins-cin-c"),
    "certificates": certificates,
    "waves": waves,
    "named": named,
    "mnist": mnist,
    "cifar": cifar,
    "camvid": camvid,
    "faces": faces,
    "estimation-cifar": lambda files: estimation(files, "cifar", papers.CI10),
    "estimation-digits": lambda files: estimation(files, "digits", papers.NUMBERS),
    "costs": costs,
}
"""Mark -> the table between it and its end."""
