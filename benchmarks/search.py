"""Speed of worst-case search: transformations against Pillow, shared first steps, and what searchers need.

    python benchmarks/search.py --part transforms
    python benchmarks/search.py --part prefixes
    python benchmarks/search.py --part searchers --images 100 --seeds 5 --out runs/
    python benchmarks/search.py --device cuda

`transforms`: tuples applied to a batch of 1,000 images per second, ours and Pillow's, image by image, from arrays to
arrays, in turns; the best round of each counts. `prefixes`: the tuples that an evolution tries, applied with and
without keeping what shared first steps make. `searchers`: random search, evolution and racing on the demo model; every
evaluation is kept in `--out`, and the same command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageOps

from shiftproof.data import load_images
from shiftproof.searchers import Score, Space, evolution, make_space, search
from shiftproof.searchers.applying import MEMORY, Applier
from shiftproof.searchers.evaluator import HeldImages, hold
from shiftproof.searchers.space import Genes
from shiftproof.searchers.uniform import draw_tuples
from shiftproof.shifts import Operation
from shiftproof.shifts.image_shift import CACHED

LENGTH = 5
CHANNELS = ("red_shift", "green_shift", "blue_shift")


def pillow_step(step: Operation) -> Callable[[Image.Image], Image.Image]:
    """Return an operation of the published spaces made with Pillow; tables are made once for all images."""
    level = step.level or 0
    if step.name in CHANNELS:
        channel = CHANNELS.index(step.name)
        table = [min(max(value + int(level), 0), 255) for value in range(256)]

        def shift(image: Image.Image) -> Image.Image:
            bands = list(image.split())
            bands[channel] = bands[channel].point(table)
            return Image.merge("RGB", bands)

        return shift
    if step.name == "grayscale":
        return lambda image: ImageOps.grayscale(image).convert("RGB")
    if step.name == "autocontrast":
        return lambda image: ImageOps.autocontrast(image, level)
    if step.name == "solarize":
        return lambda image: ImageOps.solarize(image, int(level))
    enhancer = getattr(ImageEnhance, step.name.capitalize())
    return lambda image: enhancer(image).enhance(level)


def with_pillow(images: NDArray[np.uint8], steps: Sequence[Operation]) -> NDArray[np.uint8]:
    """Apply a tuple image by image, [N, H, W, 3]."""
    made = np.empty_like(images)
    functions = [pillow_step(step) for step in steps]
    for place, array in enumerate(images):
        image = Image.fromarray(array)
        for function in functions:
            image = function(image)
        made[place] = np.asarray(image)
    return made


def apply_all(pixels: HeldImages, space: Space, tuples: Sequence[Genes], memory: int) -> torch.Tensor:
    """Apply tuples to all images as a search does, in its order and its parts; return the last images."""
    applier = Applier(pixels.images, pixels.keys, memory=memory)
    on_cpu = pixels.images.device.type == "cpu"
    part = CACHED // pixels.images[0].numel() if on_cpu else len(pixels)
    levels = pixels.images
    for genes in sorted(tuples):
        steps = [space.steps[gene] for gene in genes]
        for start in range(0, len(pixels), part):
            levels = applier.levels(steps, start, min(start + part, len(pixels)))
    if not on_cpu:
        torch.cuda.synchronize()
    return levels


def seconds(work: Callable[[], object], clock: Callable[[], float]) -> float:
    """Return how long some work takes."""
    start = clock()
    work()
    return clock() - start


def transforms(device: str, rounds: int) -> None:
    """Compare tuples per second with Pillow's."""
    space = make_space("cifar")
    data = load_images("demo")
    pixels = hold(data, device)
    array = pixels.images.permute(0, 2, 3, 1).contiguous().cpu().numpy()
    tuples = draw_tuples(space, LENGTH, range(20))
    clock = time.process_time if device == "cpu" else time.perf_counter
    steps = [[step for gene in genes if isinstance(step := space.steps[gene], Operation)] for genes in tuples]
    applier = Applier(pixels.images, pixels.keys, memory=0)
    for some in steps[:3]:
        ours = applier.levels(some, 0, 100).to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy()
        assert np.array_equal(ours, with_pillow(array[:100], some)), "not the bits of Pillow"
    best = [float("inf"), float("inf")]
    for _ in range(rounds):
        best[0] = min(best[0], seconds(lambda: apply_all(pixels, space, tuples, 0), clock) / len(tuples))
        best[1] = min(best[1], seconds(lambda: [with_pillow(array, some) for some in steps], clock) / len(tuples))
    print(f"transformations alone, 1,000 images of 32 pixels, tuples of {LENGTH}, {device}, one thread:")
    print(f"  ours {1 / best[0]:8.1f} tuples/s   Pillow {1 / best[1]:6.2f} tuples/s   ratio {best[1] / best[0]:.1f}")


def prefixes(device: str, rounds: int) -> None:
    """Compare the same evolution with and without shared first steps."""
    space, pixels = make_space("cifar"), hold(load_images("demo"), device)
    clock = time.process_time if device == "cpu" else time.perf_counter
    generations: list[Sequence[Genes]] = []

    def watched(tuples: Sequence[Genes], images: int | None = None, /) -> list[Score]:
        generations.append(tuples)
        # A number that favours no operation, so that the mix of operations stays that of random tuples.
        return [Score(sum((place + 3) * gene for place, gene in enumerate(genes)) % 101 / 100) for genes in tuples]

    evolution(space, watched, length=LENGTH, budget=200)

    def run(memory: int) -> None:
        applier = Applier(pixels.images, pixels.keys, memory=memory)
        part = CACHED // pixels.images[0].numel() if device == "cpu" else len(pixels)
        for tuples in generations:
            for genes in sorted(set(tuples)):
                for start in range(0, len(pixels), part):
                    applier.levels([space.steps[gene] for gene in genes], start, min(start + part, len(pixels)))
        if device != "cpu":
            torch.cuda.synchronize()
        applied.append(applier.applied)

    applied: list[int] = []
    best = {memory: min(seconds(partial(run, memory), clock) for _ in range(rounds)) for memory in (0, MEMORY)}
    print(f"the tuples of an evolution of 200 evaluations, 1,000 images, {device}:")
    for memory, taken in best.items():
        print(f"  {memory / 2**20:4.0f} MiB kept: {200 / taken:7.1f} tuples/s")
    print(f"  steps applied: {applied[0]:,} without, {applied[-1]:,} with; ratio of times {best[0] / best[MEMORY]:.2f}")


def searchers(device: str, images: int, seeds: int, budget: int, out: Path) -> None:
    """Compare what searchers find, and with how much."""
    print(f"demo model, {images} images, space cifar, tuples of {LENGTH}, budget {budget}:")
    print("  seed  random  0.1%   evolution  reaches it after  racing  images of random's")
    worse = 0
    for seed in range(seeds):
        options: dict[str, Any] = {"images": images, "budget": budget, "seed": seed, "device": device}
        found = {
            name: search("demo", "demo", searcher=name, length=LENGTH, out=out / str(seed), **options)
            for name in ("random", "evolution", "racing")
        }
        lowest = {name: one.worst for name, one in found.items()}
        mark = found["random"].trace.quantile() or 0.0
        below = np.flatnonzero(found["evolution"].trace.best_so_far() <= mark)
        share = found["racing"].trace.image_evaluations(images) / found["random"].trace.image_evaluations(images)
        worse += lowest["evolution"] < lowest["random"]
        reached = f"{below[0] + 1}" if len(below) else "never"
        print(
            f"  {seed:4}  {lowest['random']:.3f}   {mark:.3f}  {lowest['evolution']:.3f}      {reached:>16}  "
            f"{lowest['racing']:.3f}   {share:.3f}",
            flush=True,
        )
    print(f"  evolution finds a worse tuple in {worse} of {seeds}")


def main() -> None:
    """Run the parts asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("transforms", "prefixes", "searchers"), action="append")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--budget", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("search-benchmark"))
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    parts = given.part or ["transforms", "prefixes", "searchers"]
    if "transforms" in parts:
        transforms(given.device, given.rounds)
    if "prefixes" in parts:
        prefixes(given.device, given.rounds)
    if "searchers" in parts:
        searchers(given.device, given.images, given.seeds, given.budget, given.out)


if __name__ == "__main__":
    main()
