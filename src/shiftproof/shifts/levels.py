"""The 256 levels of stored images: every shift ends on them, and some are defined on them."""

from __future__ import annotations

import torch
from torch import Tensor

from shiftproof.data.images.levels import divide_
from shiftproof.shifts import kernels

_SLACK = 2.0**-12
"""Added before truncation: level k held as the float32 nearest to k / 255 must stay k. Far below what can be seen."""


def quantize(images: Tensor) -> Tensor:
    """Clip to [0, 1] and truncate to the 256 levels of uint8, as every published generator does."""
    return quantize_(images.clone())


def quantize_(images: Tensor, out: Tensor | None = None) -> Tensor:
    """Do the same in place, or into `out`, using the images as scratch space. Images of whole numbers are levels."""
    if not images.is_floating_point():
        return from_levels(images) if out is None else divide_(out.copy_(images))
    if out is None and kernels.usable(images) and images.is_contiguous():
        from shiftproof.shifts.kernels import levels

        return levels.quantize_(images, _SLACK)
    images.clamp_(0.0, 1.0).mul_(255.0).add_(_SLACK).floor_()
    return divide_(images, out)


def to_levels(images: Tensor) -> Tensor:
    """Return the levels 0..255 of images in [0, 1], as whole float32 numbers, truncated as `quantize` truncates."""
    return images.mul(255.0).add_(_SLACK).floor_()


def to_bytes(images: Tensor) -> Tensor:
    """Return the levels of images in [0, 1] as uint8; those that are uint8 already as they are."""
    if images.dtype == torch.uint8:
        return images
    if kernels.usable(images) and images.is_contiguous():
        from shiftproof.shifts.kernels import levels

        return levels.to_bytes(images, _SLACK)
    # Straight to uint8, torch converts one number at a time.
    return images.mul(255.0).add_(_SLACK).to(torch.int16).to(torch.uint8)


def from_levels(levels: Tensor) -> Tensor:
    """Return levels, of integers or whole float32 numbers, as float32 images in [0, 1]."""
    if kernels.usable(levels) and levels.is_contiguous():
        from shiftproof.shifts.kernels import levels as fused

        return fused.from_levels(levels)
    return divide_(levels.to(torch.float32, copy=True))
