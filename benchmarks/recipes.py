"""What every recipe is good for: the figure it exists for, beside erm's at as many passes through the network.

    python -m benchmarks.recipes run --train cifar10/train.npz --test cifar10/test.npz --out recipes --device cuda
    python -m benchmarks.recipes table --out recipes

Every recipe gets `--passes` times 50,000 images through ResNet-20 from random weights (an epoch of augmix+jsd takes
three times as many as one of erm, so it has a third of the epochs); those that mend a trained network, and erm beside
them, go on from the demo's. Each is tested on the same images: under the fifteen corruptions at severities 1, 3 and 5,
under C-bar at severity 3, under a hundred random chains of five operations, and, where it is trained under noise, by
certificates. A run is kept in a file of its own, so that what was cut goes on. Intervals are over images, paired with
erm's; there is one seed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import shiftproof
from shiftproof.data import ImageSet, load_images
from shiftproof.models import logits
from shiftproof.searchers import make_space
from shiftproof.searchers.uniform import draw_tuples
from shiftproof.shifts import ImageShift, corruption, names
from shiftproof.shifts.levels import from_levels, to_bytes
from shiftproof.training.denoiser_training import DenoiserInTraining
from shiftproof.training.recipes import RECIPES, Recipe, recipe

SIGMA = 0.25
CHAINS, LENGTH = 100, 5
TUNED = {"lr": 0.003, "batch_size": 128, "schedule": "cosine", "weight_decay": 5e-4, "ema": 0.999}
"""Settings of what goes on from the demo, which are harden's."""
SCRATCH = {"lr": 0.1, "batch_size": 256, "schedule": "cosine", "weight_decay": 5e-4}
OPTIONS: dict[str, dict[str, Any]] = {
    "smoothadv": {"warmup": 0},
    "rsda": {"every": 1, "images": 500},
    "esda": {"every": 1, "images": 500},
}
"""What the length of a run asks for: attacks at full strength from the start, a search every epoch."""
DRAWS = 2000
KEYS = {"worst chain": "chains", "ACR": "radii"}
"""Figures that are not called as the arrays they come of."""
Array = NDArray[Any]


class Run(NamedTuple):
    """A recipe, and whether it goes on from the demo."""

    name: str
    tuned: bool

    @property
    def file(self) -> str:
        """The name of its file."""
        return f"{'tuned' if self.tuned else 'scratch'}-{self.name}.npz"

    @property
    def figure(self) -> str:
        """What the recipe exists for."""
        found = RECIPES.load(self.name)
        if found.noise == "all":
            return "ACR"
        return "worst chain" if found.tuples is not None else "corruptions"


def runs() -> list[Run]:
    """Return every run: erm first, as the others stand beside it."""
    made = [Run("erm", False), Run("erm", True)]
    return made + [Run(name, _mends(RECIPES.load(name))) for name in RECIPES if name != "erm"]


def _mends(found: Recipe) -> bool:
    return found.objective.anchored or found.denoising is not None


def length(passes: int, budget: float, images: int) -> tuple[int, int]:
    """Return the epochs, and the images of each, that send `budget` times all images through a network.

    >>> length(3, 20, 50_000), length(16, 20, 50_000)
    ((7, 47619), (2, 31250))
    """
    total = budget * images / passes
    epochs = max(1, -int(-total // images))
    return epochs, int(total / epochs)


def shifts_by_set() -> dict[str, list[ImageShift]]:
    """Return what test images go through, by the set's name."""
    space = make_space("cifar")
    chains = draw_tuples(space, LENGTH, range(CHAINS), seed=77, stream="benchmark/recipes")
    return {
        "corruptions": [corruption(name, severity) for name in names("common") for severity in (1, 3, 5)],
        "bar": [corruption(name, 3) for name in names("bar")],
        "chains": [space.chain(genes) for genes in chains],
    }


def make_sets(options: argparse.Namespace) -> None:
    """Make the test images under every shift, once."""
    data = load_images(options.test).take(options.images, seed=5).in_memory()
    (batch,) = data.batches(len(data), device=torch.device(options.device))
    assert batch.labels is not None
    np.save(options.out / "labels.npy", batch.labels.cpu().numpy())
    np.save(options.out / "set-clean.npy", to_bytes(batch.inputs).cpu().numpy()[None])
    for name, shifts in shifts_by_set().items():
        count = len(data) if name != "chains" else min(500, len(data))
        images, keys = batch.inputs[:count], batch.keys[:count]
        np.save(
            options.out / f"set-{name}.npy", np.stack([to_bytes(each(images, keys)).cpu().numpy() for each in shifts])
        )


def hits(network: nn.Module, folder: Path) -> dict[str, Array]:
    """Return which images a network gets right, by the test set, [shifts, images]."""
    labels = torch.from_numpy(np.load(folder / "labels.npy"))
    found = {}
    for path in sorted(folder.glob("set-*.npy")):
        images = torch.from_numpy(np.load(path))
        said = torch.stack(
            [
                torch.cat([logits(network, from_levels(part)).argmax(1) for part in torch.split(each, 1000)])
                for each in images
            ]
        )
        found[path.stem.removeprefix("set-")] = (said == labels[: said.shape[1]]).numpy()
    return found


def train_one(run: Run, options: argparse.Namespace) -> str:
    """Train by a recipe, test, and keep what came of it; return a line to print."""
    torch.set_num_threads(1)
    begun = time.perf_counter()
    chosen = recipe(run.name)
    data = load_images(options.train)
    epochs, images = length(chosen.passes, options.passes, len(data))
    settings = {**(TUNED if run.tuned else SCRATCH), **chosen.defaults, "epochs": epochs}
    if chosen.denoising is not None:
        settings |= {"weight_decay": 0.0}
    sigma = SIGMA if chosen.noise == "all" else None
    own = OPTIONS.get(run.name)
    trained = shiftproof.train(
        "demo" if run.tuned else "resnet20", data, recipe=run.name, sigma=sigma, options=own, images=images,
        device=options.device, checkpoint_every=10**9, log_every=200, **settings,
    )  # fmt: skip
    spent = time.perf_counter() - begun
    network: nn.Module = trained.model.eval()
    denoiser = network.denoiser if isinstance(network, DenoiserInTraining) else None
    found: dict[str, Any] = {} if denoiser is not None else hits(network.to(options.device), options.out)
    if run.figure == "ACR" or run.name == "erm":
        found["radii"] = radii("demo" if denoiser is not None else network, denoiser, options)
    found |= {"epochs": epochs, "images": images, "passes": chosen.passes, "seconds": spent, "loss": trained.loss}
    part = options.out / f"{run.file}.part.npz"
    np.savez_compressed(part, **found)
    part.rename(options.out / run.file)
    return f"{run.file}: {epochs} x {images:,} images in {spent:.0f} s, all in {time.perf_counter() - begun:.0f} s"


def radii(model: Any, denoiser: nn.Module | None, options: argparse.Namespace) -> Array:
    """Return the certified radius of each of the first test images."""
    data: ImageSet = load_images(options.test).take(options.images, seed=5)
    found: Any = shiftproof.certify(
        model, data, sigma=SIGMA, rule="fixed", n=options.samples, images=options.certified, denoiser=denoiser,
        device=options.device, seed=0,
    )  # fmt: skip
    return np.asarray(found.radii)


def run_all(options: argparse.Namespace) -> None:
    """Do what is missing, several at a time, and begin nothing after `--minutes`."""
    options.out.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    if not (options.out / "set-chains.npy").is_file():
        make_sets(options)
        print(f"test images after {time.monotonic() - begun:.0f} s", flush=True)
    wanted = [run for run in runs() if not options.recipes or run.name in options.recipes]
    waiting = [run for run in wanted if not (options.out / run.file).is_file()]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.workers, mp_context=context) as pool:
        left = iter(waiting)
        going = {pool.submit(train_one, run, options): run for run in islice(left, options.workers)}
        while going:
            done = next(as_completed(going))
            run = going.pop(done)
            error = done.exception()
            print(done.result() if error is None else f"{run.file} failed: {error!r}", flush=True)
            if time.monotonic() - begun < 60 * options.minutes:
                going |= {pool.submit(train_one, run, options): run for run in islice(left, 1)}


def figure(found: Any, name: str, weights: Array) -> Array:
    """Return a figure for every row of weights of the images [D, N], which sum to 1."""
    if name == "ACR":
        values: Array = weights[:, : len(found["radii"])] @ found["radii"]
        return values
    if name == "worst chain":
        return np.asarray((weights @ found["chains"].T.astype(float)).min(axis=1))
    return np.asarray(weights @ found[name].mean(axis=0))


def resampled(count: int) -> Array:
    """Return weights of images: all alike, then those of resampled sets."""
    drawn = np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), size=DRAWS) / count
    return np.concatenate([np.full((1, count), 1 / count), drawn])


def table(options: argparse.Namespace) -> None:
    """Print every recipe's figures, and the one it exists for beside erm's, with the interval of the difference."""
    print("| recipe | epochs | clean | corruptions | C-bar | worst chain | ACR | beside erm (95%) |")
    print("|---|---:|---:|---:|---:|---:|---:|---|")
    for run in runs():
        path, beside = options.out / run.file, options.out / Run("erm", run.tuned).file
        if not path.is_file() or not beside.is_file():
            continue
        found, erm = np.load(path), np.load(beside)
        cells = [told(found, name) for name in ("clean", "corruptions", "bar", "worst chain", "ACR")]
        epochs = int(found["epochs"]) * int(found["images"]) / 50_000
        label = f"`{run.name}`" + (", from the demo" if run.tuned else "")
        print(f"| {label} | {epochs:.1f} | {' | '.join(cells)} | {difference(run, found, erm)} |")


def told(found: Any, name: str) -> str:
    """Return a figure as a text; none where it was not measured."""
    key = KEYS.get(name, name)
    if key not in found:
        return ""
    value = figure(found, name, resampled(found[key].shape[-1])[:1])[0]
    return f"{value:.3f}" if name == "ACR" else f"{100 * value:.1f}"


def difference(run: Run, found: Any, erm: Any) -> str:
    """Return by how much the figure that a recipe exists for is larger than erm's, and whether it is for sure."""
    if run.name == "erm":
        return ""
    scale, digits = (1, 3) if run.figure == "ACR" else (100, 1)
    weights = resampled(found[KEYS.get(run.figure, run.figure)].shape[-1])
    change = scale * (figure(found, run.figure, weights) - figure(erm, run.figure, weights))
    low, high = np.quantile(change[1:], (0.025, 0.975))
    reach = f"{run.figure} {change[0]:+.{digits}f} ({low:+.{digits}f} to {high:+.{digits}f})"
    return reach if low > 0 else f"{reach}: **does not beat erm**"


def main() -> None:
    """Run, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "table"))
    parser.add_argument("--train", type=Path)
    parser.add_argument("--test", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--passes", type=float, default=20, help="times all images go through the network")
    parser.add_argument("--images", type=int, default=2000, help="test images")
    parser.add_argument("--certified", type=int, default=500, help="test images that get certificates")
    parser.add_argument("--samples", type=int, default=1000, help="noises of a certificate")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin nothing after so many")
    parser.add_argument("--recipes", nargs="*", default=())
    options = parser.parse_args()
    run_all(options) if options.what == "run" else table(options)


if __name__ == "__main__":
    main()
