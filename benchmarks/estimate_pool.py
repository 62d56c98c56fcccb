"""Does invariance rank models better than thresholded confidence? A pool of small networks on a small real set.

python benchmarks/estimate_pool.py --train train.npz --test test.npz --models 48 --device cuda --out pool/

The `.npz` files hold `images` uint8 [N, 32, 32, 3] and `labels`, such as CIFAR-10's. Networks differ in depth, width,
learning rate, weight decay, augmentation, epochs, label noise and training domain (the set under a shift). Each is a
cell of a run: the same command goes on where it stopped. The evaluation is that of Ng et al. 2023, section 4.3
(`shiftproof.estimators.protocol`).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from shiftproof import shifts
from shiftproof.data import ImageSet, load_data
from shiftproof.estimators.evidence import Evidence, as_batches, observe
from shiftproof.estimators.neighborhoods import neighborhood
from shiftproof.estimators.norms import frobenius_norm, spectral_norm
from shiftproof.estimators.protocol import Record, Scores, evaluate
from shiftproof.measures.estimation import atc_threshold, confidence, decision_negative_entropy, modal_share, score
from shiftproof.models import Normalize
from shiftproof.runs import Cell, Inline, Json, Plan, Row, Store, drive

TRAIN_DOMAINS = ("clean", "contrast@3", "gaussian_blur@3")
TEST_DOMAINS = (
    *TRAIN_DOMAINS,
    "gaussian_noise@3",
    "fog@4",
    "jpeg_compression@4",
    "pixelate@4",
    "elastic_transform@3",
    "frost@3",
)
NEIGHBORHOODS = ("randaugment", "translate", "erase", "flip_crop")
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
CONVERGED = 0.4
"""Networks that learn less than this of their own training labels, some of them wrong, are left out."""


def main() -> None:
    """Train and measure what is missing of the pool, and print the scores of every measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", required=True)
    parser.add_argument("--test", required=True)
    parser.add_argument("--natural", help="another labelled .npz with the same classes: one more test domain")
    parser.add_argument("--models", type=int, default=48)
    parser.add_argument("--images", type=int, default=20_000, help="training images")
    parser.add_argument("--test-images", type=int, default=2_000)
    parser.add_argument("--views", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=30, help="the most a network is trained")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("estimate-pool"))
    options = parser.parse_args()
    bench = Bench(
        options.train,
        options.test,
        options.natural,
        options.images,
        options.test_images,
        options.views,
        options.device,
        options.seed,
    )
    cells = tuple(Cell("pool", **recipe(number, options.seed, options.epochs)) for number in range(options.models))
    prints = {"train": load_data(options.train).fingerprint, "test": load_data(options.test).fingerprint,
              "sizes": f"{options.images},{options.test_images},{options.views},{options.natural}"}  # fmt: skip
    with Store(options.out, {"pool": "2"}) as store:
        found = drive(Plan(cells, prints), store, bench, executor=Inline(), watch=_tell)
    rows = [(result.cell, result.row) for result in found if result.row is not None]
    kept = [(cell, row) for cell, row in rows if cast(float, row["training_accuracy"]) >= CONVERGED]
    print(f"\n{len(kept)} of {len(cells)} networks, {len({cell['train'] for cell, _ in kept})} training domains")
    _print(evaluate(record for cell, row in kept for record in _records(cell, row)))


def recipe(number: int, seed: int, epochs: int) -> dict[str, Json]:
    """Return the settings of one network of the pool, drawn from the grid."""
    rng = np.random.default_rng([seed, number])

    def one(*choices: Any) -> Any:
        return choices[int(rng.integers(len(choices)))]

    return {
        "number": number,
        "train": TRAIN_DOMAINS[number % len(TRAIN_DOMAINS)],
        "architecture": ("plain", "normalised")[number // len(TRAIN_DOMAINS) % 2],
        "depth": one(2, 3, 4),
        "width": one(16, 32, 64),
        "lr": one(5e-4, 1e-3, 3e-3),
        "weight_decay": one(0.0, 1e-4, 1e-2),
        "augmentation": one("none", "flip", "flip"),
        "label_noise": one(0.0, 0.0, 0.2),
        "epochs": one(max(1, epochs // 2), epochs),
        "seed": seed,
    }


class Network(nn.Module):
    """Blocks of a 3x3 convolution, batch normalisation (or none) and pooling, and a linear layer on their mean."""

    def __init__(self, *, depth: int, width: int, normalised: bool, classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [Normalize(MEAN, STD)]
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


@dataclass(frozen=True)
class Bench:
    """What a worker needs: the sets, and how many images and views are used."""

    train: str
    test: str
    natural: str | None
    images: int
    test_images: int
    views: int
    device: str
    seed: int

    def __call__(self) -> Pool:
        """Load the sets and shift them into their domains."""
        return Pool(self)


class Pool:
    """A worker of `runs` that trains a network and measures it on every domain."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        held_out = load_data(bench.test)
        self.train = _domains(load_data(bench.train).take(bench.images, seed=bench.seed), TRAIN_DOMAINS, bench)
        every = held_out.take(2 * bench.test_images, seed=bench.seed)
        # One half validates, on the training domain; the other tests.
        self.validation = _domains(every.subset(range(0, len(every), 2)), TRAIN_DOMAINS, bench)
        self.test = _domains(every.subset(range(1, len(every), 2)), TEST_DOMAINS, bench)
        if bench.natural:
            self.test |= {"natural": _domains(load_data(bench.natural), ("clean",), bench)["clean"]}
        self.classes = int(max(labels.max() for _, labels in self.train.values())) + 1

    def measure(self, cell: Cell) -> Row:
        """Train the cell's network and return its accuracy and every measure by test domain."""
        model, accuracy = self._trained(cell)
        source = self._seen(model, self.validation[cast(str, cell["train"])], None)
        thresholds = {
            kind: atc_threshold(score(source.logits, kind), source.correct) for kind in ("confidence", "entropy")
        }
        domains: dict[str, Json] = {}
        for name, domain in self.test.items():
            measures: dict[str, float] = {"spectral": -spectral_norm(model), "Frobenius": -frobenius_norm(model)}
            found = source
            for near in NEIGHBORHOODS:
                found = self._seen(model, domain, near)
                measures[f"NI-{near}"] = float(modal_share(found.shares).mean())
                measures[f"NE-{near}"] = float(decision_negative_entropy(found.shares).mean())
            for kind, short in (("confidence", "MC"), ("entropy", "NE")):
                measures[f"ATC-{short}"] = float((score(found.logits, kind) >= thresholds[kind]).mean())
            measures["average confidence"] = float(confidence(found.logits).mean())
            domains[name] = {"accuracy": found.accuracy, "measures": measures}
        return {"training_accuracy": accuracy, "domains": domains}

    def _trained(self, cell: Cell) -> tuple[nn.Module, float]:
        images, labels = self.train[cast(str, cell["train"])]
        rng = torch.Generator().manual_seed(1000 * cast(int, cell["seed"]) + cast(int, cell["number"]))
        with torch.random.fork_rng():
            torch.manual_seed(int(torch.randint(2**31, (), generator=rng)))
            model: nn.Module = Network(
                depth=cast(int, cell["depth"]),
                width=cast(int, cell["width"]),
                normalised=cell["architecture"] == "normalised",
                classes=self.classes,
            ).to(self.bench.device)
        wrong = torch.rand(len(labels), generator=rng) < cast(float, cell["label_noise"])
        drawn = torch.randint(self.classes, labels.shape, generator=rng)
        noisy = torch.where(wrong.to(labels.device), drawn.to(labels.device), labels)
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=cast(float, cell["lr"]), weight_decay=cast(float, cell["weight_decay"])
        )
        right = 0
        for _ in range(cast(int, cell["epochs"])):
            right = 0
            for places in torch.randperm(len(labels), generator=rng).split(128):  # type: ignore[no-untyped-call]
                batch = images[places.to(images.device)]
                if cell["augmentation"] == "flip":
                    mirrored = (torch.rand(len(batch), generator=rng) < 0.5).to(batch.device)
                    batch = torch.where(mirrored[:, None, None, None], batch.flip(3), batch)
                out = model(batch)
                target = noisy[places.to(noisy.device)]
                loss = nn.functional.cross_entropy(out, target)
                optimizer.zero_grad()
                torch.autograd.backward(loss)
                optimizer.step()
                right += int((out.argmax(1) == target).sum())
        return model.eval(), right / len(labels)

    def _seen(self, model: nn.Module, domain: tuple[Tensor, Tensor], near: str | None) -> Evidence:
        images, labels = domain
        size = 1024 if self.bench.device != "cpu" else 256
        found = observe(
            model,
            as_batches(images, keys=torch.arange(len(images)), batch_size=size, device=self.bench.device),
            neighborhood=None if near is None else neighborhood(near),
            n=self.bench.views,
            seed=self.bench.seed,
            batch_size=size,
        )
        return Evidence(found.logits, found.viewed, found.shares, found.view_entropy, labels=labels.cpu().numpy())


def _domains(data: ImageSet, names: tuple[str, ...], bench: Bench) -> dict[str, tuple[Tensor, Tensor]]:
    """Return the images, on the device, and the labels of a set under each shift."""
    batches = list(data.batches(1000, device=bench.device))
    labels = torch.cat([batch.labels for batch in batches if batch.labels is not None])
    made = {}
    for name in names:
        shift = None if name == "clean" else shifts.parse(name)
        parts = [batch.images if shift is None else shift(batch.images, batch.keys) for batch in batches]
        made[name] = (torch.cat(parts), labels)
    return made


def _records(cell: Cell, row: Row) -> Iterator[Record]:
    for test, found in cast(dict[str, dict[str, Any]], row["domains"]).items():
        for measure, value in found["measures"].items():
            yield Record(
                f"model-{cell['number']}",
                cast(str, cell["architecture"]),
                cast(str, cell["train"]),
                test,
                measure,
                value,
                found["accuracy"],
            )


def _tell(result: Any) -> None:
    if result.error is not None:
        print(f"model {result.cell['number']}: {result.error.splitlines()[-1]}", flush=True)
        return
    clean = result.row["domains"][result.cell["train"]]["accuracy"]
    print(f"model {result.cell['number']}: {clean:.3f} on its domain, {result.seconds:.0f} s", flush=True)


def _print(scores: tuple[Scores, ...]) -> None:
    names = ("r_squared", "mae", "macro_tau", "micro_tau", "id_tau", "arch_tau")
    print("| measure | R2 | MAE | macro tau | micro tau | ID tau | arch tau |\n|---|---|---|---|---|---|---|")
    for one in sorted(scores, key=lambda found: -(found.macro_tau.mean if found.macro_tau else -1)):
        cells = (getattr(one, name) for name in names)
        print(f"| {one.measure} | {' | '.join('' if cell is None else str(cell) for cell in cells)} |")


if __name__ == "__main__":
    main()
