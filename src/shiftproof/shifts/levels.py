"""The 256 levels of stored images: every shift ends on them, and some are defined on them."""

from __future__ import annotations

import torch
from torch import Tensor

_SLACK = 2.0**-12
"""Added before truncation: level k held as the float32 nearest to k / 255 must stay k. Far below what can be seen."""


def quantize(images: Tensor) -> Tensor:
    """Clip to [0, 1] and truncate to the 256 levels of uint8, as every published generator does."""
    return quantize_(images.clone())


def quantize_(images: Tensor) -> Tensor:
    """Do the same in place."""
    return images.clamp_(0.0, 1.0).mul_(255.0).add_(_SLACK).floor_().div_(255.0)


def to_levels(images: Tensor) -> Tensor:
    """Return the levels 0..255 of images in [0, 1], as whole float32 numbers, truncated as `quantize` truncates."""
    return images.mul(255.0).add_(_SLACK).floor_()


def to_bytes(images: Tensor) -> Tensor:
    """Return the levels of images in [0, 1] as uint8."""
    return images.mul(255.0).add_(_SLACK).to(torch.uint8)


def from_levels(levels: Tensor) -> Tensor:
    """Return levels, uint8 or whole float32 numbers, as float32 images in [0, 1]."""
    return levels.to(torch.float32) / 255.0
