"""Kernels of `shifts.filters`: weighted sums of moved images."""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: N803

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_PIXELS = 1024


def sum_moved(
    images: Tensor, down: Tensor, across: Tensor, weights: Tensor, border: str, reach: tuple[int, int]
) -> Tensor:
    """Return sums of moved images, N x C x H x W -> N x C x H x W.

    Pixel (y, x) is the sum over k of weights[k] times pixel (y + down[k], x + across[k]). Moves are int32, [K] for all
    images or [N, K] for each, of at most `reach` down and across; those that mirror must be shorter than the sides.
    """
    count, channels, height, width = images.shape
    # A margin costs less than finding out, for every move of every pixel, what is beyond the border.
    extended = _extend(images, border, reach)
    summed = torch.empty_like(images)
    own = weights.numel() if down.ndim == 2 else 0
    with torch.cuda.device_of(images):
        _sum_moved[(count * channels, triton.cdiv(height * width, _PIXELS))](
            summed, extended, down, across, weights, height, width, *reach, weights.numel(), own, channels,
            PIXELS=_PIXELS,
        )  # fmt: skip
    return summed


def _extend(images: Tensor, border: str, reach: tuple[int, int]) -> Tensor:
    """Lengthen images at all sides as `filters.Border` says, by pixels down and across."""
    count, channels, height, width = images.shape
    rows, columns = reach
    extended = images.new_empty(count, channels, height + 2 * rows, width + 2 * columns)
    with torch.cuda.device_of(images):
        _fill_extended[(count * channels, triton.cdiv(extended[0, 0].numel(), _PIXELS))](
            extended, images, height, width, rows, columns, BORDER=border, PIXELS=_PIXELS
        )
    return extended


@triton.jit
def _sum_moved(
    summed, extended, down, across, weights, height, width, rows, columns, taps, own, channels, PIXELS: tl.constexpr
):
    plane = tl.program_id(0).to(tl.int64)
    pixel = tl.program_id(1) * PIXELS + tl.arange(0, PIXELS)
    inside = pixel < height * width
    line = width + 2 * columns
    place = extended + plane * (height + 2 * rows) * line + (pixel // width + rows) * line + pixel % width + columns
    moves = plane // channels * own
    total = tl.zeros([PIXELS], dtype=tl.float32)
    for tap in tl.range(taps, loop_unroll_factor=4):
        move = tl.load(down + moves + tap) * line + tl.load(across + moves + tap)
        total += tl.load(weights + tap) * tl.load(place + move, mask=inside)
    tl.store(summed + plane * height * width + pixel, total, mask=inside)


@triton.jit
def _fill_extended(extended, images, height, width, rows, columns, BORDER: tl.constexpr, PIXELS: tl.constexpr):
    plane = tl.program_id(0).to(tl.int64)
    line, lines = width + 2 * columns, height + 2 * rows
    pixel = tl.program_id(1) * PIXELS + tl.arange(0, PIXELS)
    inside = pixel < line * lines
    y = _beyond(pixel // line - rows, height, BORDER)
    x = _beyond(pixel % line - columns, width, BORDER)
    value = tl.load(images + plane * height * width + y * width + x, mask=inside)
    tl.store(extended + plane * line * lines + pixel, value, mask=inside)


@triton.jit
def _beyond(position, side, BORDER: tl.constexpr):
    """Return which of the pixels 0..side-1 stands at a position, inside the image or beyond its edge."""
    if BORDER == "reflect":
        position = tl.where(position < 0, -1 - position, position)
        position = tl.where(position >= side, 2 * side - 1 - position, position)
    if BORDER == "reflect-101":
        position = tl.abs(position)
        position = tl.where(position >= side, 2 * side - 2 - position, position)
    return tl.minimum(tl.maximum(position, 0), side - 1)
