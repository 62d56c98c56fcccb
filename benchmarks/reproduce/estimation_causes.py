"""Why NI-RandAug is hardly ahead of ATC-MC on CIFAR-10 here: small networks, by strength of shift and by training.

    python -m benchmarks.reproduce.estimation_causes --data data

Convolutional networks with batch normalisation, their settings drawn from the grid of `estimation_table.py`, are
trained twice, for few epochs and for many, with all else equal. They are tested on six corruptions at three severities
and on ImageNet's images. What is told of either pool: how well both measures rank its networks by strength of shift,
with intervals over networks, and whether groups as small as those of `estimation_table.py` change it. On one
domain all transformations of figure 5 of Ng et al. 2023 are measured, with the entropy they add to outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from benchmarks.estimate_pool import Bench, recipe
from benchmarks.image_domains import STRENGTHS, Domains, severity_domains
from benchmarks.pool import train_pool
from benchmarks.rank_intervals import standing
from benchmarks.reproduce.record import Figures, options_of
from shiftproof.estimators.neighborhoods import NEIGHBORHOODS
from shiftproof.measures.estimation import kendall_tau
from shiftproof.runs import Cell, Row

SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"models": 3, "images": 100, "test_images": 20, "views": 1, "epochs": (1, 2)},
    "sample": {"models": 8, "images": 500, "test_images": 100, "views": 2, "epochs": (2, 6)},
    "short": {"models": 30, "images": 2_000, "test_images": 400, "views": 3, "epochs": (5, 20)},
}
RANKED, REFERENCE = "NI-RandAug", "ATC-MC"
COMPARED = "jpeg_compression@3"
"""The domain on which all transformations are measured, of the networks trained for long."""
GROUP, GROUPS = 6, 1000
"""Networks of a small group, as many as `estimation_table.py` has of one architecture and domain, and groups drawn."""


def main() -> None:
    """Train and measure both pools, or what is left of them, and write what they tell."""
    options = options_of(__doc__, tuple(SIZES))
    size = SIZES[options.size]
    short, long = size["epochs"]
    cut = [
        f"{size['models']} networks of one architecture with 8 to 24 channels, each trained for {short} and for {long} "
        f"epochs on {size['images']:,} images (paper: four architectures, all images, until they are fitted)",
        f"{size['test_images']:,} test images per domain, {size['views']} views each (paper: 10)",
    ]
    figures = Figures("estimation-cifar-causes", options, cut)
    data, out = options.data, options.runs / figures.name
    domains = severity_domains(
        str(data / "cifar10/train.npz"),
        str(data / "cifar10/test.npz"),
        str(data / "imagenet-as-cifar10.npz"),
        images=size["images"],
        test_images=size["test_images"],
        out=out / "domains",
        device=options.device,
        seed=options.seed,
    )
    others = {name: name for name in NEIGHBORHOODS if name != "randaugment"}
    for epochs, more in ((short, {}), (long, {COMPARED: others})):
        bench = Bench(
            domains,
            size["views"],
            options.device,
            options.seed,
            figures.stop_at,
            near={"RandAug": "randaugment"},
            more=more,
        )
        cells = cells_of(domains, size["models"], epochs, options.seed)
        prints = {**domains.prints(), "views": str(size["views"])}
        rows = train_pool(cells, bench, prints, out=out / str(epochs), workers=options.workers)
        figures.add(f"{epochs} epochs", findings([row for _, row in rows], tuple(domains.test)))


def cells_of(domains: Domains, models: int, epochs: int, seed: int) -> list[Cell]:
    """Return the networks, whose settings but for the epochs depend on their number alone."""
    recipes = (recipe(number, domains, seed=seed, epochs=1) for number in range(models))
    return [Cell("pool", **{**one, "epochs": epochs}) for one in recipes]


def strengths(tests: Sequence[str]) -> dict[str, list[str]]:
    """Return test domains by how strong their shift is."""
    by_severity = {f"severity {level}": [test for test in tests if test.endswith(f"@{level}")] for level in STRENGTHS}
    found = {"no shift": ["clean"], **by_severity, "natural": ["natural"]}
    found["all corruptions"] = [test for some in by_severity.values() for test in some]
    return {name: some for name, some in found.items() if set(some) <= set(tests)}


def findings(found: Sequence[Row], tests: Sequence[str]) -> dict[str, Any]:
    """Return what one pool tells: accuracies, taus by strength of shift, those of small groups, and figure 5."""
    groups = strengths(tests)
    return {
        "networks": len(found),
        "training accuracy": float(np.mean([cast(float, row["training_accuracy"]) for row in found])),
        "by strength": {
            name: {
                **_accuracies(found, some),
                "tau": standing(found, some, (RANKED, REFERENCE), REFERENCE),
            }
            for name, some in groups.items()
        },
        "small groups": small_groups(found, groups["all corruptions"]),
        "transformations": transformations(found, COMPARED),
    }


def _accuracies(rows: Sequence[Row], tests: Sequence[str]) -> dict[str, float]:
    """Return the mean accuracy and the deviation of networks on a domain, mean over domains, in points."""
    values = np.array([[100 * _domain(row, test)["accuracy"] for row in rows] for test in tests])
    return {"accuracy": float(values.mean()), "spread": float(values.std(axis=1, ddof=1).mean())}


def small_groups(rows: Sequence[Row], tests: Sequence[str], seed: int = 0) -> dict[str, dict[str, float]]:
    """Return the mean and the deviation of tau of a few networks on a domain, both drawn anew for every group."""
    rng, size = np.random.default_rng(seed), min(GROUP, len(rows))
    drawn = [(rng.permutation(len(rows))[:size], tests[int(rng.integers(len(tests)))]) for _ in range(GROUPS)]
    found = {}
    for measure in (RANKED, REFERENCE):
        known = [
            kendall_tau(
                [_domain(rows[place], test)["measures"][measure] for place in places],
                [_domain(rows[place], test)["accuracy"] for place in places],
            )
            for places, test in drawn
        ]
        taus = [tau for tau in known if tau is not None]
        found[measure] = {"mean": float(np.mean(taus)), "std": float(np.std(taus))}
    return found


def transformations(rows: Sequence[Row], test: str) -> dict[str, dict[str, float]]:
    """Return tau of invariance and the entropy that views add to outputs, by transformation (figure 5)."""
    names = list(_domain(rows[0], test)["entropy differences"])
    taus = standing(rows, [test], [f"NI-{name}" for name in names], f"NI-{names[0]}")
    return {
        name: {
            **{key: value for key, value in taus[f"NI-{name}"].items() if not key.startswith("ahead")},
            "entropy": float(np.mean([_domain(row, test)["entropy differences"][name] for row in rows])),
        }
        for name in names
    }


def _domain(row: Row, test: str) -> dict[str, Any]:
    found: dict[str, Any] = cast("dict[str, Any]", row["domains"])[test]
    return found


if __name__ == "__main__":
    main()
