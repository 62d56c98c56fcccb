"""Residual networks for small images: depth 6n + 2, three stages, parameter-free shortcuts.

He et al. 2016, "Deep Residual Learning for Image Recognition", section 4.2. Where the size changes, the shortcut takes
every second pixel and pads the new channels with zeros, half of them on each side (their option A).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from shiftproof.models.networks.blocks import channels_last, conv3x3, he_initialise
from shiftproof.models.normalize import Normalize


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with batch normalisation, added to a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = conv3x3(inputs, outputs, stride)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = conv3x3(outputs, outputs)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.stride = stride
        self.new_channels = outputs - inputs

    def forward(self, x: Tensor) -> Tensor:
        """Return [N, outputs, ceil(H / stride), ceil(W / stride)]."""
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return F.relu(out + self.shortcut(x))

    def shortcut(self, x: Tensor) -> Tensor:
        """Subsample and pad with zero channels, half on each side; the identity where the shape stays."""
        if self.stride == 1 and self.new_channels == 0:
            return x
        before = self.new_channels // 2
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, before, self.new_channels - before))


class ResNet(nn.Module):
    """A CIFAR residual network from [0, 1] images to logits: 16, 32 and 64 channels, `depth` 6n + 2."""

    def __init__(self, depth: int, *, classes: int, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        blocks = (depth - 2) // 6
        self.normalize = Normalize(mean, std)
        self.conv1 = conv3x3(len(mean), 16)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _stage(16, 16, blocks, stride=1)
        self.layer2 = _stage(16, 32, blocks, stride=2)
        self.layer3 = _stage(32, 64, blocks, stride=2)
        self.linear = nn.Linear(64, classes)
        he_initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits [N, classes] of images [N, C, H, W]."""
        x = F.relu(self.bn1(self.conv1(channels_last(self.normalize(images)))))
        x = self.layer3(self.layer2(self.layer1(x)))
        logits: Tensor = self.linear(x.mean((2, 3)))
        return logits


def _stage(inputs: int, outputs: int, blocks: int, stride: int) -> nn.Sequential:
    first = BasicBlock(inputs, outputs, stride)
    return nn.Sequential(first, *(BasicBlock(outputs, outputs, 1) for _ in range(blocks - 1)))


def resnet20(*, classes: int, mean: Sequence[float], std: Sequence[float]) -> ResNet:
    """Return a ResNet-20."""
    return ResNet(20, classes=classes, mean=mean, std=std)


def resnet56(*, classes: int, mean: Sequence[float], std: Sequence[float]) -> ResNet:
    """Return a ResNet-56."""
    return ResNet(56, classes=classes, mean=mean, std=std)


def resnet110(*, classes: int, mean: Sequence[float], std: Sequence[float]) -> ResNet:
    """Return a ResNet-110."""
    return ResNet(110, classes=classes, mean=mean, std=std)
