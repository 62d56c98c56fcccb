"""Sun et al. 2022: certified radii by recipe, and the networks kept of them."""

from __future__ import annotations

from typing import Any

from benchmarks.reproduce import papers
from benchmarks.reproduce.markdown import beside, markdown, shown
from benchmarks.reproduce.tables.files import Files, figures
from shiftproof.models.named import cards


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
