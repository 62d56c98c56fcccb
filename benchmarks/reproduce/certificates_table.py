"""Sun et al. 2022, table 1: certified radii under common corruptions, by recipe of training.

    python -m benchmarks.reproduce.certificates_table --data data --part fouriermix+hcr --device cuda

Trains a network by one recipe with noise 0.25, certifies it on clean images, on the fifteen corruptions of CIFAR-10-C
(by group of frequencies), on the ten of C-bar, and on noise of chosen frequencies (CIFAR-10-F), and measures the map of
its sensitivity to waves.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import shiftproof
from benchmarks.reproduce.record import Figures, options_of
from shiftproof import shifts
from shiftproof.certificates import spectrum

RECIPES = ("gaussian", "gaussian+jsd", "augmix+jsd", "fouriermix+jsd", "fouriermix+hcr")
SIGMA = 0.25
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {
        "model": "convnet", "train": 100, "epochs": 1, "images": 4, "n": 100, "shifted": 2, "shifted_n": 100,
        "severity": 3, "corruptions": 2, "waves": {"images": 2, "n": 100, "step": 16, "alphas": (1.0,)},
    },
    "sample": {
        "model": "convnet", "train": 2_000, "epochs": 3, "images": 20, "n": 200, "shifted": 10, "shifted_n": 200,
        "severity": 3, "corruptions": 4, "waves": {"images": 4, "n": 100, "step": 16, "alphas": (1.0,)},
    },
    "short": {
        "model": "resnet20", "train": 50_000, "epochs": 80, "images": 500, "n": 10_000, "shifted": 200,
        "shifted_n": 1_000, "severity": 3, "corruptions": 15,
        "waves": {"images": 48, "n": 300, "step": 2, "alphas": (0.5, 1.0, 2.0)},
    },
}  # fmt: skip
TRAINING: dict[str, Any] = {"batch_size": 512, "lr": 0.2, "warmup": 0.5, "schedule": "cosine"}


def main() -> None:
    """Train and certify one recipe, or what is left of it, and write its figures."""
    options = options_of(__doc__, tuple(SIZES), part={"choices": RECIPES, "default": RECIPES[0]})
    size = SIZES[options.size]
    cut = [
        f"{size['model']} for {size['epochs']} epochs on {size['train']:,} images (paper: ResNet-110, 200 epochs, "
        "50,000)",
        f"clean: {size['images']} images, n = {size['n']:,} with the sequential rule (paper: 500, n = 100,000)",
        f"shifted: {size['shifted']} images per corruption at severity {size['severity']}, n = {size['shifted_n']:,} "
        "(paper: five severities)",
    ]
    figures = Figures(f"certificates-{options.part.replace('+', '-')}", options, cut)
    out = options.runs / figures.name
    trained = shiftproof.train(
        size["model"],
        str(options.data / "cifar10/train.npz"),
        recipe=options.part,
        sigma=SIGMA,
        images=size["train"],
        epochs=size["epochs"],
        device=options.device,
        seed=options.seed,
        out=out / "model",
        **TRAINING,
    )
    figures.add("training", {"recipe": options.part, "loss": trained.loss, "steps": trained.to_row()["steps"]})
    test = str(options.data / "cifar10/test.npz")
    common: dict[str, Any] = {"sigma": SIGMA, "seed": options.seed, "device": options.device}

    def radius(shift: str | None, take: int, n: int) -> dict[str, Any]:
        folder = out / "certificates" / (shift or "clean").replace("/", "_")
        row = shiftproof.certify(str(out / "model"), test, shift=shift, images=take, n=n, out=folder, **common).to_row()
        told = ("acr", "acr_low", "acr_high", "certified_accuracy", "images", "samples")
        return {"n": n, **{name: row[name] for name in told}}

    figures.add("clean", radius(None, size["images"], size["n"]))
    for family in ("common", "bar"):
        rows: dict[str, dict[str, Any]] = {}
        for name in published(family)[: size["corruptions"]]:
            if figures.late:
                return
            rows[name] = radius(f"{name}@{size['severity']}", size["shifted"], size["shifted_n"])
            figures.parts[family] = {"corruptions": rows, **_means(rows)}
        figures.add(family, figures.parts[family])
    if figures.late:
        return
    found = spectrum(
        str(out / "model"), test, measure="acr", corruptions=("fog",), out=out / "waves", **common, **size["waves"]
    )
    figures.add(
        "spectrum",
        {
            "waves": [[*frequency, round(value, 5)] for frequency, value in found.waves.items()],
            "bands": found.bands(),
            "CIFAR-10-F by alpha": {f"{alpha:g}": bands for alpha, bands in found.set_bands().items()},
            "CIFAR-10-F": float(np.mean(list(found.sets.values()))),
            "clean": found.clean,
            "n": size["waves"]["n"],
        },
    )


def published(family: str) -> tuple[str, ...]:
    """Return the corruptions of a family that were published for CIFAR-10."""
    return tuple(name for name in shifts.names(family) if "cifar" in shifts.facts(name).get("published", ("cifar",)))


def _means(rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the mean radius over corruptions, and over each group of frequencies."""
    groups: dict[str, list[float]] = {}
    for name, row in rows.items():
        groups.setdefault(shifts.facts(name).get("frequency", "all"), []).append(row["acr"])
    means = {group: float(np.mean(some)) for group, some in groups.items()}
    return {"macr": float(np.mean([row["acr"] for row in rows.values()])), "groups": means}


if __name__ == "__main__":
    main()
