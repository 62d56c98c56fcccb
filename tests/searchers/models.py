"""Small images and models with a known weakness, for tests of search."""

import numpy as np
import torch
from torch import nn

from shiftproof.data import ImageSet, load_images


def pictures(count: int = 40, side: int = 12, seed: int = 0) -> ImageSet:
    """Noise whose green channel is bright in the images of class 1."""
    rng = np.random.default_rng(seed)
    images = rng.integers(40, 200, (count, side, side, 3), dtype=np.uint8)
    labels = np.arange(count) % 2
    images[labels == 1, :, :, 1] = rng.integers(150, 230, (count // 2, side, side))
    images[labels == 0, :, :, 1] = rng.integers(20, 100, (count - count // 2, side, side))
    return load_images((images, labels))


class Greenness(nn.Module):
    """Tells green from not green by a threshold on the mean of the green channel: channel shifts break it."""

    def __init__(self, threshold: float = 0.5) -> None:
        super().__init__()
        self.threshold = threshold

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return scores for not green and green, [N, 2]."""
        levels = (images[:, 1] * 255).round().double()
        green = (levels.mean((1, 2)) - 255 * self.threshold).float()
        return torch.stack([-green, green], dim=1)


def label_green(images: np.ndarray) -> np.ndarray:
    """Do the same as a plain function from bytes to labels."""
    return np.asarray(images[..., 1].astype(float).mean((1, 2)) > 127.5, dtype=int)
