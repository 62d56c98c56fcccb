"""Does invariance rank models better than thresholded confidence? A pool of small networks on a small real set.

    python -m benchmarks.estimate_pool cifar --train train.npz --test test.npz --natural other.npz --out pool/
    python -m benchmarks.estimate_pool digits --train mnist.npz --test mnist-test.npz --usps usps.npz --out digits/

An `.npz` holds `images` uint8 and `labels`; that of USPS holds `train_x`, `train_y`, `test_x` and `test_y`. Networks
differ in architecture, depth, width, optimiser, learning rate, weight decay, augmentation, batch size, epochs and
training domain (the set under a shift). Each is a cell of a run: the same command goes on where it stopped. The
evaluation is that of Ng et al. 2023, section 4.3 (`shiftproof.estimators.protocol`).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

import shiftproof
from benchmarks.image_domains import Domains, cifar_domains, digit_domains
from benchmarks.pool import as_table, check_time, records, train_pool
from shiftproof.data import ImageSet, load_images
from shiftproof.estimators.evidence import Evidence, observe
from shiftproof.estimators.neighborhoods import Neighborhood, neighborhood
from shiftproof.estimators.protocol import evaluate
from shiftproof.estimators.weight_norms import frobenius_norm, spectral_norm
from shiftproof.measures.estimation import atc_threshold, confidence, decision_negative_entropy, modal_share, score
from shiftproof.models import Normalize
from shiftproof.models.networks import CIFAR10_MEAN, CIFAR10_STD
from shiftproof.models.networks.resnet import ResNet
from shiftproof.models.networks.wide_resnet import WideResNet
from shiftproof.runs import Cell, Json, Row

NEIGHBORHOODS = {"RandAug": "randaugment", "Translate": "translate", "Erase": "erase", "FC": "flip_crop"}
CONVERGED = 0.7
"""Networks that are right on less than this share of their own training images are left out."""
JUDGED = 2000
"""So many training images tell whether a network has converged."""


def recipe(number: int, domains: Domains, *, seed: int, epochs: int) -> dict[str, Json]:
    """Return the settings of one network of the pool, drawn from the grid; domains and architectures take turns."""
    rng = np.random.default_rng([seed, number])

    def one(*choices: Any) -> Any:
        return choices[int(rng.integers(len(choices)))]

    trains = tuple(domains.train)
    optimizer, lr = one(("adam", 1e-3), ("adam", 3e-3), ("sgd", 0.05))
    return {
        "number": number,
        "train": trains[number % len(trains)],
        "architecture": domains.architectures[number // len(trains) % len(domains.architectures)],
        "depth": one(0, 1, 2),
        "width": one(*domains.widths),
        "optimizer": optimizer,
        "lr": lr,
        "weight_decay": one(0.0, 1e-4, 5e-4),
        "framing": one("", "pad_crop"),
        "batch_size": one(128, 256),
        "epochs": one(max(1, epochs // 2), epochs),
        "seed": seed,
    }


class ConvNet(nn.Module):
    """Blocks of a 3x3 convolution, batch normalisation (or none) and pooling, and a linear layer on their mean."""

    def __init__(self, *, depth: int, width: int, normalised: bool, classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [Normalize(CIFAR10_MEAN, CIFAR10_STD)]
        channels = 3
        for block in range(depth):
            out = width * 2 ** min(block, 2)
            layers += [nn.Conv2d(channels, out, 3, padding=1)]
            layers += [nn.BatchNorm2d(out)] if normalised else []
            layers += [nn.ReLU()] + ([nn.MaxPool2d(2)] if block < 3 else [])
            channels = out
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(channels, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits [N, classes]."""
        logits: Tensor = self.head(self.body(images).mean((2, 3)))
        return logits


def build(architecture: str, depth: int, width: int, classes: int) -> nn.Module:
    """Return an untrained network of an architecture; depth is 0, 1 or 2, and width the channels of a first layer."""
    normalisation: dict[str, Any] = {"classes": classes, "mean": CIFAR10_MEAN, "std": CIFAR10_STD}
    networks: Mapping[str, Callable[[], nn.Module]] = {
        "plain": lambda: ConvNet(depth=3 + depth, width=width, normalised=False, classes=classes),
        "normalised": lambda: ConvNet(depth=3 + depth, width=width, normalised=True, classes=classes),
        "residual": lambda: ResNet(8 + 6 * depth, **normalisation),
        "wide": lambda: WideResNet(10, width // 16, **normalisation),
    }
    return networks[architecture]()


@dataclass(frozen=True)
class Bench:
    """What a worker needs: the domains, how many views by which neighbourhoods, and when to stop.

    `more` are further neighbourhoods of some test domains.
    """

    domains: Domains
    views: int
    device: str
    seed: int
    stop_at: float | None = None
    near: Mapping[str, str] = field(default_factory=lambda: NEIGHBORHOODS)
    more: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def __call__(self) -> Pool:
        """Load the sets."""
        return Pool(self)


@dataclass
class Pool:
    """A worker of `runs` that trains a network and measures it on every domain."""

    bench: Bench
    views: dict[tuple[str, str, int], Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        domains = self.bench.domains
        self.train, self.validation, self.test = (
            {name: load_images(path).in_memory() for name, path in part.items()}
            for part in (domains.train, domains.validation, domains.test)
        )
        self.classes = 1 + max(int(cast(Tensor, data.labels).max()) for data in self.train.values())

    def measure(self, cell: Cell) -> Row:
        """Train the cell's network and return its accuracy and every measure by test domain."""
        check_time(self.bench.stop_at)
        home = cast(str, cell["train"])
        model = self._trained(cell, self.train[home])
        judged = self._seen(model, "training images", self.train[home].take(JUDGED), None)
        source = self._seen(model, "validation", self.validation[home], None)
        thresholds = {
            kind: atc_threshold(score(source.logits, kind), source.correct) for kind in ("confidence", "entropy")
        }
        norms = {"spectral": -spectral_norm(model), "Frobenius": -frobenius_norm(model)}
        domains: dict[str, Json] = {}
        for name, data in self.test.items():
            measures, found, entropies = dict(norms), source, dict[str, Json]()
            for short, near in {**self.bench.near, **self.bench.more.get(name, {})}.items():
                found = self._seen(model, name, data, near)
                entropies[short] = found.entropy_difference
                measures[f"NI-{short}"] = float(modal_share(found.shares).mean())
                measures[f"NE-{short}"] = float(decision_negative_entropy(found.shares).mean())
            for kind, short in (("confidence", "MC"), ("entropy", "NE")):
                measures[f"ATC-{short}"] = float((score(found.logits, kind) >= thresholds[kind]).mean())
            measures["average confidence"] = float(confidence(found.logits).mean())
            told: dict[str, Json] = {"accuracy": found.accuracy, "measures": cast(Json, measures)}
            domains[name] = {**told, "entropy differences": entropies}
        return {"training_accuracy": judged.accuracy, "domains": domains}

    def _trained(self, cell: Cell, data: ImageSet) -> nn.Module:
        settings: dict[str, Any] = {
            name: cell[name] for name in ("optimizer", "lr", "weight_decay", "framing", "batch_size", "epochs")
        }
        seed = 1000 * cast(int, cell["seed"]) + cast(int, cell["number"])
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            network = build(
                cast(str, cell["architecture"]), cast(int, cell["depth"]), cast(int, cell["width"]), self.classes
            )
        trained = shiftproof.train(
            network, data, seed=seed, schedule="cosine", warmup=0.5, device=self.bench.device, **settings
        )
        return trained.model

    def _seen(self, model: nn.Module, name: str, data: ImageSet, near: str | None) -> Evidence:
        size = 2048 if self.bench.device != "cpu" else 256
        return observe(
            model,
            data.batches(size, device=self.bench.device),
            neighborhood=None if near is None else self._remembered(name, near),
            n=self.bench.views,
            seed=self.bench.seed,
            batch_size=size,
        )

    def _remembered(self, name: str, near: str) -> Neighborhood:
        """Return a neighbourhood that makes the views of a domain once for all networks; views are bytes in images."""

        def views(images: Tensor, keys: Tensor, n: int, seed: int) -> Tensor:
            place = (name, near, int(keys[0]))
            if place not in self.views:
                self.views[place] = (neighborhood(near)(images, keys, n, seed) * 255).round().to(torch.uint8)
            return self.views[place].float().div_(255)

        return views


def run_pool(
    domains: Domains,
    *,
    models: int,
    views: int,
    epochs: int,
    device: str,
    seed: int,
    out: Path,
    workers: int = 1,
    stop_at: float | None = None,
    converged: float = CONVERGED,
) -> list[tuple[Cell, Row]]:
    """Train and measure what is missing of a pool, and return the cells and rows of the networks that converged."""
    cells = [Cell("pool", **recipe(number, domains, seed=seed, epochs=epochs)) for number in range(models)]
    bench = Bench(domains, views, device, seed, stop_at)
    rows = train_pool(cells, bench, {**domains.prints(), "views": str(views)}, out=out, workers=workers)
    return [(cell, row) for cell, row in rows if cast(float, row["training_accuracy"]) >= converged]


def main() -> None:
    """Train and measure what is missing of the pool, and print the scores of every measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", choices=("cifar", "digits"))
    parser.add_argument("--train", required=True, help="CIFAR-10's or MNIST's training images")
    parser.add_argument("--test", required=True, help="CIFAR-10's or MNIST's test images")
    parser.add_argument("--natural", help="another labelled .npz with the same classes: one more test domain")
    parser.add_argument("--usps", help="for digits")
    parser.add_argument("--models", type=int, default=48)
    parser.add_argument("--images", type=int, default=20_000, help="training images")
    parser.add_argument("--test-images", type=int, default=1_000)
    parser.add_argument("--views", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=16, help="the most a network is trained")
    parser.add_argument("--workers", type=int, default=1, help="networks at a time, a process each")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("estimate-pool"))
    options = parser.parse_args()
    sizes: dict[str, Any] = {
        "images": options.images,
        "test_images": options.test_images,
        "out": options.out / "domains",
        "device": options.device,
        "seed": options.seed,
    }
    if options.set == "cifar":
        domains = cifar_domains(options.train, options.test, options.natural, **sizes)
    else:
        domains = digit_domains((options.train, options.test), options.usps, **sizes)
    rows = run_pool(
        domains,
        models=options.models,
        views=options.views,
        epochs=options.epochs,
        device=options.device,
        seed=options.seed,
        out=options.out,
        workers=options.workers,
    )
    print(f"\n{len(rows)} of {options.models} networks converged, {len(domains.train)} training domains")
    print(as_table(evaluate(records(rows))))


if __name__ == "__main__":
    main()
