"""Kernel of `shifts.augment.max_entropy`: sums of a few waves."""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: N803

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_PLACES = 512


def plus_waves(start: Tensor, numbers: Tensor, waves: Tensor) -> Tensor:
    """Return start [...] plus the sum over k of numbers[:, k] times waves[k], [R, K] and [K, ...] -> [R, ...]."""
    rows, terms = numbers.shape
    places = start.numel()
    total = torch.empty(rows, *start.shape, device=start.device)
    with torch.cuda.device_of(start):
        _plus_waves[(rows, triton.cdiv(places, _PLACES))](
            total, start.contiguous(), numbers.contiguous(), waves.contiguous(), terms, places, PLACES=_PLACES
        )
    return total


@triton.jit
def _plus_waves(total, start, numbers, waves, terms, places, PLACES: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * PLACES + tl.arange(0, PLACES)
    inside = place < places
    summed = tl.load(start + place, mask=inside)
    for term in tl.range(terms, loop_unroll_factor=4):
        summed += tl.load(numbers + row * terms + term) * tl.load(waves + term * places + place, mask=inside)
    tl.store(total + row * places + place, summed, mask=inside)
