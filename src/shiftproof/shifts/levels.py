"""Images as the 256 levels of stored files, for corruptions that are defined on uint8."""

from __future__ import annotations

import torch
from torch import Tensor


def to_levels(images: Tensor) -> Tensor:
    """Return images in [0, 1] as uint8, truncated as `base.quantize` truncates."""
    return images.mul(255.0).add_(2.0**-10).to(torch.uint8)


def from_levels(levels: Tensor) -> Tensor:
    """Return uint8 levels as float32 images in [0, 1]."""
    return levels.to(torch.float32).div_(255.0)
