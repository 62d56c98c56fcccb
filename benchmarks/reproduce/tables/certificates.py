"""Sun et al. 2022: certified radii by recipe, with the n that caps them, and the networks kept of them."""

from __future__ import annotations

from typing import Any

from benchmarks.reproduce import papers
from benchmarks.reproduce.certificates_table import SIGMA, SIZES
from benchmarks.reproduce.markdown import beside, markdown, shown
from benchmarks.reproduce.tables.files import Files, figures
from shiftproof.certificates.rules import make_rule
from shiftproof.models.named import cards


def certified(files: Files, recipe: str) -> dict[str, Any]:
    """Return the figures of a recipe's certificates."""
    return figures(files, f"certificates-{recipe.replace('+', '-')}")


def certificates(files: Files) -> str:
    """Table 1 of paper 002; above it how many samples each column has, and the largest radius they can show."""
    rows: list[list[str]] = []
    for recipe, paper in papers.CERTIFICATES.items():
        found = certified(files, recipe)
        if "clean" in found:
            rows = rows or _samples(found)
            common, groups = found.get("common", {}), found.get("common", {}).get("groups", {})
            ours = [found["clean"]["acr"], common.get("macr"), *(groups.get(band) for band in ("low", "mid", "high"))]
            ours.append(found.get("bar", {}).get("macr"))
            cells = [beside(mine, theirs) for mine, theirs in zip(ours, paper, strict=True)]
            rows.append([recipe, *cells, shown(found.get("spectrum", {}).get("CIFAR-10-F"))])
    return markdown(["recipe", "clean ACR", "mACR, C", "low", "mid", "high", "mACR, C-bar", "mACR, F"], rows)


def _samples(found: dict[str, Any]) -> list[list[str]]:
    """Return the rows of n and of the largest radius it can show, by column, beside the paper's where it has one."""
    clean = found["clean"]["n"]
    shifted = next((row["n"] for row in found.get("common", {}).get("corruptions", {}).values()), clean)
    counts = [clean, *[shifted] * 5]
    waved = found.get("spectrum", {}).get("n", SIZES["short"]["waves"]["n"])
    largest = {n: make_rule("sequential", sigma=SIGMA, n=n).reach for n in (*counts, waved)}
    theirs = make_rule("fixed", sigma=SIGMA, n=papers.CERTIFICATES_N).reach
    return [
        ["*n*", *(f"{n:,} ({papers.CERTIFICATES_N:,})" for n in counts), f"{waved:,}"],
        ["*largest radius*", *(beside(largest[n], theirs) for n in counts), shown(largest[waved])],
    ]


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
        if "clean" in found["measured"]  # those for certificates
    ]
    return markdown(["name", "recipe", "clean ACR", "images, n", "mACR, C", "mACR, C-bar"], rows)
