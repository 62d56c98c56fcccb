"""Kernels of `shifts.noise`: counts of photons, salt and pepper."""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: N803

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024


def look_up_counts(images: Tensor, unit: Tensor, entries: Tensor, columns: int, value: float) -> Tensor:
    """Return what images become when the numbers `unit` choose counts from the alias tables of `PhotonCounts`."""
    counted = torch.empty_like(images)
    with torch.cuda.device_of(images):
        _look_up[(triton.cdiv(images.numel(), _BLOCK),)](
            counted, images, unit, entries, images.numel(), value, COLUMNS=columns, BLOCK=_BLOCK
        )
    return counted


def hit(images: Tensor, unit: Tensor, amount: float) -> Tensor:
    """Return images with pepper where the number is under amount / 2 and salt where it is under amount."""
    noisy = torch.empty_like(images)
    with torch.cuda.device_of(images):
        _hit[(triton.cdiv(images.numel(), _BLOCK),)](noisy, images, unit, images.numel(), amount, BLOCK=_BLOCK)
    return noisy


@triton.jit
def _hit(noisy, images, unit, count, amount, BLOCK: tl.constexpr):
    position = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = position < count
    number = tl.load(unit + position, mask=inside)
    value = tl.load(images + position, mask=inside)
    value = tl.where(number < amount, tl.where(number < amount * 0.5, 0.0, 1.0), value)
    tl.store(noisy + position, value, mask=inside)


@triton.jit
def _look_up(counted, images, unit, entries, count, value, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    position = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = position < count
    number = tl.load(unit + position, mask=inside) * COLUMNS
    column = tl.floor(number)
    level = tl.floor(tl.load(images + position, mask=inside, other=0.0) * 255.0 + 0.5)
    cell = (level * COLUMNS + column).to(tl.int32)
    entry = tl.load(entries + cell, mask=inside)
    other = tl.floor(entry)
    outcome = tl.where(number - column < entry - other, column, other)
    tl.store(counted + position, outcome * value, mask=inside)
