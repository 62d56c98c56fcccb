"""Volpi & Murino 2019, table 5: the worst tuple for a segmenter of street scenes, and training against it.

    python -m benchmarks.reproduce.segmentation_table --data data --part esda --device cuda

`camvid-small/` in the data folder holds `train`, `test` (images) and `train-labels`, `test-labels` (label maps, 11 is
void). The segmenter is a small encoder and decoder, trained here since `shiftproof.train` trains classifiers; tuples
come from `shiftproof.search` and its spaces.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

import shiftproof
from benchmarks.reproduce.record import Figures, options_of
from shiftproof.models import Normalize
from shiftproof.searchers import make_space
from shiftproof.searchers.uniform import draw_tuples
from shiftproof.shifts import ImageChain

RECIPES = ("erm", "rda", "rsda", "esda")
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"train": 4, "test": 2, "epochs": 2, "every": 1, "width": 4, "budget": 10, "searched": 2, "found": 10},
    "sample": {
        "train": 20, "test": 6, "epochs": 6, "every": 2, "width": 8, "budget": 20, "searched": 4, "found": 20,
    },
    "short": {
        "train": 200, "test": 30, "epochs": 60, "every": 5, "width": 24, "budget": 500, "searched": 30, "found": 100,
    },
}  # fmt: skip
VOID, CLASSES, LENGTH, BATCH = 11, 11, 5, 8


class Segmenter(nn.Module):
    """Four scales of convolutions down and up with skips, from [0, 1] images to scores for each pixel [N, 11, H, W]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.normalize = Normalize((0.41, 0.42, 0.43), (0.3, 0.31, 0.3))
        widths = [width, 2 * width, 4 * width, 8 * width]
        self.down = nn.ModuleList(_block(*pair) for pair in zip([3, *widths[:-1]], widths, strict=True))
        self.up = nn.ModuleList(_block(deep + here, here) for deep, here in zip(widths[1:], widths[:-1], strict=True))
        self.head = nn.Conv2d(width, CLASSES, 1)

    def forward(self, images: Tensor) -> Tensor:
        """Return scores for each pixel."""
        x, skips = self.normalize(images), []
        for place, block in enumerate(self.down):
            x = block(x if place == 0 else nn.functional.max_pool2d(x, 2, ceil_mode=True))
            skips.append(x)
        for block, skip in zip(reversed(self.up), reversed(skips[:-1]), strict=True):
            x = block(torch.cat([nn.functional.interpolate(x, size=skip.shape[2:]), skip], 1))
        scores: Tensor = self.head(x)
        return scores


def _block(inputs: int, outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for channels in (inputs, outputs):
        layers += [nn.Conv2d(channels, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers)


def main() -> None:
    """Train one segmenter, search its worst tuples, and write the figures."""
    options = options_of(__doc__, tuple(SIZES), part={"choices": RECIPES, "default": "erm"})
    size = SIZES[options.size]
    cut = [
        f"a small segmenter at 240 x 180 for {size['epochs']} epochs on {size['train']} images, one run (paper: "
        "FC-DenseNet-103 at 480 x 360, 300 epochs, 3 runs)",
        f"searches of {size['budget']} chains on {size['test']} test images",
    ]
    figures = Figures(f"worst-case-camvid-{options.part}", options, cut)
    scenes, maps = scenes_of(options.data / "camvid-small", "train", size["train"])
    network, tuples = trained(options, size, scenes, maps)
    figures.add("training", {"recipe": options.part, "tuples": [chain.label for chain in tuples]})
    test, truth = scenes_of(options.data / "camvid-small", "test", size["test"])
    for searcher, name in (("random", "RS"), ("evolution", "ES")):
        if figures.late:
            return
        found = worst(network, test, truth, searcher, size["budget"], len(test), options)
        figures.add(name, {"clean": found.clean, "worst": found.worst, "tuple": found.to_json()["worst_tuple"]})


def scenes_of(folder: Path, part: str, count: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return images uint8 [N, H, W, 3] and label maps [N, H, W] of a part, evenly spread where not all are taken."""
    files = sorted((folder / part).glob("*.jpg"))
    taken = [files[place] for place in np.linspace(0, len(files) - 1, min(count, len(files))).astype(int)]
    labels = [folder / f"{part}-labels" / f"{path.stem}.png" for path in taken]
    images = np.stack([np.asarray(Image.open(path).convert("RGB")) for path in taken])
    return images, np.stack([np.asarray(Image.open(path)) for path in labels]).astype(np.int64)


def worst(network: nn.Module, images: Any, maps: Any, searcher: str, budget: int, count: int, options: Any) -> Any:
    """Return a search for the tuple under which fewest pixels are right."""
    network.eval()
    return shiftproof.search(
        network,
        images,
        targets=maps,
        ignore=VOID,
        fitness="pixel_accuracy",
        space="camvid",
        length=LENGTH,
        searcher=searcher,
        budget=budget,
        images=count,
        seed=options.seed,
        device=options.device,
        batch_size=BATCH,
    )


def trained(options: Any, size: dict[str, Any], images: Any, maps: Any) -> tuple[nn.Module, list[ImageChain]]:
    """Train a segmenter; with rda every batch gets a tuple, with rsda and esda one of those found so far, or none.

    With `per_batch` in the size, a batch is cut in so many parts, each with a tuple of its own.
    """
    recipe, device, found = options.part, torch.device(options.device), list[ImageChain]()
    space, parts = make_space("camvid"), size.get("per_batch", 1)
    rng = np.random.default_rng(options.seed)
    torch.manual_seed(options.seed)
    network = Segmenter(size["width"]).to(device)
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2).to(device)
    truth = torch.from_numpy(maps).to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    steps = size["epochs"] * -(-len(images) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    step = 0
    for epoch in range(size["epochs"]):
        if recipe in ("rsda", "esda") and epoch and epoch % size["every"] == 0:
            chosen = rng.permutation(len(images))[: size["searched"]]
            by = "random" if recipe == "rsda" else "evolution"
            trace = worst(network, images[chosen], maps[chosen], by, size["found"], len(chosen), options)
            found.append(space.chain(trace.best.genes))
        network.train()
        for rows in np.array_split(rng.permutation(len(images)), -(-len(images) // BATCH)):
            places = torch.from_numpy(rows).to(device)
            batch = pixels[places].float() / 255
            if recipe == "rda":
                drawn = draw_tuples(space, LENGTH, range(parts * step, parts * (step + 1)), seed=options.seed)
                batch = _under([space.chain(genes) for genes in drawn], batch, places)
            elif found:
                which = [int(rng.integers(len(found) + 1)) for _ in range(parts)]
                batch = _under([found[one - 1] if one else None for one in which], batch, places)
            loss = nn.functional.cross_entropy(network(batch), truth[places], ignore_index=VOID)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            schedule.step()
            step += 1
    return network.eval(), found


def _under(chains: Sequence[ImageChain | None], images: Tensor, keys: Tensor) -> Tensor:
    """Return images in as many parts as there are chains, each under its own; None leaves a part as it is."""
    pairs = zip(images.tensor_split(len(chains)), keys.tensor_split(len(chains)), strict=True)
    return torch.cat(
        [part if chain is None else chain(part, some) for chain, (part, some) in zip(chains, pairs, strict=True)]
    )


if __name__ == "__main__":
    main()
