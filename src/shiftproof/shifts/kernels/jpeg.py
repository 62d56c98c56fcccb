"""Kernels of `shifts.jpeg`: what surrounds the two matrix products of the cosine transform.

Blocks are [N, H / 8, W / 8, 64], of double precision.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: N803

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_PIXELS = 512


def luma_blocks(levels: Tensor) -> Tensor:
    """Return blocks of Y - 128 from uint8 images, N x C x H x W; edges are repeated, to whole pairs of blocks across.

    Images of one channel are their own Y.
    """
    count, channels, height, width = levels.shape
    blocks = _empty_blocks(levels, count, -(-height // 8), 2 * -(-width // 16))
    with torch.cuda.device_of(levels):
        _luma_blocks[_grid(blocks)](
            blocks, levels, height, width, blocks.shape[1], blocks.shape[2], CHANNELS=channels, PIXELS=_PIXELS
        )
    return blocks


def chroma_blocks(levels: Tensor) -> Tensor:
    """Return blocks of (Cb, Cr) - 128 at half the size from uint8 images, N x 3 x H x W -> [2 N, ...]."""
    count, _, height, width = levels.shape
    blocks = _empty_blocks(levels, 2 * count, -(-height // 16), -(-width // 16))
    with torch.cuda.device_of(levels):
        _chroma_blocks[_grid(blocks)](blocks, levels, height, width, blocks.shape[1], blocks.shape[2], PIXELS=_PIXELS)
    return blocks


def quantize_(coefficients: Tensor, steps: Tensor) -> Tensor:
    """Round coefficients, in place, to eighths and then to whole steps, [64]."""
    with torch.cuda.device_of(coefficients):
        _quantize[(triton.cdiv(coefficients.numel(), _PIXELS),)](
            coefficients, steps, coefficients.numel(), PIXELS=_PIXELS
        )
    return coefficients


def assemble(luma: Tensor, chroma: Tensor | None, height: int, width: int) -> Tensor:
    """Return uint8 images from restored blocks of Y and of (Cb, Cr), or of Y alone."""
    channels = 1 if chroma is None else 3
    levels = torch.empty(len(luma), channels, height, width, dtype=torch.uint8, device=luma.device)
    with torch.cuda.device_of(luma):
        _assemble[(len(luma), triton.cdiv(height * width, _PIXELS))](
            levels, luma, chroma, height, width, luma.shape[1], luma.shape[2],
            0 if chroma is None else chroma.shape[1], 0 if chroma is None else chroma.shape[2],
            CHANNELS=channels, PIXELS=_PIXELS,
        )  # fmt: skip
    return levels


def _empty_blocks(levels: Tensor, count: int, down: int, across: int) -> Tensor:
    return torch.empty(count, down, across, 64, dtype=torch.float64, device=levels.device)


def _grid(blocks: Tensor) -> tuple[int, int]:
    return len(blocks), triton.cdiv(blocks[0].numel(), _PIXELS)


@triton.jit
def _place(index, across):
    """Return row and column of the values of blocks."""
    block, inner = index // 64, index % 64
    return block // across * 8 + inner // 8, block % across * 8 + inner % 8


@triton.jit
def _luma_blocks(blocks, levels, height, width, down, across, CHANNELS: tl.constexpr, PIXELS: tl.constexpr):
    image = tl.program_id(0).to(tl.int64)
    index = tl.program_id(1) * PIXELS + tl.arange(0, PIXELS)
    y, x = _place(index, across)
    first = levels + image * CHANNELS * height * width
    pixel = first + tl.minimum(y, height - 1) * width + tl.minimum(x, width - 1)
    if CHANNELS == 1:
        value = tl.load(pixel).to(tl.int32)
    else:
        red, green, blue = _rgb(pixel, height * width)
        value = (19595 * red + 38470 * green + 7471 * blue + 32768) >> 16
    numbers = down * across * 64
    tl.store(blocks + image * numbers + index, (value - 128).to(tl.float64), mask=index < numbers)


@triton.jit
def _chroma_blocks(blocks, levels, height, width, down, across, PIXELS: tl.constexpr):
    plane = tl.program_id(0).to(tl.int64)
    index = tl.program_id(1) * PIXELS + tl.arange(0, PIXELS)
    y, x = _place(index, across)
    first = levels + plane // 2 * 3 * height * width
    upper = tl.minimum(2 * tl.minimum(y, (height + 1) // 2 - 1), height - 1)
    lower = tl.minimum(upper + 1, height - 1)
    left, right = tl.minimum(2 * x, width - 1), tl.minimum(2 * x + 1, width - 1)
    is_red = plane % 2 == 1
    total = _chroma(first + upper * width + left, height * width, is_red)
    total += _chroma(first + upper * width + right, height * width, is_red)
    total += _chroma(first + lower * width + left, height * width, is_red)
    total += _chroma(first + lower * width + right, height * width, is_red)
    # Halves are rounded down in even columns and up in odd ones.
    value = (total + 1 + x % 2) >> 2
    numbers = down * across * 64
    tl.store(blocks + plane * numbers + index, (value - 128).to(tl.float64), mask=index < numbers)


@triton.jit
def _chroma(pixel, plane, is_red):
    """Return Cb, or Cr where `is_red`, in 0..255."""
    red, green, blue = _rgb(pixel, plane)
    cb = -11059 * red - 21709 * green + 32768 * blue
    cr = 32768 * red - 27439 * green - 5329 * blue
    return (tl.where(is_red, cr, cb) + ((128 << 16) + 32767)) >> 16


@triton.jit
def _rgb(pixel, plane):
    red, green, blue = tl.load(pixel), tl.load(pixel + plane), tl.load(pixel + 2 * plane)
    return red.to(tl.int32), green.to(tl.int32), blue.to(tl.int32)


@triton.jit
def _quantize(coefficients, steps, count, PIXELS: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * PIXELS + tl.arange(0, PIXELS)
    inside = index < count
    value = tl.load(coefficients + index, mask=inside, other=0.0) * 8.0
    size = _round_half_even(tl.abs(value))
    step = tl.load(steps + index % 64)
    level = tl.floor((size + 4.0 * step) / (8.0 * step))
    tl.store(coefficients + index, tl.where(value < 0.0, -level, level) * step, mask=inside)


@triton.jit
def _round_half_even(size):
    """Round numbers that are not negative."""
    low = tl.floor(size)
    rest = size - low
    odd = low - 2.0 * tl.floor(low * 0.5) == 1.0
    return tl.where((rest > 0.5) | ((rest == 0.5) & odd), low + 1.0, low)


@triton.jit
def _assemble(
    levels, luma, chroma, height, width, luma_down, luma_across, chroma_down, chroma_across,
    CHANNELS: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    image = tl.program_id(0).to(tl.int64)
    pixel = tl.program_id(1) * PIXELS + tl.arange(0, PIXELS)
    inside = pixel < height * width
    y, x = pixel // width, pixel % width
    value = _restored(luma + image * luma_down * luma_across * 64, y, x, luma_across, inside)
    place = levels + image * CHANNELS * height * width + pixel
    if CHANNELS == 1:
        tl.store(place, value.to(tl.uint8), mask=inside)
    else:
        # Chroma is doubled with the triangle filter: 3/4 of the nearest value, 1/4 of the next one.
        row, column = y // 2, x // 2
        next_row = tl.minimum(tl.maximum(row + 2 * (y % 2) - 1, 0), (height + 1) // 2 - 1)
        next_column = tl.minimum(tl.maximum(column + 2 * (x % 2) - 1, 0), (width + 1) // 2 - 1)
        half = 8 - x % 2
        plane = chroma_down * chroma_across * 64
        first = chroma + image * 2 * plane
        cb = _doubled(first, row, column, next_row, next_column, half, chroma_across, inside) - 128
        cr = _doubled(first + plane, row, column, next_row, next_column, half, chroma_across, inside) - 128
        red = value + ((91881 * cr + 32768) >> 16)
        green = value + ((-22554 * cb - 46802 * cr + 32768) >> 16)
        blue = value + ((116130 * cb + 32768) >> 16)
        tl.store(place, _byte(red), mask=inside)
        tl.store(place + height * width, _byte(green), mask=inside)
        tl.store(place + 2 * height * width, _byte(blue), mask=inside)


@triton.jit
def _doubled(first, row, column, next_row, next_column, half, across, inside):
    near = 3 * _restored(first, row, column, across, inside) + _restored(first, next_row, column, across, inside)
    aside = _restored(first, row, next_column, across, inside)
    far = 3 * aside + _restored(first, next_row, next_column, across, inside)
    return (3 * near + far + half) >> 4


@triton.jit
def _restored(first, y, x, across, inside):
    """Return a value of blocks as a level, 0..255; halves, which flat blocks often meet, are rounded up."""
    index = (y // 8 * across + x // 8) * 64 + y % 8 * 8 + x % 8
    value = tl.floor(tl.load(first + index, mask=inside, other=0.0) + 128.5 + 0.00000095367431640625)
    return tl.minimum(tl.maximum(value, 0.0), 255.0).to(tl.int32)


@triton.jit
def _byte(level):
    return tl.minimum(tl.maximum(level, 0), 255).to(tl.uint8)
