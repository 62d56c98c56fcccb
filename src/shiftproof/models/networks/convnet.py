"""A small plain convolutional network, quick to train on one CPU core."""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from shiftproof.models.networks.blocks import channels_last, conv3x3, he_initialise
from shiftproof.models.normalize import Normalize


class ConvNet(nn.Module):
    """Three 3x3 convolutions with batch normalisation, of 32, 64 and 128 channels, from [0, 1] images to logits."""

    def __init__(self, *, classes: int, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.normalize = Normalize(mean, std)
        self.conv1, self.bn1 = conv3x3(len(mean), 32), nn.BatchNorm2d(32)
        self.conv2, self.bn2 = conv3x3(32, 64), nn.BatchNorm2d(64)
        self.conv3, self.bn3 = conv3x3(64, 128), nn.BatchNorm2d(128)
        self.linear = nn.Linear(128, classes)
        he_initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits [N, classes] of images [N, C, H, W], H and W at least 4."""
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(channels_last(self.normalize(images))))), 2)
        x = F.max_pool2d(F.relu(self.bn2(self.conv2(x))), 2)
        x = F.relu(self.bn3(self.conv3(x)))
        logits: Tensor = self.linear(x.mean((2, 3)))
        return logits


def convnet(*, classes: int, mean: Sequence[float], std: Sequence[float]) -> ConvNet:
    """Return the small network."""
    return ConvNet(classes=classes, mean=mean, std=std)
