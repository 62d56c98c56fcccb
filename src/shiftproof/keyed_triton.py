"""The CUDA kernel behind `keyed`: Philox-4x32-10 fused into one pass, the same bits as `keyed.philox_unit`."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


def philox_unit(stream: int, keys: Tensor, draw: int, count: int) -> Tensor:
    """Uniform multiples of 2**-24 in [0, 1), [N, count] float32: one write per number and no other traffic."""
    drawn = torch.empty(len(keys), count, device=keys.device)
    blocks = triton.cdiv(count, 4)
    low, high = _signed(stream & 0xFFFFFFFF), _signed(stream >> 32)
    with torch.cuda.device(keys.device):
        grid = (len(keys), triton.cdiv(blocks, 512))
        _fill[grid](drawn, keys.contiguous(), low, high, draw, count, BLOCK=512)
    return drawn


def _signed(word: int) -> int:
    """Return the 32-bit two's complement reading of a word, which is how Triton takes scalars."""
    return word - (1 << 32) if word >= 1 << 31 else word


@triton.jit(do_not_specialize=["low", "high", "draw"])  # type: ignore[untyped-decorator]
def _fill(drawn, keys, low, high, draw, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    key = tl.load(keys + row)
    zero = tl.zeros([BLOCK], dtype=tl.uint32)
    c0 = zero + (key & 0xFFFFFFFF).to(tl.uint32)
    c1 = zero + ((key >> 32) & 0xFFFFFFFF).to(tl.uint32)
    c2 = zero + draw.to(tl.uint32)
    c3 = block.to(tl.uint32)
    w0, w1, w2, w3 = tl.philox_impl(c0, c1, c2, c3, low.to(tl.uint32), high.to(tl.uint32), 10)
    # Interleave the four words of each block: position 4 * block + lane.
    words = tl.interleave(tl.interleave(w0, w2), tl.interleave(w1, w3))
    position = tl.program_id(1) * BLOCK * 4 + tl.arange(0, 4 * BLOCK)
    unit = (words >> 8).to(tl.float32) * 5.9604644775390625e-08
    tl.store(drawn + row * count + position, unit, mask=position < count)
