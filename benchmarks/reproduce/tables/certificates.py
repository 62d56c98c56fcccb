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
    """C-bar and noise by frequency of table 1 of paper 002; above it n of each column, and the radius it can show."""
    rows: list[list[str]] = []
    for recipe, paper in papers.CERTIFICATES.items():
        found = certified(files, recipe)
        if "bar" in found:
            rows = rows or _samples(found)
            cells = [beside(found["bar"]["macr"], paper[-1]), shown(found.get("spectrum", {}).get("CIFAR-10-F"))]
            rows.append([recipe, *cells])
    return markdown(["recipe", "mACR, C-bar", "mACR, F"], rows)


def _samples(found: dict[str, Any]) -> list[list[str]]:
    """Return the rows of n and of the largest radius it can show, by column, beside the paper's where it has one."""
    shifted = next(row["n"] for row in found["bar"]["corruptions"].values())
    waved = found.get("spectrum", {}).get("n", SIZES["short"]["waves"]["n"])
    largest = {n: make_rule("sequential", sigma=SIGMA, n=n).reach for n in (shifted, waved)}
    theirs = make_rule("fixed", sigma=SIGMA, n=papers.CERTIFICATES_N).reach
    return [
        ["*n*", f"{shifted:,} ({papers.CERTIFICATES_N:,})", f"{waved:,}"],
        ["*largest radius*", beside(largest[shifted], theirs), shown(largest[waved])],
    ]


COLUMNS = {
    "clean": "clean ACR", "common": "mACR, C", "low": "low", "mid": "mid", "high": "high", "bar": "mACR, C-bar",
}  # fmt: skip


def equal(files: Files) -> str:
    """Table 1 of paper 002 with the same n in every column, with intervals over images, beside the paper's."""
    found = figures(files, "certificates-equal-n").get("equal", {}).get("recipes", {})
    known = [name for name in COLUMNS if all(name in row for row in found.values())]
    theirs = {recipe: dict(zip(COLUMNS, row, strict=True)) for recipe, row in papers.CERTIFICATES.items()}
    rows = [[recipe, *(_radius(row[name], theirs[recipe][name]) for name in known)] for recipe, row in found.items()]
    return markdown(["recipe", *(COLUMNS[name] for name in known)], rows)


def _radius(found: dict[str, Any] | None, paper: float | None) -> str:
    if found is None:
        return ""
    reach = found["interval"]
    told = f", {reach[0]:.3f} to {reach[1]:.3f}" if reach else ""
    return f"{found['acr']:.3f}{told}" + ("" if paper is None else f" ({paper:.3f})")


def deep(files: Files) -> str:
    """Clean radii at the paper's n beside those of the same images at the smaller n."""
    found = figures(files, "certificates-equal-n")
    rows = []
    for recipe, row in found.get("clean", {}).get("recipes", {}).items():
        before = row.get("equal")
        more = "" if before is None else f"{row['deep']['acr'] - before['acr']:+.3f}"
        rows.append([recipe, _radius(row["deep"], papers.CERTIFICATES[recipe][0]), _radius(before, None), more])
    smaller, larger = (found.get(part, {}).get("n", 0) for part in ("equal", "clean"))
    images = next((row["deep"]["images"] for row in found.get("clean", {}).get("recipes", {}).values()), 0)
    head = ["recipe", f"clean ACR, {images} images, n = {larger:,}", f"the same images, n = {smaller:,}", "difference"]
    return markdown(head, rows)


def differences(files: Files) -> str:
    """Where FourierMix with HCR differs from plain noise with JSD."""
    found = figures(files, "certificates-equal-n").get("differences", {})
    rows = []
    for name, called in COLUMNS.items():
        row = found.get(name)
        if row:
            reach = row["interval"]
            told = f"{row['difference']:+.3f}" + (f" ({reach[0]:+.3f} to {reach[1]:+.3f})" if reach else "")
            shares, capped = (
                " → ".join(f"{100 * share:.1f}" for share in row[name]) for name in ("certified", "at the largest")
            )
            depths = " → ".join(f"{depth:.3f}" for depth in row["radius of those"])
            parts = [f"{row[part]:+.3f}" for part in ("by more images", "by larger radii")]
            rows.append([called.removesuffix(" ACR"), told, shares, parts[0], depths, parts[1], capped])
    head = [
        "images",
        "ACR difference",
        "certified, %",
        "contribution",
        "mean certified radius",
        "contribution",
        "at the largest radius, %",
    ]
    return markdown(head, rows)


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
