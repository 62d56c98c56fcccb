"""Kernel of `shifts.elastic`: bilinear samples of mirrored images."""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: N803

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_PIXELS = 256


def sample_affine(images: Tensor, across: Tensor, down: Tensor) -> Tensor:
    """Sample images, N x C x H x W, at across[:, :, x] + down[:, :, y], in units of -1 to 1 between border centres.

    `across` is [N, 2, W], `down` [N, 2, H]: what each column and each row adds to the two coordinates (x, y).
    """
    return _sample(images, across, down, None, 0.0, 0.0, edges=False)


def sample_displaced(images: Tensor, across: Tensor, down: Tensor, displacement: Tensor) -> Tensor:
    """Sample images, N x C x H x W, at places displaced by (x, y) pixels, [N, 2, H, W].

    `across` [W] and `down` [H] are the places of the pixels in units of -1 to 1 between outer edges.
    """
    height, width = images.shape[2:]
    return _sample(images, across, down, displacement, 2 / width, 2 / height, edges=True)


def _sample(
    images: Tensor,
    across: Tensor,
    down: Tensor,
    displacement: Tensor | None,
    unit_x: float,
    unit_y: float,
    *,
    edges: bool,
) -> Tensor:
    count, channels, height, width = images.shape
    sampled = torch.empty_like(images)
    with torch.cuda.device_of(images):
        _sample_mirrored[(count, triton.cdiv(height * width, _PIXELS))](
            sampled, images, across, down, displacement, unit_x, unit_y, channels, height, width,
            EDGES=edges, PIXELS=_PIXELS,
        )  # fmt: skip
    return sampled


@triton.jit
def _sample_mirrored(
    sampled, images, across, down, displacement, unit_x, unit_y, channels, height, width,
    EDGES: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    image = tl.program_id(0).to(tl.int64)
    pixels = height * width
    pixel = tl.program_id(1) * PIXELS + tl.arange(0, PIXELS)
    inside = pixel < pixels
    row, column = pixel // width, pixel % width
    if EDGES:
        moved = displacement + image * 2 * pixels + pixel
        x = tl.load(across + column, mask=inside, other=0.0) + tl.load(moved, mask=inside, other=0.0) * unit_x
        y = tl.load(down + row, mask=inside, other=0.0) + tl.load(moved + pixels, mask=inside, other=0.0) * unit_y
        x, y = ((x + 1.0) * width - 1.0) * 0.5, ((y + 1.0) * height - 1.0) * 0.5
        x, y = _mirror(x, -0.5, width * 1.0), _mirror(y, -0.5, height * 1.0)
    else:
        across += image * 2 * width + column
        down += image * 2 * height + row
        x = tl.load(across, mask=inside, other=0.0) + tl.load(down, mask=inside, other=0.0)
        y = tl.load(across + width, mask=inside, other=0.0) + tl.load(down + height, mask=inside, other=0.0)
        x, y = (x + 1.0) * 0.5 * (width - 1), (y + 1.0) * 0.5 * (height - 1)
        x, y = _mirror(x, 0.0, width - 1.0), _mirror(y, 0.0, height - 1.0)
    x, y = tl.minimum(tl.maximum(x, 0.0), width - 1.0), tl.minimum(tl.maximum(y, 0.0), height - 1.0)
    left, top = tl.floor(x), tl.floor(y)
    right_share, lower_share = x - left, y - top
    left, top = left.to(tl.int32), top.to(tl.int32)
    # The weight of a pixel beyond the last one is 0.
    right, lower = tl.minimum(left + 1, width - 1), tl.minimum(top + 1, height - 1)
    top, lower = top * width, lower * width
    for channel in range(channels):
        plane = (image * channels + channel) * pixels
        first = images + plane
        upper_line = tl.load(first + top + left) * (1.0 - right_share) + tl.load(first + top + right) * right_share
        lower_line = tl.load(first + lower + left) * (1.0 - right_share) + tl.load(first + lower + right) * right_share
        value = upper_line * (1.0 - lower_share) + lower_line * lower_share
        tl.store(sampled + plane + pixel, value, mask=inside)


@triton.jit
def _mirror(place, low, span):
    """Fold a place into [low, low + span] by mirrors at both ends."""
    beyond = tl.abs(place - low)
    turns = tl.floor(beyond / span)
    rest = beyond - turns * span
    even = turns - 2.0 * tl.floor(turns * 0.5) == 0.0
    return low + tl.where(even, rest, span - rest)
