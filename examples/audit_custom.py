"""Audit a model of your own, on arrays of your own, and decide in Python.

    python examples/audit_custom.py

The model is any callable from float images N x C x H x W in [0, 1] to one row of scores per image: here, how near the
colours of an image are to the mean colours of each class, on a grid. The data are arrays with labels. Nothing else is
needed; `numbers` holds the figures to decide from, by name.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

import shiftproof
from shiftproof.audits import Audit
from shiftproof.models import BlackBox

GRID = 4
MOST_LOST = 0.10
"""The largest mean accuracy loss under corruption before the model is rejected."""


def nearest_colours() -> BlackBox:
    """Return a classifier that compares colours on a grid with the mean of each class over labelled images."""
    (batch,) = shiftproof.load_data("demo-source").batches(500)
    assert batch.labels is not None
    cells = F.adaptive_avg_pool2d(batch.inputs, GRID).flatten(1)
    means = torch.stack([cells[batch.labels == label].mean(0) for label in range(10)])

    def classify(images: Tensor) -> Tensor:
        return -10 * torch.cdist(F.adaptive_avg_pool2d(images, GRID).flatten(1), means)

    return BlackBox(classify, name="nearest colours")


def run(out: str | Path = "audit-custom", images: int = 300) -> Audit:
    """Audit it under four corruptions at three severities."""
    (batch,) = shiftproof.load_data("demo").take(images, seed=0).batches(images)
    assert batch.labels is not None
    arrays = (batch.inputs * 255).round().byte().permute(0, 2, 3, 1).numpy()  # as images are stored: N x H x W x C
    return shiftproof.audit(
        nearest_colours(),
        (arrays, batch.labels.numpy()),
        out=out,
        sections=["clean", "corruptions"],
        shifts=["gaussian_noise", "fog", "contrast", "jpeg_compression"],
        severities=[1, 3, 5],
    )


def main() -> None:
    """Print the verdict, and fail if too much accuracy is lost."""
    result = run()
    print(result)
    lost = result.numbers["corruption_loss"]
    print(f"{100 * lost:.1f} points lost on average, {100 * MOST_LOST:.0f} are allowed")
    sys.exit(lost > MOST_LOST)


if __name__ == "__main__":
    main()
