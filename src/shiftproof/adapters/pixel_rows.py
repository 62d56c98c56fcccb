"""Answers for every pixel as rows of logits, one for each pixel: what methods learn from where labels would be maps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from shiftproof.errors import ModelError

if TYPE_CHECKING:
    from shiftproof.adapters.adapter import Adapter
    from shiftproof.adapters.method import Method

SCALES = (0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0)
"""Sizes of the views of a segmenter's teacher, each also mirrored (Wang et al. 2022)."""


def check_per_pixel(chosen: Method) -> None:
    """Refuse a method that learns from whole images."""
    if not chosen.per_pixel:
        raise ModelError(
            f"Not available for segmentation: method {chosen.name!r}.",
            expected="a model with one row of logits per image, or a method that learns from single pixels",
            fix="source, bn, tent, rpl, eta, rdumb, cotta",
        )


def as_rows(maps: Tensor) -> Tensor:
    """Return logits [N, C, H, W] as rows [N * H * W, C], pixel after pixel and image after image."""
    return maps.movedim(1, -1).reshape(-1, maps.shape[1])


def as_maps(rows: Tensor, images: Tensor, size: tuple[int, int]) -> Tensor:
    """Return rows of pixels of images as maps [N, C, H, W]."""
    return rows.view(len(images), *size, rows.shape[1]).movedim(-1, 1)


def averaged_maps(adapter: Adapter, images: Tensor, weights: dict[str, Tensor]) -> Tensor:
    """Return the logarithm of the mean answer to images at several sizes, also mirrored, as rows of pixels."""
    total: Tensor | None = None
    for scale in SCALES:
        size = [max(8, round(side * scale)) for side in images.shape[2:]]
        seen = F.interpolate(images, size=size, mode="bilinear", align_corners=False) if scale != 1.0 else images
        for mirrored in (False, True):
            rows = adapter.run(seen.flip(3) if mirrored else seen, weights)
            maps = as_maps(rows, seen, adapter.map_size or (0, 0))
            maps = maps.flip(3) if mirrored else maps
            maps = F.interpolate(maps, size=images.shape[2:], mode="bilinear", align_corners=False)
            share = as_rows(maps).softmax(1)
            total = share if total is None else total + share
    if total is None:
        raise RuntimeError("there are no views")
    adapter.map_size = (images.shape[2], images.shape[3])
    return (total / (2 * len(SCALES))).clamp_min(torch.finfo(total.dtype).tiny).log()
