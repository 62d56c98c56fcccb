"""The CUDA kernels behind `keyed`: Philox-4x32-10 in one pass, the same bits as `keyed.philox_unit`, and Box-Muller."""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: N803

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


def philox_unit(stream: int, keys: Tensor, draw: int, count: int) -> Tensor:
    """Uniform multiples of 2**-24 in [0, 1), [N, count] float32: one write per number and no other traffic."""
    drawn = torch.empty(len(keys), count, device=keys.device)
    blocks = triton.cdiv(count, 4)
    with torch.cuda.device_of(keys):
        grid = (len(keys), triton.cdiv(blocks, 512))
        _fill[grid](drawn, keys.contiguous(), *_halves(stream), draw, count, BLOCK=512)
    return drawn


def normal(stream: int, keys: Tensor, draw: int, count: int, mean: float, std: float) -> Tensor:
    """Return normal numbers, [N, count] float32, by the Box-Muller transform of the uniform ones of the same draw.

    The transform of `Keyed.normal`, but that the halves of the uniform numbers are whole blocks of four.
    """
    drawn = torch.empty(len(keys), count, device=keys.device)
    blocks = triton.cdiv(count, 8)
    with torch.cuda.device_of(keys):
        grid = (len(keys), triton.cdiv(blocks, 256))
        _fill_normal[grid](drawn, keys.contiguous(), *_halves(stream), draw, count, blocks, mean, std, BLOCK=256)
    return drawn


def _halves(stream: int) -> tuple[int, int]:
    return _signed(stream & 0xFFFFFFFF), _signed(stream >> 32)


def _signed(word: int) -> int:
    """Return the 32-bit two's complement reading of a word, which is how Triton takes scalars."""
    return word - (1 << 32) if word >= 1 << 31 else word


@triton.jit(do_not_specialize=["low", "high", "draw"])
def _fill(drawn, keys, low, high, draw, count, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    position = tl.program_id(1) * BLOCK * 4 + tl.arange(0, 4 * BLOCK)
    unit = _unit(tl.load(keys + row), low, high, draw, block)
    tl.store(drawn + row * count + position, unit, mask=position < count)


@triton.jit(do_not_specialize=["low", "high", "draw", "mean", "std"])
def _fill_normal(drawn, keys, low, high, draw, count, blocks, mean, std, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    position = tl.program_id(1) * BLOCK * 4 + tl.arange(0, 4 * BLOCK)
    key = tl.load(keys + row)
    # 1 - u is in (0, 1], so that the logarithm is finite.
    length = tl.sqrt_rn(-2.0 * tl.log(1.0 - _unit(key, low, high, draw, block))) * std
    angle = _unit(key, low, high, draw, block + blocks) * 6.283185307179586
    half = 4 * blocks
    tl.store(drawn + row * count + position, length * tl.cos(angle) + mean, mask=position < tl.minimum(half, count))
    after = drawn + row * count + half + position
    tl.store(after, length * tl.sin(angle) + mean, mask=(position < half) & (half + position < count))


@triton.jit
def _unit(key, low, high, draw, block):
    """Return the uniform numbers of blocks of four."""
    zero = tl.zeros_like(block).to(tl.uint32)
    c0 = zero + (key & 0xFFFFFFFF).to(tl.uint32)
    c1 = zero + ((key >> 32) & 0xFFFFFFFF).to(tl.uint32)
    c2 = zero + draw.to(tl.uint32)
    c3 = block.to(tl.uint32)
    w0, w1, w2, w3 = tl.philox_impl(c0, c1, c2, c3, low.to(tl.uint32), high.to(tl.uint32), 10)
    # Interleave the four words of each block: position 4 * block + lane.
    words = tl.interleave(tl.interleave(w0, w2), tl.interleave(w1, w3))
    return (words >> 8).to(tl.float32) * 5.9604644775390625e-08
