"""Kernels of `shifts.spatter`: outlines, one kind of step of a distance transform, and histograms."""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: N803

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_PIXELS = 1024


def outlines(levels: Tensor) -> Tensor:
    """Return the thin edges of uint8 images, [N, H, W] bool."""
    strength, marks = torch.empty_like(levels, dtype=torch.int16), torch.empty_like(levels)
    direction, edges = torch.empty_like(levels), torch.empty_like(levels)
    with torch.cuda.device_of(levels):
        _gradient[_grid(levels)](strength, direction, levels, *levels.shape[1:], PIXELS=_PIXELS)
        _ridges[_grid(levels)](marks, strength, direction, *levels.shape[1:], PIXELS=_PIXELS)
        _edges[_grid(levels)](edges, marks, *levels.shape[1:], PIXELS=_PIXELS)
    return edges.view(torch.bool)


def step(distance: Tensor, down: int, across: int, length: int) -> Tensor:
    """Return the least of each distance and of those one step before and after it plus its length, [N, H, W] int16."""
    nearer = torch.empty_like(distance)
    with torch.cuda.device_of(distance):
        _step[_grid(distance)](nearer, distance, down, across, length, *distance.shape[1:], PIXELS=_PIXELS)
    return nearer


def histogram(levels: Tensor) -> Tensor:
    """Count the levels 0..30 of images, [N, H, W] uint8 -> [N, 31] int32."""
    counts = torch.zeros(len(levels), 32, dtype=torch.int32, device=levels.device)
    with torch.cuda.device_of(levels):
        _histogram[_grid(levels)](counts, levels, levels[0].numel(), PIXELS=_PIXELS)
    return counts[:, :31]


def _grid(planes: Tensor) -> tuple[int, int]:
    return len(planes), triton.cdiv(planes[0].numel(), _PIXELS)


@triton.jit
def _gradient(strength, direction, levels, height, width, PIXELS: tl.constexpr):
    """Sobel's gradient, |x| + |y|, and its direction: 0 along x, 1 along y, 2 and 3 along the diagonals."""
    image = tl.program_id(0).to(tl.int64) * height * width
    pixel = tl.program_id(1) * PIXELS + tl.arange(0, PIXELS)
    inside = pixel < height * width
    y, x = pixel // width, pixel % width
    first = levels + image
    above, here, below = tl.maximum(y - 1, 0) * width, y * width, tl.minimum(y + 1, height - 1) * width
    left, right = tl.maximum(x - 1, 0), tl.minimum(x + 1, width - 1)
    nw, ne = _level(first + above + left, inside), _level(first + above + right, inside)
    sw, se = _level(first + below + left, inside), _level(first + below + right, inside)
    gx = ne + 2 * _level(first + here + right, inside) + se - nw - 2 * _level(first + here + left, inside) - sw
    gy = sw + 2 * _level(first + below + x, inside) + se - nw - 2 * _level(first + above + x, inside) - ne
    across, down = tl.abs(gx), tl.abs(gy)
    diagonal = tl.where((gx ^ gy) >= 0, 2, 3)
    kind = tl.where(down * 29 < across * 12, 0, tl.where(down * 12 > across * 29, 1, diagonal))
    tl.store(strength + image + pixel, (across + down).to(tl.int16), mask=inside)
    tl.store(direction + image + pixel, kind.to(tl.uint8), mask=inside)


@triton.jit
def _level(place, inside):
    return tl.load(place, mask=inside, other=0).to(tl.int32)


@triton.jit
def _ridges(marks, strength, direction, height, width, PIXELS: tl.constexpr):
    """Mark points no lower than their two neighbours across: 2 above the upper threshold, 1 above the lower one."""
    image = tl.program_id(0).to(tl.int64) * height * width
    pixel = tl.program_id(1) * PIXELS + tl.arange(0, PIXELS)
    inside = pixel < height * width
    y, x = pixel // width, pixel % width
    kind = _level(direction + image + pixel, inside)
    here = _level(strength + image + pixel, inside)
    down = tl.where(kind == 0, 0, 1)
    across = tl.where(kind == 1, 0, tl.where(kind == 3, -1, 1))
    before = _framed(strength + image, y - down, x - across, height, width, 0)
    after = _framed(strength + image, y + down, x + across, height, width, 0)
    ridge = (here > before) & ((here > after) | ((kind < 2) & (here == after)))
    mark = tl.where(here > 150, 2, tl.where(here > 50, 1, 0))
    tl.store(marks + image + pixel, tl.where(ridge, mark, 0).to(tl.uint8), mask=inside)


@triton.jit
def _edges(edges, marks, height, width, PIXELS: tl.constexpr):
    """Keep the marks that are strong or beside a strong one."""
    image = tl.program_id(0).to(tl.int64) * height * width
    pixel = tl.program_id(1) * PIXELS + tl.arange(0, PIXELS)
    inside = pixel < height * width
    y, x = pixel // width, pixel % width
    strongest = tl.zeros([PIXELS], dtype=tl.int32)
    for down in tl.static_range(-1, 2):
        for across in tl.static_range(-1, 2):
            strongest = tl.maximum(strongest, _framed(marks + image, y + down, x + across, height, width, 0))
    kept = (_level(marks + image + pixel, inside) > 0) & (strongest == 2)
    tl.store(edges + image + pixel, kept.to(tl.uint8), mask=inside)


@triton.jit(do_not_specialize=["down", "across", "length"])
def _step(nearer, distance, down, across, length, height, width, PIXELS: tl.constexpr):
    image = tl.program_id(0).to(tl.int64) * height * width
    pixel = tl.program_id(1) * PIXELS + tl.arange(0, PIXELS)
    inside = pixel < height * width
    y, x = pixel // width, pixel % width
    before = _framed(distance + image, y - down, x - across, height, width, 16384) + length
    after = _framed(distance + image, y + down, x + across, height, width, 16384) + length
    least = tl.minimum(_level(distance + image + pixel, inside), tl.minimum(before, after))
    tl.store(nearer + image + pixel, least.to(tl.int16), mask=inside)


@triton.jit
def _framed(first, y, x, height, width, beyond):
    """Return the values at places, `beyond` outside the image, as int32."""
    there = (y >= 0) & (y < height) & (x >= 0) & (x < width)
    return tl.load(first + y * width + x, mask=there, other=beyond).to(tl.int32)


@triton.jit
def _histogram(counts, levels, pixels, PIXELS: tl.constexpr):
    image = tl.program_id(0).to(tl.int64)
    pixel = tl.program_id(1) * PIXELS + tl.arange(0, PIXELS)
    # The last bin takes what is outside.
    level = tl.load(levels + image * pixels + pixel, mask=pixel < pixels, other=31).to(tl.int32)
    tl.atomic_add(counts + image * 32 + tl.arange(0, 32), tl.histogram(level, 32))
