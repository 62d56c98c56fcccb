"""Why searched chains do not beat random ones on CamVid here: small segmenters, and one setting changed at a time.

    python -m benchmarks.reproduce.segmentation_causes --data data

For each seed, segmenters with equal settings are trained on random chains (rda) and on chains found by evolution
(esda): with one chain a batch, as in table 5 of Volpi & Murino 2019; with a chain for every image, which batch
normalisation cannot remove; and, for esda, with a search after every epoch, which gives it more chains. Each is then
searched by evolution; its accuracy under the chain found is also measured with the statistics of test batches. Scenes
have half the side of `segmentation_table.py`, so that a processor's core trains a segmenter in a minute.
"""

from __future__ import annotations

import argparse
import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.reproduce.record import Figures, options_of
from benchmarks.reproduce.segmentation_table import BATCH, VOID, scenes_of, trained, worst
from shiftproof.searchers import make_space
from shiftproof.shifts import ImageChain

SIZES: dict[str, dict[str, Any]] = {
    "tiny": {
        "train": 4, "test": 2, "epochs": 2, "every": 1, "width": 2, "budget": 10, "searched": 2, "found": 10, "runs": 1,
    },
    "sample": {
        "train": 16, "test": 4, "epochs": 6, "every": 3, "width": 4, "budget": 20, "searched": 4, "found": 10,
        "runs": 1,
    },
    "short": {
        "train": 80, "test": 20, "epochs": 30, "every": 4, "width": 8, "budget": 200, "searched": 20, "found": 30,
        "runs": 3,
    },
}  # fmt: skip
STRIDE = 2
"""Every so manieth pixel of a side is taken."""
SETTINGS: dict[str, tuple[tuple[str, ...], dict[str, int]]] = {
    "one chain per batch": (("rda", "esda"), {}),
    "one chain per image": (("rda", "esda"), {"per_batch": BATCH}),
    "one chain per image, search every epoch": (("esda",), {"per_batch": BATCH, "every": 1}),
}
"""What is changed -> the recipes trained so, and the sizes that differ."""


def main() -> None:
    """Train and search the segmenters of every seed, and write what each does under its worst chain."""
    options = options_of(__doc__, tuple(SIZES))
    size = SIZES[options.size]
    cut = [
        f"a segmenter of {size['width']} channels at 120 x 90 for {size['epochs']} epochs on {size['train']} images, "
        f"{size['runs']} runs (paper: FC-DenseNet-103 at 480 x 360, 300 epochs, 3 runs)",
        f"searches of {size['budget']} chains on {size['test']} test images; esda searches every {size['every']} "
        f"epochs, {size['found']} chains on {size['searched']} training images",
    ]
    figures = Figures("worst-case-camvid-causes", options, cut)
    folder = options.data / "camvid-small"
    train, test = (_scenes(folder, part, size[part]) for part in ("train", "test"))
    for seed in range(options.seed, options.seed + size["runs"]):
        for setting, (recipes, changed) in SETTINGS.items():
            for recipe in recipes:
                name = f"{setting}, {recipe}"
                rows = dict(figures.parts.get(name, {}))
                if str(seed) in rows or figures.late:
                    continue
                about = argparse.Namespace(part=recipe, seed=seed, device=options.device)
                figures.add(name, {**rows, str(seed): _run({**size, **changed}, train, test, about)})


def _scenes(folder: Path, part: str, count: int) -> tuple[Any, Any]:
    images, maps = scenes_of(folder, part, count)
    return images[:, ::STRIDE, ::STRIDE], maps[:, ::STRIDE, ::STRIDE]


def _run(size: dict[str, Any], train: tuple[Any, Any], test: tuple[Any, Any], options: Any) -> dict[str, Any]:
    """Return what a segmenter of one recipe and seed does on test scenes, and under its worst chain."""
    network, chains = trained(options, size, *train)
    found = worst(network, *test, "evolution", size["budget"], len(test[0]), options)
    chain = make_space("camvid").chain(found.best.genes)
    return {
        "clean": found.clean,
        "worst": found.worst,
        "adapted": pixel_accuracy(with_batch_statistics(network), *test, chain),
        "tuple": found.to_json()["worst_tuple"],
        "chains": len(chains),
    }


def with_batch_statistics(network: nn.Module) -> nn.Module:
    """Return a copy whose batch normalisation takes the statistics of each batch in place of those of training."""
    found = copy.deepcopy(network).eval()
    for module in found.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean = module.running_var = None
    return found


@torch.no_grad()
def pixel_accuracy(network: nn.Module, images: Any, maps: Any, chain: ImageChain) -> float:
    """Return the share of pixels, but void ones, that are right under a chain, in batches as in training."""
    device = next(network.parameters()).device
    right = count = 0
    for rows in np.array_split(np.arange(len(images)), -(-len(images) // BATCH)):
        keys = torch.from_numpy(rows).to(device)
        shown = torch.from_numpy(images[rows]).permute(0, 3, 1, 2).to(device).float() / 255
        truth = torch.from_numpy(np.ascontiguousarray(maps[rows])).to(device)
        answers, known = network(chain(shown, keys)).argmax(1), truth != VOID
        right += int(((answers == truth) & known).sum())
        count += int(known.sum())
    return right / count


if __name__ == "__main__":
    main()
