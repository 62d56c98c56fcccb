"""Kernels of `shifts.levels`: to the 256 levels in one pass."""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: N803

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024


def quantize_(images: Tensor, slack: float) -> Tensor:
    """Clip contiguous images to [0, 1] and truncate them to the 256 levels, in place."""
    with torch.cuda.device_of(images):
        # Without fused multiply-adds, so that the bits are those of the tensor code.
        _quantize[(triton.cdiv(images.numel(), _BLOCK),)](
            images, images.numel(), slack, BLOCK=_BLOCK, enable_fp_fusion=False
        )
    return images


def to_bytes(images: Tensor, slack: float) -> Tensor:
    """Return the levels of contiguous images in [0, 1] as uint8."""
    levels = torch.empty_like(images, dtype=torch.uint8)
    with torch.cuda.device_of(images):
        _to_bytes[(triton.cdiv(images.numel(), _BLOCK),)](
            levels, images, images.numel(), slack, BLOCK=_BLOCK, enable_fp_fusion=False
        )
    return levels


def from_levels(levels: Tensor) -> Tensor:
    """Return contiguous levels, uint8 or whole numbers, as images in [0, 1]."""
    images = torch.empty_like(levels, dtype=torch.float32)
    with torch.cuda.device_of(levels):
        _from_levels[(triton.cdiv(levels.numel(), _BLOCK),)](images, levels, levels.numel(), BLOCK=_BLOCK)
    return images


@triton.jit
def _quantize(images, count, slack, BLOCK: tl.constexpr):
    position = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(images + position, mask=position < count)
    level = tl.floor(tl.minimum(tl.maximum(value, 0.0), 1.0) * 255.0 + slack)
    tl.store(images + position, tl.div_rn(level, 255.0), mask=position < count)


@triton.jit
def _to_bytes(levels, images, count, slack, BLOCK: tl.constexpr):
    position = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    level = tl.load(images + position, mask=position < count) * 255.0 + slack
    tl.store(levels + position, level.to(tl.int32).to(tl.uint8), mask=position < count)


@triton.jit
def _from_levels(images, levels, count, BLOCK: tl.constexpr):
    position = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    level = tl.load(levels + position, mask=position < count).to(tl.float32)
    tl.store(images + position, tl.div_rn(level, 255.0), mask=position < count)
