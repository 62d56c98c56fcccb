"""Train recipes on CIFAR-10 for certification: the networks behind the rows of Sun et al. 2022, table 1.

    python benchmarks/reproduce/train_cifar.py train.npz --test test.npz --epochs 30 --out runs
    shiftproof certify --model runs/fouriermix+hcr --data test.npz --sigma 0.25

The paper trains a ResNet-110 for 200 epochs; fewer epochs and a smaller network show the order of the recipes. A run
that is killed goes on with the same command.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch

import shiftproof
from shiftproof.training import recipe

RECIPES = (
    "gaussian",
    "gaussian+jsd",
    "autoaugment+jsd",
    "augmix+jsd",
    "augmix+hcr",
    "fouriermix+jsd",
    "fouriermix+hcr",
)


def main() -> None:
    """Train one network after the other, and print and keep what each comes to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", help="an .npz file with images and labels, or CIFAR's published files")
    parser.add_argument("--test", help="images for the accuracy at the end of every epoch")
    parser.add_argument("--recipes", nargs="+", default=list(RECIPES))
    parser.add_argument("--model", default="resnet20")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--sigma", type=float, default=0.25)
    parser.add_argument("--schedule", default="cosine")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=Path("runs"))
    options = parser.parse_args()

    for name in options.recipes:
        start = time.perf_counter()
        trained = shiftproof.train(
            options.model,
            options.train,
            recipe=name,
            sigma=None if recipe(name).noise == "none" else options.sigma,
            epochs=options.epochs,
            batch_size=options.batch_size,
            schedule=options.schedule,
            validation=options.test,
            device=options.device,
            out=options.out / name,
        )
        row = {**trained.to_row(), "minutes": round((time.perf_counter() - start) / 60, 2)}
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
