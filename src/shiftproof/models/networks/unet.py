"""A small U-Net for segmentation: coarse features find what is where, and finer ones its outline.

Ronneberger et al. 2015, "U-Net: Convolutional Networks for Biomedical Image Segmentation", with batch normalisation,
strided convolutions for pooling and bilinear steps back up. It begins at half the size of the images, so that an image
of 240 x 180 pixels costs about 2.0 billion operations.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shiftproof.models.networks.blocks import channels_last, conv3x3, he_initialise
from shiftproof.models.normalize import Normalize

WIDTHS = (24, 48, 96, 128, 128)
"""Channels at a half, a quarter, ... of the size."""


class UNet(nn.Module):
    """From [0, 1] images of any size to logits for every pixel, [N, classes, H, W]."""

    def __init__(self, *, classes: int, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.normalize = Normalize(mean, std)
        before = (len(mean), *WIDTHS)
        self.down = nn.ModuleList(_block(one, width, stride=2) for one, width in zip(before, WIDTHS, strict=False))
        pairs = zip(WIDTHS[:0:-1], WIDTHS[-2::-1], strict=True)
        self.up = nn.ModuleList(_block(coarse + fine, fine) for coarse, fine in pairs)
        self.linear = nn.Conv2d(WIDTHS[0], classes, 1)  # of each pixel, as the last layer of the classifiers
        he_initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits [N, classes, H, W] of images [N, C, H, W]."""
        x = channels_last(self.normalize(images))
        levels = []
        for block in self.down:
            x = block(x)
            levels.append(x)
        for place, block in enumerate(self.up):
            fine = levels[-2 - place]
            x = block(torch.cat([_resized(x, fine), fine], 1))
        return _resized(self.linear(x), images)


def _block(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        conv3x3(inputs, outputs, stride),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        conv3x3(outputs, outputs),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


def _resized(x: Tensor, as_large: Tensor) -> Tensor:
    return F.interpolate(x, size=as_large.shape[2:], mode="bilinear", align_corners=False)


def unet(*, classes: int, mean: Sequence[float], std: Sequence[float]) -> UNet:
    """Return a U-Net."""
    return UNet(classes=classes, mean=mean, std=std)
