"""Reference networks, by name: from [0, 1] images to logits, with their normalisation inside.

`unet` is for segmentation: its logits are [N, classes, H, W]; those of the others are [N, classes].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from shiftproof.registry import resolve

if TYPE_CHECKING:
    from torch import nn

NETWORKS: Mapping[str, str] = {
    "resnet20": "shiftproof.models.networks.resnet:resnet20",
    "resnet56": "shiftproof.models.networks.resnet:resnet56",
    "resnet110": "shiftproof.models.networks.resnet:resnet110",
    "wrn16_4": "shiftproof.models.networks.wide_resnet:wrn16_4",
    "convnet": "shiftproof.models.networks.convnet:convnet",
    "cct6": "shiftproof.models.networks.compact_transformer:cct6",
    "unet": "shiftproof.models.networks.unet:unet",
}
"""Name -> lazy target, in the order tables list them."""

CIFAR10_MEAN = (0.4914, 0.4822, 0.4465)
CIFAR10_STD = (0.2470, 0.2435, 0.2616)


def build_network(
    name: str,
    *,
    classes: int = 10,
    channels: int = 3,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> nn.Module:
    """Return an untrained reference network, in training mode.

    Without a `mean` and `std`, three channels get CIFAR-10's and any other number 0.5 and 0.25.

    Args:
        name: One of `models.NETWORKS`.
        classes: Number of outputs.
        channels: Number of input channels.
        mean: Mean of each channel, of the `Normalize` layer inside.
        std: Standard deviation of each channel.
    """
    build = resolve(NETWORKS, name, "reference network")
    mean = mean or (CIFAR10_MEAN if channels == 3 else (0.5,) * channels)
    std = std or (CIFAR10_STD if channels == 3 else (0.25,) * channels)
    network: nn.Module = build(classes=classes, mean=mean, std=std)
    return network
