"""Ng et al. 2023, table 2b: which measure tells the accuracy of models on other domains without labels.

    python -m benchmarks.reproduce.estimation_table --data data --part cifar --workers 10 --device cuda

CI10: a pool of CIFAR-10 networks of four architectures, trained on the images as they are, at low contrast or blurred,
and tested on those, on six corruptions and on ImageNet's images of the same classes. Numbers: networks trained on
MNIST, USPS or MNIST in random colours, tested on each other's. Table 2c, of texts, is `text_table.py`.
"""

from __future__ import annotations

from typing import Any

from benchmarks.estimate_pool import CONVERGED, run_pool
from benchmarks.image_domains import cifar_domains, digit_domains
from benchmarks.pool import as_json, records
from benchmarks.reproduce.record import Figures, options_of
from shiftproof.estimators.protocol import PoolRecord, evaluate

SIZES = {
    "tiny": {"models": 6, "images": 200, "test_images": 40, "views": 1, "epochs": 1},
    "sample": {"models": 12, "images": 1_000, "test_images": 200, "views": 2, "epochs": 4},
    "short": {"models": 96, "images": 20_000, "test_images": 1_500, "views": 10, "epochs": 32},
}
DIGITS = {"models": 36, "images": 10_000, "epochs": 8}
"""What differs for digits, at the size `short`."""


def main() -> None:
    """Train and measure one pool, or what is left of it, and write its scores."""
    parts = {"choices": ("cifar", "digits"), "default": "cifar"}
    options = options_of(__doc__, tuple(SIZES), part=parts)
    size = {**SIZES[options.size], **(DIGITS if options.part == "digits" and options.size == "short" else {})}
    cut = [
        f"{size['models']} networks trained for at most {size['epochs']} epochs on {size['images']:,} images (paper: "
        "all images, until they are fitted)",
        f"{size['test_images']:,} test images per domain, {size['views']} views each",
        f"networks with a training accuracy below {CONVERGED:.0%} are excluded (paper: about 99%)",
    ]
    figures = Figures(f"estimation-{options.part}", options, cut)
    data, out = options.data, options.runs / figures.name
    made: dict[str, Any] = {
        "images": size["images"],
        "test_images": size["test_images"],
        "out": out / "domains",
        "device": options.device,
        "seed": options.seed,
    }
    if options.part == "cifar":
        train, test = (str(data / f"cifar10/{part}.npz") for part in ("train", "test"))
        domains = cifar_domains(train, test, str(data / "imagenet-as-cifar10.npz"), **made)
    else:
        mnist = (str(data / "mnist/train.npz"), str(data / "mnist/test.npz"))
        domains = digit_domains(mnist, str(data / "usps.npz"), **made)
    rows = run_pool(
        domains,
        models=size["models"],
        views=size["views"],
        epochs=size["epochs"],
        device=options.device,
        seed=options.seed,
        out=out,
        workers=options.workers,
        stop_at=figures.stop_at,
        converged=CONVERGED if options.size == "short" else 0.0,
    )
    table = list(records(rows))
    figures.add("networks", {"kept": len(rows), "planned": size["models"]})
    figures.add("training domains", sorted({record.train for record in table}))
    figures.add("accuracies", _accuracies(table))
    figures.add("scores", as_json(evaluate(table)))


def _accuracies(table: list[PoolRecord]) -> dict[str, list[float]]:
    """Return the lowest, the mean and the highest accuracy on every test domain, of networks from other domains."""
    found: dict[str, dict[str, float]] = {}
    for record in table:
        if record.train != record.test:
            found.setdefault(record.test, {})[record.model] = record.accuracy
    return {
        test: [round(value, 4) for value in (min(some.values()), sum(some.values()) / len(some), max(some.values()))]
        for test, some in found.items()
    }


if __name__ == "__main__":
    main()
