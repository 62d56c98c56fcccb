"""Why FourierMix with HCR is not ahead of plain noise with JSD here: by length of training, and by the seed of one.

    python -m benchmarks.reproduce.certificates_causes --data data --device cuda --workers 6
    python -m benchmarks.reproduce.certificates_causes --data data --size sample     # a CPU, minutes
    python -m benchmarks.reproduce.certificates_causes --data data --costs           # what it would cost a GPU

Smaller trainings than those of `certificates_table.py`, with all else equal, are repeated with several seeds for few
epochs and for many; a seed decides the training images, the first weights, the order and the noise. Each network is
certified on the same images, clean and under the corruptions of CIFAR-10-C, with n samples by one Clopper-Pearson bound
(the paper's rule). What is told: how far FourierMix with HCR is ahead at each length, what longer training changes, and
how much the lead varies over seeds. Only lengths whose networks are all finished are told.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from scipy.stats import t

import shiftproof
from benchmarks.pool import check_time
from benchmarks.reproduce.certificates_table import SIGMA, TRAINING, published
from benchmarks.reproduce.equal_n_table import CLEAN, COMPARED, SEVERITY, Bench, Certifier, Radii, groups
from benchmarks.reproduce.record import Figures, options_of
from shiftproof import load_data, load_model
from shiftproof.certificates import Fixed, Smoothed
from shiftproof.runs import Cell, Executor, Inline, Plan, Processes, Result, Row, Store, drive
from shiftproof.training.recipes import recipe

SIZES: dict[str, dict[str, Any]] = {
    "tiny": {
        "model": "convnet", "train": 64, "batch": 32, "epochs": (1, 2), "seeds": 2, "images": 3, "n": 100,
        "corruptions": 2,
    },
    "sample": {
        "model": "convnet", "train": 512, "batch": 32, "epochs": (1, 5), "seeds": 2, "images": 20, "n": 200,
        "corruptions": 4,
    },
    "short": {
        "model": "resnet20", "train": 20_000, "batch": 512, "epochs": (6, 24), "seeds": 3, "images": 100, "n": 1_000,
        "corruptions": 15,
    },
}  # fmt: skip
PASSES_A_SECOND, CERTIFIED_A_SECOND = 512 / 0.0044, 300_000
"""Images that ResNet-20 is trained on, and noisy ones that it answers, in a second of an H200, in bfloat16."""
N0, GUESSED = 100, 0.6
"""Samples that choose the class of an image, and the share of images where it is right, which take all n others."""
Key = tuple[str, int, int]
"""A recipe, epochs and a seed."""


def main() -> None:
    """Train and certify what is missing, and write the figures."""
    options = options_of(
        __doc__, tuple(SIZES), costs={"action": "store_true", "help": "print what it would cost a GPU, and run nothing"}
    )
    size = SIZES[options.size]
    if options.costs:
        print(costs(size))
        return
    few, many = size["epochs"]
    dtype = "bfloat16" if options.device.startswith("cuda") else "float32"
    cut = [
        f"{size['model']} for {few} and for {many} epochs on {size['train']:,} images, {size['seeds']} seeds (paper: "
        "ResNet-110, 200 epochs, 50,000)",
        f"{size['images']} images, clean and under each of {size['corruptions']} corruptions at severity {SEVERITY}, "
        f"n = {size['n']:,} (paper: 500 images, five severities, n = 100,000)",
        f"networks in {dtype}",
    ]
    figures = Figures("certificates-causes", options, cut)
    folder = options.runs / figures.name
    bench = TrainingBench(
        *(options.data, options.device, options.seed, dtype, False, figures.stop_at), networks=folder / "networks"
    )
    prints = {
        "data": bench.images.fingerprint,
        "train": load_data(bench.training_images).fingerprint,
        "dtype": dtype,
        "device": options.device,
    }
    plan = Plan(tuple(cells(size, seeds_of(options, size))), prints)
    executor: Executor = Inline() if options.workers == 1 else Processes(options.workers)
    with Store(folder, {"causes": "1"}) as store:

        def finished(done: int, count: int, result: Result | None) -> None:
            if result is not None:
                about = ", ".join(str(result.task.parameters()[name]) for name in ("recipe", "epochs", "seed"))
                told = (result.error or f"{result.seconds:.0f} s").strip().splitlines()[-1]
                print(f"{done} of {count}, {about}: {told}", flush=True)
            write(figures, size, store.results(plan))

        drive(plan, store, bench, executor=executor, on_progress=finished)


def seeds_of(options: argparse.Namespace, size: Mapping[str, Any]) -> range:
    """Return the seeds of the trainings."""
    return range(options.seed, options.seed + size["seeds"])


def labels_of(size: Mapping[str, Any]) -> list[str]:
    """Return the conditions that networks are certified under but the clean one."""
    return [f"{name}@{SEVERITY}" for name in published("common")[: size["corruptions"]]]


def cells(size: Mapping[str, Any], seeds: Sequence[int]) -> list[Cell]:
    """Return a cell for every network, those first that take longest."""
    same = {name: size[name] for name in ("model", "train", "batch", "images", "n", "corruptions")}
    return [
        Cell("network", recipe=name, epochs=epochs, seed=seed, **same)
        for epochs in sorted(size["epochs"], reverse=True)
        for name in reversed(COMPARED)
        for seed in seeds
    ]


def costs(size: Mapping[str, Any]) -> str:
    """Return what all networks cost, in seconds of a GPU that does nothing else."""
    seen = size["train"] // size["batch"] * size["batch"] * sum(size["epochs"]) * size["seeds"]
    training = seen * sum(recipe(name).passes for name in COMPARED) / PASSES_A_SECOND
    networks = len(COMPARED) * len(size["epochs"]) * size["seeds"]
    noisy = networks * size["images"] * (1 + size["corruptions"]) * (N0 + GUESSED * size["n"])
    certifying = noisy / CERTIFIED_A_SECOND
    return (
        f"{networks} networks: about {training:.0f} s of an H200 for training and {certifying:.0f} s for certificates, "
        f"{training + certifying:.0f} s in all"
    )


@dataclass(frozen=True)
class TrainingBench(Bench):
    """What a worker needs, and where networks are kept."""

    networks: Path = Path("networks")

    def __call__(self) -> Trainer:
        """Return what trains and certifies in this process."""
        if self.device.startswith("cuda"):
            torch.set_num_threads(1)  # several processes share the GPU, and each only has to keep it busy
        return Trainer(self)

    @property
    def training_images(self) -> Path:
        """Where the training images are."""
        return self.data / "cifar10/train.npz"


class Trainer(Certifier):
    """A worker of `runs`: trains a network, or goes on with it, and certifies it under every condition."""

    bench: TrainingBench

    def _smoothed(self, name: str) -> Smoothed:
        model = load_model(str(self.bench.networks / name), device=self.bench.device)
        dtype: Any = self.bench.dtype
        return Smoothed(model, SIGMA, seed=self.bench.seed, dtype=dtype)

    def measure(self, cell: Cell) -> Row:
        """Return the radii of a network by condition, and how well it fitted what it was trained on."""
        about: dict[str, Any] = cell.parameters()
        name = f"{about['recipe']}-{about['epochs']}-{about['seed']}"
        check_time(self.bench.stop_at)
        trained = shiftproof.train(
            about["model"],
            str(self.bench.training_images),
            recipe=about["recipe"],
            sigma=SIGMA,
            images=about["train"],
            epochs=about["epochs"],
            seed=about["seed"],
            track=(),
            device=self.bench.device,
            out=self.bench.networks / name,
            on_progress=lambda *_: check_time(self.bench.stop_at),
            **{**TRAINING, "batch_size": about["batch"]},
        )
        conditions = [CLEAN, *labels_of(about)]
        radii = {label: self._radii(name, label, about) for label in conditions}
        return {"training accuracy": float(str(trained.row["train_accuracy"])), "radii": radii}

    def _radii(self, name: str, label: str, about: Mapping[str, Any]) -> list[float]:
        one = Cell("certify", recipe=name, shift=label, n=about["n"], start=0, stop=about["images"])
        return cast("list[float]", super().measure(one)["radii"])


def write(figures: Figures, size: Mapping[str, Any], results: Iterable[Result]) -> None:
    """Write what the lengths tell whose networks are all finished."""
    rows: dict[Key, dict[str, Any]] = {}
    for result in results:
        if result.row is not None:
            about: dict[str, Any] = result.task.parameters()
            rows[about["recipe"], about["epochs"], about["seed"]] = dict(result.row)
    named = {CLEAN: [CLEAN], **groups(labels_of(size))}
    for part, found in findings(rows, size["epochs"], seeds_of(figures.options, size), named).items():
        figures.add(part, found)
    sample = {"n": size["n"], "largest": Fixed(sigma=SIGMA, n=size["n"]).reach, "images": size["images"]}
    figures.add("certificates", {**sample, "networks": len(rows)})


def findings(
    rows: Mapping[Key, Mapping[str, Any]],
    lengths: Sequence[int],
    seeds: Sequence[int],
    named: Mapping[str, Sequence[str]],
) -> dict[str, Any]:
    """Return what every length that is whole tells, and what the longest changes over the shortest.

    `named` are the conditions of each group.
    """
    found: dict[str, Any] = {}
    leads: list[dict[str, Radii]] = []
    for epochs in lengths:
        some = {name: [rows[name, epochs, seed] for seed in seeds if (name, epochs, seed) in rows] for name in COMPARED}
        if any(len(each) < len(seeds) for each in some.values()):
            continue
        radii = {name: {group: _radii_of(some[name], labels) for group, labels in named.items()} for name in COMPARED}
        before, after = (radii[name] for name in COMPARED)
        leads.append({group: after[group] - before[group] for group in named})
        fitted = {name: float(np.mean([row["training accuracy"] for row in some[name]])) for name in COMPARED}
        by_group = {
            group: {"acr": {name: float(radii[name][group].mean()) for name in COMPARED}, "lead": crossed(lead)}
            for group, lead in leads[-1].items()
        }
        found[f"{epochs} epochs"] = {"training accuracy": fitted, "by group": by_group}
    if len(leads) == len(lengths):
        found["change"] = {group: crossed(leads[-1][group] - leads[0][group]) for group in named}
    return found


def _radii_of(rows: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> Radii:
    """Return the mean radius over conditions, [seeds, images]."""
    return np.array([np.mean([row["radii"][label] for label in labels], axis=0) for row in rows])


def crossed(values: Radii) -> dict[str, Any]:
    """Return the mean of values [seeds, images], its 95% interval over both, and the deviation over seeds.

    Seeds and images are both samples, and every image is seen with every seed. The variance of the mean is the sum of
    what seeds, images and both together add, by analysis of variance; the interval is Student's, with Satterthwaite's
    degrees of freedom, which are few where seeds count most. With three seeds and 100 images it covered the mean in 93
    to 97% of simulations; a bootstrap that draws seeds and images covers 85% where seeds count most.
    """
    seeds, images = values.shape
    mean, by_seed, by_image = values.mean(), values.mean(1), values.mean(0)
    both = values - by_seed[:, None] - by_image + mean
    free = np.array([seeds - 1, images - 1, (seeds - 1) * (images - 1)])
    squares = np.array([images * by_seed.var(ddof=1), seeds * by_image.var(ddof=1), (both**2).sum() / free[2]])
    counted = np.array([*(squares[:2] > squares[2]), True])  # less than what both add is nothing
    parts = np.array([*np.maximum(squares[:2] - squares[2], 0.0), squares[2]])
    total = parts.sum()
    degrees = total**2 / (squares**2 / free)[counted].sum() if total > 0 else 1.0
    reach = float(t.ppf(0.975, max(1.0, degrees)) * np.sqrt(total / values.size))
    return {
        "mean": float(mean),
        "low": float(mean) - reach,
        "high": float(mean) + reach,
        "by seed": [float(each) for each in by_seed],
        "deviation": float(by_seed.std(ddof=1)),
    }


if __name__ == "__main__":
    main()
