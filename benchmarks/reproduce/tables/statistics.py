"""Schneider et al. 2020: errors with adapted statistics, how they follow distances, and the best prior."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.reproduce import papers
from benchmarks.reproduce.markdown import MISSING, beside, markdown, shown
from benchmarks.reproduce.tables.files import Files, figures

NETWORKS = {
    "resnet20": "ResNet-20, CIFAR-10-C",
    "resnet56": "ResNet-56, CIFAR-10-C",
    "imagenet-efficientnet_lite0": "EfficientNet-Lite0, ImageNet-C",
    "imagenet-resnet50": "ResNet-50, ImageNet-C",
}

NORMS = {
    "resnet20-batch": "ResNet-20, batch normalisation",
    "resnet20-group": "ResNet-20, group normalisation",
    "vit": "small transformer, layer normalisation",
}


def adaptation(files: Files) -> str:
    """Table 1 of paper 000."""
    rows = []
    for part, name in NETWORKS.items():
        found = figures(files, f"statistics-{part}").get("adaptation", {})
        if found:
            ways = [found.get(way, {}) for way in ("without", "partial", "full")]
            errors = [_error(way) for way in ways]
            itself = {} if part.startswith("imagenet") else {"mce": 100.0}  # what the ratio is to
            rows.append([name, *errors, *(shown(way.get("mce"), 1) for way in ({**ways[0], **itself}, *ways[1:]))])
    rows.append(["paper: ResNet-50, ImageNet-C", *papers.ADAPTATION])
    head = ["network", "error, %: unadapted", "partial", "full", "mCE: unadapted", "partial", "full"]
    return markdown(head, rows)


def norms(files: Files) -> str:
    """Networks that have no statistics of batches to adapt, beside one that has."""
    rows = []
    for part, name in NORMS.items():
        found = figures(files, f"statistics-{part}")
        if found:
            ways = found.get("adaptation", {})
            rows.append(
                [name, _error(found.get("clean", {})), *(_way(ways, way) for way in ("without", "partial", "full"))]
            )
    return markdown(["network", "clean error, %", "under corruption: unadapted", "partial", "full"], rows)


def _way(ways: Mapping[str, Any], name: str) -> str:
    """Return the error of a way of adapting, nothing where a network has none."""
    return _error(ways[name]) if name in ways else ""


def _error(way: Mapping[str, Any]) -> str:
    reach = way.get("interval")
    told = f" ({100 * reach[0]:.1f} to {100 * reach[1]:.1f})" if reach else ""
    return shown(way.get("error"), 1, 100) + told


def mixture(files: Files) -> str:
    """Full adaptation to batches of one corruption, and to batches of all of them."""
    rows = []
    for part, name in NETWORKS.items():
        found = figures(files, f"statistics-{part}")
        if "mixture" in found:
            mixed, apart = found["mixture"], found["adaptation"]
            ours = (apart["without"], apart["full"], mixed["without"], mixed["full"])
            rows.append([name, *map(_error, ours)])
    head = ["network", "one corruption per batch: unadapted", "adapted", "mixed batches: unadapted", "adapted"]
    return markdown(head, rows)


def priors(files: Files) -> str:
    """Errors under hold-out corruptions in batches of eight, by prior."""
    found = {name: figures(files, f"statistics-{part}").get("prior") for part, name in NETWORKS.items()}
    known = {name: each for name, each in found.items() if each}
    if not known:
        return MISSING
    held = list(next(iter(known.values()))["errors"])
    rows = [
        [name, *(shown(each["errors"][prior], 1, 100) for prior in held), str(each["chosen"])]
        for name, each in known.items()
    ]
    return markdown(["network", *(f"N = {prior}" for prior in held), "chosen"], rows)


def regression(files: Files) -> str:
    """Table 11 of paper 000, with the paper's network and with a small one."""
    rows = []
    for part, network in (("imagenet-resnet50", "ResNet-50"), ("resnet20", "ResNet-20")):
        ours = figures(files, f"statistics-{part}").get("hold-out regression", {})
        for category, theirs in papers.REGRESSION.items():
            row = ours.get(category)
            if row:
                numbers = [100 * row[name] for name in ("true", "predicted", "mean absolute difference")]
                told = theirs if network == "ResNet-50" else (None, None, None)
                rows.append([f"{network}, {category}", *(beside(*pair, 1) for pair in zip(numbers, told, strict=True))])
    return markdown(["network, category", "true error, %", "predicted, %", "mean absolute difference, points"], rows)


def linearity(files: Files) -> str:
    """Error against distance, paper 000."""
    rows = []
    for part, called in NETWORKS.items():
        name = called.partition(",")[0]
        found = figures(files, f"statistics-{part}").get("distances")
        if found:
            rows.append([name, shown(found["r_squared"], 2), shown(found["slope"], 3)])
    return markdown(["network", "R2 over 75 corruptions", "error per unit of distance"], rows)


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
    measured = [[n, *(shown(row[prior], 1, 100) for prior in priors)] for n, row in errors.items()]
    best = [[n, *(_number(found["best prior"][n][name]) for name in BEST)] for n in errors]
    tables = [
        markdown(["n", *(f"N = {prior}" for prior in priors[:WIDTH])], [row[: WIDTH + 1] for row in measured]),
        markdown(
            ["n", *(f"N = {prior}" for prior in priors[WIDTH:])], [[row[0], *row[WIDTH + 1 :]] for row in measured]
        ),
        markdown(["n", *(f"best N, {name}" for name in BEST)], best),
    ]
    return "\n\n".join(tables)


WIDTH = 5
"""Priors in a table: all of them side by side are wider than a page."""
BEST = ("measured", "lower bound", "upper bound")


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"
