"""How fast certificates are made, against the bare model and the classic loop; and how many samples the rules take.

    python benchmarks/certify.py                                              # the demo on a CPU
    python benchmarks/certify.py --device cuda --network resnet110 --dtype bfloat16 --compile
    python benchmarks/certify.py --against l2,brightness,contrast+brightness,blur,translation

Throughput (untrained weights are as fast as trained ones): noisy images per second of `Smoothed.certify`, of the bare
forward pass of the same prepared model on images that are already there, at the best of several batch sizes, and of the
classic loop: one image at a time, batches of 1,000, float32 and eager, noise from `torch.randn`, counts on the host.

Samples (`--rules`): what the rules take on labelled images, against n for each of them, and the average certified
radius they reach. On CUDA they are drawn. On a CPU, where 100,000 samples of one image take minutes, a pilot of a few
hundred samples gives each image a probability (drawn from its Beta posterior), and counts are simulated from it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import shiftproof
from shiftproof.certificates import Fixed, Rule, Smoothed, make_rule
from shiftproof.certificates.smoothed import batch_size_for
from shiftproof.models import build_network

CLASSIC_BATCH = 1000
SIGMA = 0.25
BATCHES = {"cpu": (32, 64, 128, 256), "cuda": (2048, 4096)}
"""Sizes tried for the bare forward pass; a compiled model is compiled for each."""


def main() -> None:
    """Print the tables asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--network", default="resnet20", help="reference network for the throughput")
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--batches", default="", help="batch sizes of the bare forward pass, separated by commas")
    parser.add_argument("--images", type=int, default=8, help="images certified at a time for the throughput")
    parser.add_argument("--n", type=int, default=None, help="samples an image; default 100,000 on CUDA, 1,000 on a CPU")
    parser.add_argument("--against", default="l2", help="what is certified against, separated by commas")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="cpu counts processor time")
    parser.add_argument("--rules", action="store_true", help="samples by rule, instead of throughput")
    parser.add_argument("--model", default="demo", help="for --rules: what load_model takes")
    parser.add_argument("--weights", default=None)
    parser.add_argument("--data", default="demo")
    parser.add_argument("--sigma", type=float, default=0.03)
    parser.add_argument("--labelled", type=int, default=100, help="for --rules: images")
    parser.add_argument("--pilot", type=int, default=300, help="for --rules on a CPU: samples that estimate p")
    options = parser.parse_args()
    if options.rules:
        rules(options)
    else:
        throughput(options)


def throughput(options: argparse.Namespace) -> None:
    """Compare `Smoothed.certify` with the bare forward pass and with the classic loop."""
    device = torch.device(options.device)
    torch.manual_seed(0)
    network = build_network(options.network).eval().to(device)
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
        torch.backends.cudnn.benchmark = True
    n = options.n or (100_000 if device.type == "cuda" else 1_000)
    shape = (3, options.side, options.side)
    images = torch.rand(options.images, *shape)
    each = {
        against: Smoothed(network, SIGMA, dtype=options.dtype, compile=options.compile, against=against)
        for against in options.against.split(",")
    }
    model, dtype = next((one.model, one.dtype) for one in each.values())
    rules = {against: Fixed(sigma=SIGMA, n=n, futility=False, against=against) for against in each}
    for against, smoothed in each.items():  # warm: compiles, chooses
        smoothed.certify(images[:1], n0=100, rule=replace(rules[against], n=1000))

    sizes = [int(size) for size in options.batches.split(",") if size] or BATCHES[device.type]
    bare: dict[int, list[float]] = {size: [] for size in sizes}
    ours: dict[str, list[float]] = {against: [] for against in each}
    classic: list[float] = []
    for _ in range(options.repeats):  # in turn, so that a busy machine is busy for all of them
        for size, some in bare.items():
            some.append(forward_rate(model, torch.rand(size, *shape, device=device).to(dtype), options.clock))
        for against, smoothed in each.items():
            made = partial(smoothed.certify, images, n0=100, rule=rules[against])
            ours[against].append(options.images * (n + 100) / timed(made, device, options.clock))
        spent = timed(lambda: classic_loop(network, images[0].to(device), 0.25, n), device, options.clock)
        classic.append((n + 100) / spent)
    rates = {size: float(np.median(some)) for size, some in bare.items()}
    best = max(rates.values())
    print(f"{options.network}, {options.side} px, {options.dtype}{', compiled' if options.compile else ''}, {device}")
    print(f"n = {n:,}; batches of {batch_size_for(device, int(np.prod(shape)))}; median of {options.repeats}\n")
    for size, rate in rates.items():
        print(f"bare forward, batches of {size:<6} {rate:>12,.0f} images/s")
    old = float(np.median(classic))
    for against, some in ours.items():
        mine = float(np.median(some))
        told = f"{mine / best:6.1%} of the best bare forward, {mine / old:.2f} times the classic loop"
        print(f"against {against:<22} {mine:>12,.0f} samples/s  {told}")
    print(f"classic loop                   {old:>12,.0f} samples/s")


def forward_rate(model: Callable[[Tensor], Any], batch: Tensor, clock: str) -> float:
    """Return images per second of forward passes alone."""
    with torch.no_grad():
        model(batch)
        passes = max(2, (8192 if batch.is_cuda else 512) // len(batch) * 4)

        def run() -> None:
            for _ in range(passes):
                model(batch)

        return passes * len(batch) / timed(run, batch.device, clock)


def classic_loop(network: nn.Module, image: Tensor, sigma: float, n: int) -> None:
    """Certify one image as the first implementations did: select with 100 samples, count n in batches of 1,000."""
    for wanted in (100, n):
        counts = np.zeros(10, int)
        for start in range(0, wanted, CLASSIC_BATCH):
            size = min(CLASSIC_BATCH, wanted - start)
            with torch.no_grad():
                batch = image.repeat((size, 1, 1, 1))
                predicted = network(batch + torch.randn_like(batch) * sigma).argmax(1)
            np.add.at(counts, predicted.cpu().numpy(), 1)


def rules(options: argparse.Namespace) -> None:
    """Compare the samples that rules take, and the average certified radius they reach."""
    device = torch.device(options.device)
    model = shiftproof.load_model(options.model, device=options.device, weights=options.weights)
    data = shiftproof.load_data(options.data).take(options.labelled)
    (batch,) = data.batches(len(data))
    labels = batch.labels
    if labels is None:
        raise SystemExit("images with labels are needed")
    n, sigma = options.n or 100_000, options.sigma
    smoothed = Smoothed(model, sigma, dtype=options.dtype, compile=options.compile)
    chosen: dict[str, Rule] = {
        "fixed, Cohen et al.": make_rule("fixed", sigma=sigma, n=n, futility=False),
        "fixed, skip and futility": make_rule("fixed", sigma=sigma, n=n),
        "sequential": make_rule("sequential", sigma=sigma, n=n),
        **{f"radius {r:g}": make_rule("radius", sigma=sigma, n=n, radius=r) for r in (sigma, 2 * sigma, 3 * sigma)},
    }
    drawn = device.type == "cuda"
    if not drawn:
        made = smoothed.certify(
            batch.inputs, labels, keys=batch.keys, rule=Fixed(sigma=sigma, n=options.pilot, futility=False)
        )
        rng = np.random.default_rng(0)
        right = np.array([not each.skipped for each in made])
        p = np.array([rng.beta(each.hits + 0.5, each.samples - each.hits + 0.5) for each in made])
    print(f"{options.model} on {len(data)} images, sigma {sigma:g}, n = {n:,}, {'drawn' if drawn else 'simulated'}\n")
    print("rule                      samples per image   share of n      ACR   certified at the radius")
    for name, rule in chosen.items():
        aware = name != "fixed, Cohen et al."
        if drawn:
            made = smoothed.certify(batch.inputs, labels if aware else None, keys=batch.keys, rule=rule)
            correct = np.array([each.guess for each in made]) == labels.numpy()
            radii = np.array([each.radius for each in made]) * correct
            samples = float(np.mean([each.samples + 100 for each in made]))
        else:
            radii, taken = simulated(rule, p, right if aware else np.ones_like(right), rng)
            radii, samples = radii * right, float(taken.mean()) + 100
        print(f"{name:<26}{samples:>17,.0f}{samples / n:>13.1%}{radii.mean():>9.4f}{(radii > 0).mean():>12.1%}")


def simulated(
    rule: Rule, p: NDArray[np.float64], counted: NDArray[np.bool_], rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Run a rule on binomial counts with probabilities p: radii and samples by image."""
    hits, radii, samples = np.zeros(len(p), np.int64), np.zeros(len(p)), np.zeros(len(p), np.int64)
    going, before = np.flatnonzero(counted), 0
    for look, n in enumerate(rule.looks):
        hits[going] += rng.binomial(n - before, p[going])
        claimed, done = rule.judge(look, hits[going])
        radii[going[done]], samples[going[done]] = claimed[done], n
        going, before = going[~done], n
    return radii, samples


def timed(work: Callable[[], object], device: torch.device, clock: str) -> float:
    """Return the seconds that work takes, on the device's own time."""
    read = time.process_time if clock == "cpu" else time.perf_counter
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = read()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return read() - start


if __name__ == "__main__":
    main()
