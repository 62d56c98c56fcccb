"""Kernels of `shifts.blur`: the sum of a zoom blur, and the exchanges of glass."""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: N803

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_PIXELS = 1024
_PATHS = 128


def sum_zoomed(images: Tensor, zooms: Tensor) -> Tensor:
    """Return sums of K bilinear enlargements, N x C x H x W -> N x C x H x W.

    `zooms` is [K, 5]: the place in the image of the first pixel down and the distance to the next one, the same
    across, and the weight of the enlargement.
    """
    count, channels, height, width = images.shape
    summed = torch.empty_like(images)
    with torch.cuda.device_of(images):
        _sum_zoomed[(count * channels, triton.cdiv(height * width, _PIXELS))](
            summed, images, zooms, len(zooms), height, width, PIXELS=_PIXELS
        )
    return summed


def exchange(images: Tensor, unit: Tensor, delta: int) -> Tensor:
    """Return images, N x C x H x W, after local exchanges chosen by numbers in [0, 1), [N, exchanges, H, W].

    Every pixel follows its own path through the exchanges, from the last one back: paths are short.
    """
    count, channels, height, width = images.shape
    exchanged = torch.empty_like(images)
    with torch.cuda.device_of(images):
        # One warp per program, so that its short paths do not wait for the long ones of others.
        _exchange[(count, triton.cdiv(height * width, _PATHS))](
            exchanged, images, unit, unit.shape[1], channels, height, width, delta, PIXELS=_PATHS, num_warps=1
        )
    return exchanged


@triton.jit
def _sum_zoomed(summed, images, zooms, count, height, width, PIXELS: tl.constexpr):
    plane = tl.program_id(0).to(tl.int64) * height * width
    pixel = tl.program_id(1) * PIXELS + tl.arange(0, PIXELS)
    inside = pixel < height * width
    row, column = (pixel // width).to(tl.float32), (pixel % width).to(tl.float32)
    total = tl.zeros([PIXELS], dtype=tl.float32)
    for zoom in range(count):
        y = tl.load(zooms + 5 * zoom) + row * tl.load(zooms + 5 * zoom + 1)
        x = tl.load(zooms + 5 * zoom + 2) + column * tl.load(zooms + 5 * zoom + 3)
        top, left = tl.minimum(tl.floor(y), height - 2.0), tl.minimum(tl.floor(x), width - 2.0)
        down, across = y - top, x - left
        corner = images + plane + top.to(tl.int32) * width + left.to(tl.int32)
        upper = tl.load(corner, mask=inside) * (1.0 - across) + tl.load(corner + 1, mask=inside) * across
        corner += width
        lower = tl.load(corner, mask=inside) * (1.0 - across) + tl.load(corner + 1, mask=inside) * across
        total += (upper * (1.0 - down) + lower * down) * tl.load(zooms + 5 * zoom + 4)
    tl.store(summed + plane + pixel, total, mask=inside)


@triton.jit
def _exchange(exchanged, images, unit, exchanges, channels, height, width, delta, PIXELS: tl.constexpr):
    image = tl.program_id(0).to(tl.int64)
    pixels = height * width
    pixel = tl.program_id(1) * PIXELS + tl.arange(0, PIXELS)
    inside = pixel < pixels
    source = pixel
    sides = 2 * delta
    for passed in range(exchanges):
        choices = unit + (image * exchanges + (exchanges - 1 - passed)) * pixels
        walking = inside
        while tl.max(walking.to(tl.int32), axis=0) > 0:
            y, x = source // width, source % width
            scanned = (y > delta) & (y <= height - delta) & (x > delta) & (x <= width - delta)
            choice = (tl.load(choices + source, mask=walking & scanned, other=0.0) * (sides * sides)).to(tl.int32)
            step = (choice // sides - delta) * width + choice % sides - delta
            step = tl.where(walking & scanned, step, 0)
            source += step
            # A pixel further on was visited before, so the path goes on; any other has its old value still.
            walking = step > 0
    for channel in range(channels):
        plane = (image * channels + channel) * pixels
        tl.store(exchanged + plane + pixel, tl.load(images + plane + source, mask=inside), mask=inside)
