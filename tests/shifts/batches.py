"""Batches for tests of shifts, and the check that a result does not depend on them."""

from __future__ import annotations

import torch
from torch import Tensor

from shiftproof.shifts.base import Shift


def random_images(count: int, channels: int, height: int, width: int, seed: int = 0) -> Tensor:
    """Images on the 256 levels: half of them noise, half of them smooth."""
    generator = torch.Generator().manual_seed(seed)
    levels = torch.randint(0, 256, (count, channels, height, width), generator=generator).float()
    ramp = torch.linspace(30, 220, height * width).view(1, 1, height, width)
    levels[::2] = (0.2 * levels[::2] + 0.8 * ramp).floor()
    return levels / 255


def assert_same_bits_in_any_batch(shift: Shift, images: Tensor, seed: int = 3) -> None:
    """One image at a time, seven at a time in another order, and all at once must agree to the last bit."""
    before = images.clone()
    keys = torch.arange(len(images)) * 7919 + 5
    together = shift(images, keys, seed=seed)
    assert together.shape == images.shape
    assert together.dtype == torch.float32
    assert torch.equal(images, before), "the input was changed"
    assert torch.equal((together * 255).round() / 255, together), "values left the 256 levels"
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(1))
    for size in (1, 7):
        for part in order.split(size):
            assert torch.equal(shift(images[part], keys[part], seed=seed), together[part])
