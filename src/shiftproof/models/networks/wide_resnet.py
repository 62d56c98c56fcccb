"""Wide residual networks for small images: pre-activation blocks, Zagoruyko and Komodakis 2016, depth 6n + 4."""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from shiftproof.models.networks.blocks import channels_last, conv3x3, he_initialise
from shiftproof.models.normalize import Normalize


class PreActivationBlock(nn.Module):
    """Normalise, activate and convolve, twice; where the shape changes the shortcut is a 1x1 convolution."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = conv3x3(inputs, outputs, stride)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.conv2 = conv3x3(outputs, outputs)
        changes = stride != 1 or inputs != outputs
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        """Return [N, outputs, ceil(H / stride), ceil(W / stride)]."""
        active = F.relu(self.bn1(x))
        # The projection sees the activated input, the identity the raw one, as in the paper's network.
        shortcut = x if self.shortcut is None else self.shortcut(active)
        out: Tensor = self.conv2(F.relu(self.bn2(self.conv1(active))))
        return out + shortcut


class WideResNet(nn.Module):
    """A wide residual network from [0, 1] images to logits: stages of 16, 32 and 64 channels times `width`."""

    def __init__(self, depth: int, width: int, *, classes: int, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        blocks = (depth - 4) // 6
        self.normalize = Normalize(mean, std)
        self.conv1 = conv3x3(len(mean), 16)
        self.layer1 = _stage(16, 16 * width, blocks, stride=1)
        self.layer2 = _stage(16 * width, 32 * width, blocks, stride=2)
        self.layer3 = _stage(32 * width, 64 * width, blocks, stride=2)
        self.bn = nn.BatchNorm2d(64 * width)
        self.linear = nn.Linear(64 * width, classes)
        he_initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits [N, classes] of images [N, C, H, W]."""
        x = self.conv1(channels_last(self.normalize(images)))
        x = F.relu(self.bn(self.layer3(self.layer2(self.layer1(x)))))
        logits: Tensor = self.linear(x.mean((2, 3)))
        return logits


def _stage(inputs: int, outputs: int, blocks: int, stride: int) -> nn.Sequential:
    first = PreActivationBlock(inputs, outputs, stride)
    return nn.Sequential(first, *(PreActivationBlock(outputs, outputs, 1) for _ in range(blocks - 1)))


def wrn16_4(*, classes: int, mean: Sequence[float], std: Sequence[float]) -> WideResNet:
    """Return a WRN-16-4."""
    return WideResNet(16, 4, classes=classes, mean=mean, std=std)
