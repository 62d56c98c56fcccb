"""Pillow's BOX resampling in batched integer arithmetic: shrink by averaging, enlarge by repeating.

Pillow resamples along x, rounds to uint8, and resamples along y. (Since version 13 it starts with y where the height
shrinks more than the width, which pixelation does not ask for but by rounding.) Each output of a shrinking pass is the
mean of a window of whole pixels, with weights in fixed point of 22 bits; sums of integers do not depend on their
order, so the result is the same for every batch and device.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

_PRECISION = 22
"""Bits of Pillow's fixed-point weights for 8-bit images."""


def pixelate(levels: Tensor, height: int, width: int) -> Tensor:
    """Shrink uint8 images, N x C x H x W, to height x width and enlarge them again, as Pillow does with BOX.

    All passes run along rows, which are contiguous to copy; the image is turned for those along columns.
    """
    columns = _average_rows(levels.mT.contiguous(), width).mT.contiguous()
    squares = _average_rows(columns, height)
    wide = _repeat_rows(squares.mT.contiguous(), levels.shape[3]).mT.contiguous()
    return _repeat_rows(wide, levels.shape[2])


def _average_rows(levels: Tensor, size: int) -> Tensor:
    """Average windows of rows, N x C x L x M -> N x C x size x M, rounding half up in fixed point."""
    length = levels.shape[2]
    if size == length:
        return levels
    start, count, weight = _windows(length, size, levels.device)
    fewest, most = _taps(length, size)
    exact = torch.int16 if most <= 128 else torch.int32  # sums of levels, at most 255 each
    total = levels.index_select(2, start).to(exact)
    for tap in range(1, most):
        rows = levels.index_select(2, (start + tap).clamp_max_(length - 1))
        total += (rows if tap < fewest else rows.mul_(count > tap)).to(exact)
    return (
        total.to(torch.int32).mul_(weight).add_(1 << (_PRECISION - 1)).bitwise_right_shift_(_PRECISION).to(torch.uint8)
    )


def _repeat_rows(levels: Tensor, size: int) -> Tensor:
    """Repeat rows to a larger size: an output takes the row its centre falls on."""
    return levels.index_select(2, _nearest(levels.shape[2], size, levels.device))


@lru_cache(maxsize=64)
def _spans(length: int, size: int) -> tuple[tuple[int, int], ...]:
    """Return the (first, count) of the rows each output averages: those whose centres the box covers.

    Computed in double precision with Pillow's own order of operations, which decides rows that fall on an edge.
    """
    scale = length / size
    spans = []
    for output in range(size):
        centre = (output + 0.5) * scale
        first = max(int(centre - scale * 0.5 + 0.5), 0)
        last = min(int(centre + scale * 0.5 + 0.5), length)
        covered = [row for row in range(first, last) if -0.5 < (row - centre + 0.5) * (1.0 / scale) <= 0.5]
        spans.append((covered[0], len(covered)))
    return tuple(spans)


def _taps(length: int, size: int) -> tuple[int, int]:
    """Return the fewest and the most rows an output averages."""
    counts = [count for _, count in _spans(length, size)]
    return min(counts), max(counts)


@lru_cache(maxsize=64)
def _windows(length: int, size: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return first row [size], number of rows and fixed-point weight [size, 1] of each output."""
    first, count = zip(*_spans(length, size), strict=True)
    weight = [int(0.5 + (1 << _PRECISION) / rows) for rows in count]
    return (
        torch.tensor(first, device=device),
        torch.tensor(count, device=device)[:, None],
        torch.tensor(weight, device=device, dtype=torch.int32)[:, None],
    )


@lru_cache(maxsize=64)
def _nearest(length: int, size: int, device: torch.device) -> Tensor:
    """Return the row each output repeats, [size]."""
    scale = length / size
    return torch.tensor([math.floor((output + 0.5) * scale) for output in range(size)], device=device)
