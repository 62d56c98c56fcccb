"""What robust training costs: images per second of every recipe over erm's at as many passes through the network.

    python benchmarks/train.py --device cuda             # ResNet-20, batches of 512, bf16
    python benchmarks/train.py --network convnet --batch 64 --steps 4 --rounds 1
    python benchmarks/train.py --fouriermix              # batched on a CPU against one image at a time in numpy

A recipe sends several images through the network for each image of a batch (`passes`: views times noises, and the steps
of an attack; one by the network that training began with, without gradients, counts a third). Its rate is compared with
erm's on as many passes, so that 1.00 means that views, noise and loss cost nothing beside the network: on one batch of
so many images, or, where the passes of a step come one after the other (`turns`), as those of an attack do, on as many
steps. Rounds of two copies of erm and of all recipes with as many passes take turns, and medians count, that of erm
over both copies: how far the copies are apart says how far a ratio can be trusted. A round is what a long training is
made of: its first steps, for which views are made before anything can be trained, do not count, and views for the steps
after it are made while it is timed. On CUDA, where views are made for a block of steps at a time, a round is all of an
epoch, or of several, but its first block: as many views are made as are used, and blocks of the same sizes every time.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import statistics
import time
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from shiftproof.data import ImageSet, load_images
from shiftproof.models import build_network
from shiftproof.searchers import make_space
from shiftproof.searchers.uniform import draw_tuples
from shiftproof.training import feed
from shiftproof.training.adversarial_augmentation import AdversarialAugmentation
from shiftproof.training.denoiser_training import DenoiserInTraining
from shiftproof.training.loop import Loop
from shiftproof.training.objectives import Adversarial
from shiftproof.training.recipes import RECIPES, recipe
from shiftproof.training.settings import TrainingSettings

SIGMA = 0.25


def make_loop(name: str, data: ImageSet, batch: int, options: argparse.Namespace, network: nn.Module) -> Loop:
    """Return a recipe's loop over random images, with a copy of a network."""
    steps_per_epoch = len(data) // batch
    epochs = 4 + 2 * (options.rounds + 2) * (options.steps + steps_per_epoch) // steps_per_epoch
    settings = TrainingSettings(
        epochs=epochs, batch_size=batch, lr=1e-3, schedule="constant", log_every=10**9, framing=options.framing
    )
    chosen = recipe(name)
    if chosen.tuples is not None and chosen.tuples.searcher is not None:
        chosen = chosen.with_options(most=0)  # a search is no part of a step
    fed = feed.Feed(data, chosen, settings, device=torch.device(options.device))
    loop = Loop(copy.deepcopy(network), fed, sigma=SIGMA if chosen.noise != "none" else 0.0)
    if chosen.tuples is not None and chosen.tuples.searcher is not None:
        loop.found = draw_tuples(make_space(chosen.tuples.space), chosen.tuples.length, range(20))
    return loop


def network_of(name: str, options: argparse.Namespace) -> nn.Module:
    """Return what a recipe trains: a classifier, or a denoiser before one, of which erm trains the same weights."""
    torch.manual_seed(0)
    classifier, denoising = build_network(options.network), recipe(name).denoising
    return classifier if denoising is None else DenoiserInTraining(classifier, 3, SIGMA, denoising)


def seconds(loop: Loop, steps: int, device: str) -> float:
    """Return the seconds of a step, over so many; where views are made in blocks, over those that end with an epoch."""
    if device == "cuda":
        block, epoch = loop.feed.block, loop.feed.steps_per_epoch
        if loop.recipe.augment is not None:
            steps = -(-(block + steps) // epoch) * epoch - block
        loop.run(loop.step + min(steps, block), lambda _: None)
        torch.cuda.synchronize()
    start = time.perf_counter()
    loop.run(loop.step + steps, lambda _: None)
    if device == "cuda":
        torch.cuda.synchronize()
    spent = time.perf_counter() - start
    loop.close()  # or it would go on while others are timed
    return spent / steps


def passes_of(name: str) -> float:
    """Return how many passes with gradients cost as much as those of a recipe."""
    objective = RECIPES[name].objective
    return objective.passes + (1 / 3 if objective.anchored else 0)


def turns_of(name: str) -> int:
    """Return how many calls of the network a step makes, one after the other."""
    objective = RECIPES[name].objective
    if isinstance(objective, Adversarial):
        return objective.steps + 1
    return objective.steps + 2 if isinstance(objective, AdversarialAugmentation) else 1


def groups(names: list[str]) -> list[list[str]]:
    """Return the recipes that erm stands beside at once: those with as many passes, of what trains the same weights."""
    made: dict[tuple[float, int, bool], list[str]] = {}
    for name in names:
        made.setdefault((passes_of(name), turns_of(name), RECIPES[name].denoising is None), []).append(name)
    return list(made.values())


def compare(names: list[str], data: ImageSet, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Return the rates of recipes, and of erm at as many passes as theirs, in images per second."""
    passes, turns = passes_of(names[0]), turns_of(names[0])
    network = network_of(names[0], options)
    steps = max(2, round(options.steps / max(1.0, passes / 3)))  # those of attacks are long

    def erm(images: float) -> Loop:
        return make_loop("erm", data, round(options.batch * images), options, network)

    recipes = [(make_loop(name, data, options.batch, options, network), steps) for name in names]
    copies = [(erm(passes / turns), steps * turns) for _ in range(2)]
    whole = [(erm(passes), steps)] if turns > 1 else []  # and all passes as one batch
    loops = [copies[0], *recipes, copies[1], *whole]
    for loop, _ in loops:
        seconds(loop, 2, options.device)  # kernels are looked for
    rounds = [[count * seconds(loop, count, options.device) for loop, count in loops] for _ in range(options.rounds)]
    first, *spent = zip(*rounds, strict=True)
    second = spent.pop(len(names))
    beside, *rates = [options.batch * steps / statistics.median(times) for times in ((*first, *second), *spent)]
    return {
        name: {
            "passes": passes,
            "images per second": rate,
            "erm at as many passes": beside,
            "ratio": rate / beside,
            "copies of erm": statistics.median(first) / statistics.median(second),
            **({"ratio to one batch": rate / rates[-1]} if whole else {}),
        }
        for name, rate in zip(names, rates, strict=False)
    }


def fouriermix_numpy(image: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Return FourierMix of one image [H, W, 3] in [0, 1], written plainly: numpy for spectra, scipy for the views."""
    from scipy import ndimage
    from scipy.special import erf, erfinv

    from shiftproof.shifts.spectral.fouriermix import AMPLITUDES, DEGREES, PHASE_SIGMA, PHASES, SHARE, SLOPE, ZOOM

    height, width, _ = image.shape
    mixed = np.zeros_like(image)
    for weight in rng.dirichlet(np.ones(3)):
        spectrum = np.fft.rfft2(image, axes=(0, 1))
        amplitude, limit = rng.choice(AMPLITUDES), rng.choice(PHASES["cifar"])
        scale = math.sqrt(2.0) * PHASE_SIGMA
        phase = scale * erfinv(rng.uniform(-1, 1, spectrum.shape) * erf(limit / scale))
        factor = rng.uniform(1 - amplitude, 1 + amplitude, spectrum.shape)
        changed = np.abs(spectrum) * factor * np.exp(1j * (np.angle(spectrum) + phase))
        fourier = np.fft.irfft2(changed, s=(height, width), axes=(0, 1))
        angle, grow = math.radians(rng.uniform(-DEGREES, DEGREES)), 1 + rng.uniform(-ZOOM, ZOOM)
        cosine, sine = math.cos(angle) / grow, math.sin(angle) / grow
        turn = np.array([[cosine, sine], [-sine, cosine]]) @ np.array([[1, 0], [rng.uniform(-SLOPE, SLOPE), 1]])
        centre = np.array([height / 2 - 0.5, width / 2 - 0.5])
        offset = centre - turn @ centre + rng.uniform(-SHARE, SHARE, 2) * (height, width)
        view = np.stack(
            [ndimage.affine_transform(image[..., c], turn, offset, order=1, mode="constant") for c in range(3)], axis=2
        )
        blend = rng.beta(1, 1)
        mixed += weight * (blend * fourier + (1 - blend) * view)
    kept = rng.beta(1, 1)
    return np.clip(kept * image + (1 - kept) * mixed, 0, 1)


def fouriermix(options: argparse.Namespace) -> dict[str, float]:
    """Return the rates of FourierMix, batched and one image at a time, in images per second on one thread."""
    from shiftproof.shifts.spectral.fouriermix import FourierMix

    torch.set_num_threads(1)
    (batch,) = load_images("demo").subset(range(512)).batches(512)
    shift, rng = FourierMix(), np.random.default_rng(0)
    plain = batch.inputs.permute(0, 2, 3, 1).double().numpy()
    found: dict[str, list[float]] = {"batched": [], "numpy": []}
    for number in range(options.rounds + 1):
        start = time.process_time()
        shift(batch.inputs, batch.keys, seed=number)
        between = time.process_time()
        for image in plain[:128]:
            fouriermix_numpy(image, rng)
        end = time.process_time()
        if number:
            found["batched"].append(512 / (between - start))
            found["numpy"].append(128 / (end - between))
    rates = {name: statistics.median(values) for name, values in found.items()}
    return {**rates, "ratio": rates["batched"] / rates["numpy"]}


def main() -> None:
    """Measure, print, and write the results as JSON if wanted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--network", default="resnet20")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--steps", type=int, default=100, help="steps of a round, at least")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--framing", default="pad_crop", help="what every image goes through first, with erm too")
    parser.add_argument("--recipes", nargs="+", default=list(RECIPES))
    parser.add_argument("--fouriermix", action="store_true", help="FourierMix alone, against numpy")
    parser.add_argument("--out", type=Path, help="where to write the results as JSON")
    options = parser.parse_args()

    feed._Held = cache(feed._Held)  # type: ignore[misc, assignment]  # all loops share the images on the device
    results: dict[str, dict[str, float]] = {}
    if options.fouriermix:
        results["fouriermix"] = alone = fouriermix(options)
        print(f"batched {alone['batched']:,.0f}, numpy {alone['numpy']:,.0f} images/s: {alone['ratio']:.1f} times")
    else:
        most = options.batch * max(RECIPES[name].passes + 1 for name in options.recipes)
        count = max(2 * most, 50_000) if options.device == "cuda" else most  # as many as CIFAR-10 has
        images = torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8)
        data = load_images((images, torch.arange(count) % 10))
        print(f"{'recipe':18} passes     images/s   erm at as many   ratio   erm's copies")
        for names in groups(options.recipes):
            results |= (found := compare(names, data, options))
            write(results, options)
            for name, row in found.items():
                rates = f"{row['images per second']:12,.0f} {row['erm at as many passes']:16,.0f}"
                whole = f"   {row['ratio to one batch']:.2f} to one batch" if "ratio to one batch" in row else ""
                told = f"{name:18} {row['passes']:6.2f} {rates} {row['ratio']:7.2f} {row['copies of erm']:14.2f}{whole}"
                print(told, flush=True)
    write(results, options)


def write(results: dict[str, dict[str, float]], options: argparse.Namespace) -> None:
    """Write what there is so far, if wanted."""
    if options.out:
        told = {
            "device": options.device,
            "network": options.network,
            "batch": options.batch,
            "torch": torch.__version__,
        }
        options.out.write_text(json.dumps({**told, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
