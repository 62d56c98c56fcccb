"""A small real set and small networks for tests of training."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from shiftproof.data import ImageSet, load_images
from shiftproof.models import Normalize


def two_classes(count: int = 200) -> ImageSet:
    """Aeroplanes and frogs of the demo, at 16 pixels."""
    data = load_images("demo", size=16)
    labels = data.labels
    assert labels is not None
    chosen = [place for place, label in enumerate(labels.tolist()) if label in (0, 6)][:count]
    images = torch.cat([batch.inputs for batch in data.subset(chosen).batches(count)])
    return load_images((images, (labels[chosen] == 6).long()))


class Small(nn.Module):
    """Two convolutions without batch statistics, so that a part of a batch is treated as the whole."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            Normalize([0.5] * 3, [0.25] * 3),
            nn.Conv2d(3, 8, 3, 2),
            nn.GroupNorm(2, 8),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, 2),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(16, 2),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return logits [N, 2]."""
        logits: Tensor = self.layers(images)
        return logits


def small(dropout: float = 0.0) -> Small:
    """Return a small network that is always the same."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        return Small(dropout)
