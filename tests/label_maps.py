"""Small sets of images with label maps: coloured rectangles on a background, and a network that knows the colours."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

from shiftproof.data import load_data
from shiftproof.data.images.maskset import MaskSet

CLASSES = ("ground", "red", "green", "blue")
COLOURS = np.array([[40, 40, 40], [220, 30, 30], [30, 220, 30], [30, 30, 220]], np.uint8)


def painted(images=12, height=20, width=24, seed=0):
    """Return images [N, H, W, 3] and label maps [N, H, W]: three rectangles each, an ignored frame of one pixel."""
    rng = np.random.default_rng(seed)
    maps = np.zeros((images, height, width), np.uint8)
    for one in maps:
        for label in rng.permutation([1, 2, 3]):
            top, left = rng.integers(1, height - 8), rng.integers(1, width - 8)
            one[top : top + rng.integers(4, 8), left : left + rng.integers(4, 8)] = label
    noisy = COLOURS[maps] + rng.normal(15, 60, (*maps.shape, 3))
    pictures = noisy.clip(0, 255).astype(np.uint8)
    maps[:, 0] = maps[:, -1] = 255
    return pictures, maps


class ColourNet(nn.Module):
    """A segmenter that compares colours, at a stride, with batch normalisation that can adapt."""

    def __init__(self, stride=1, classes=4):
        super().__init__()
        self.stride = stride
        self.colours = nn.Conv2d(3, classes, 1)
        self.norm = nn.BatchNorm2d(classes)
        with torch.no_grad():
            targets = torch.from_numpy(COLOURS[:classes] / 255.0).float() + 0.06
            self.colours.weight.copy_(40 * targets[:, :, None, None])
            unequal = 0.0137 * torch.arange(classes)  # no two classes have the same score where colours are symmetric
            assert self.colours.bias is not None
            self.colours.bias.copy_(unequal - 20 * (targets**2).sum(1))
        self.eval()

    def forward(self, images):
        return self.norm(self.colours(images))[:, :, :: self.stride, :: self.stride]


def load_masks(source, **options) -> MaskSet:
    """Return what `load_data` does, a set with label maps."""
    data = load_data(source, **options)
    assert isinstance(data, MaskSet)
    return data


def write_tree(
    root, images="images", maps="masks", tail="", parts=("",), count=6, palette=None, names="{:03d}", order=iter
):
    """Write a tree of images and maps, named in an order; returns the root."""
    for place, part in enumerate(parts):
        pictures, labels = painted(count, seed=place)
        for row, place_of in enumerate(order(range(count))):
            name = names.format(place_of)
            for folder in (images, maps):
                (Path(root) / folder.format(part=part)).mkdir(parents=True, exist_ok=True)
            Image.fromarray(pictures[row]).save(Path(root) / images.format(part=part) / f"{name}.png")
            made = Image.fromarray(labels[row])
            if palette is not None:
                made.putpalette(palette)
            made.save(Path(root) / maps.format(part=part) / f"{name}{tail}.png")
    return Path(root)
