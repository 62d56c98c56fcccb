"""Random views of images for methods that ask whether an answer survives a small change.

An augmentation is called like a shift, `augment(images, keys, seed=0) -> images`, on images in [0, 1]; any shift of
`shiftproof.shifts` is one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from shiftproof import shifts
from shiftproof.adapters.soundness import NotFiniteError
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.keyed import Keyed

if TYPE_CHECKING:
    from shiftproof.adapters.adapter import Adapter

Augment: TypeAlias = Callable[..., Tensor]
_MANY = 2**16


def parse(augment: str | Augment) -> Augment:
    """Return an augmentation: `jitter`, one that is given, or a shift by its text form, such as `augmix`."""
    if not isinstance(augment, str):
        if not callable(augment):
            raise ConfigurationError(
                "This is not an augmentation.",
                expected="jitter, a shift by its name, or what is called with images and keys",
                got=repr(augment),
            )
        return augment
    return jitter if augment == "jitter" else shifts.parse(augment)


def view(augment: Augment, images: Tensor, adapter: Adapter, number: int = 0) -> Tensor:
    """Return a view of the images, [N, C, H, W], that depends on (seed, step, number, place in the batch) alone."""
    return several(augment, images, adapter, range(number, number + 1))


def several(augment: Augment, images: Tensor, adapter: Adapter, numbers: range) -> Tensor:
    """Return the views of these numbers, one after another, [len(numbers) * N, ...]."""
    if not bool(images.isfinite().all()):
        raise NotFiniteError
    places = torch.arange(len(images))
    keys = torch.cat([places + (adapter.steps * _MANY + number) * _MANY for number in numbers])
    given = images.float() if isinstance(augment, shifts.Shift) else images
    return augment(torch.cat([given] * len(numbers)), keys, seed=adapter.options.seed).to(images.dtype)


def jitter(images: Tensor, keys: Tensor, *, seed: int = 0) -> Tensor:
    """Return the images slightly moved, turned, recoloured and noisy (the views of Wang et al. 2022, CoTTA).

    Flip with probability 1/2; turn by up to 15 degrees, move by up to 1/16, scale by 0.9 to 1.1, edges repeated;
    brightness 0.6 to 1.4, contrast 0.7 to 1.3, saturation 0.5 to 1.5, gamma 0.7 to 1.3; noise of deviation 0.005.
    """
    _check(images)
    rng = Keyed(seed, keys, device=images.device).fork("jitter")

    def factor(low: float, high: float) -> Tensor:
        return rng.uniform(low, high).view(-1, 1, 1, 1).to(images.dtype)

    images = _moved(images, rng) * factor(0.6, 1.4)
    mean = images.mean((1, 2, 3), keepdim=True)
    images = (images - mean) * factor(0.7, 1.3) + mean
    grey = images.mean(1, keepdim=True)
    images = ((images - grey) * factor(0.5, 1.5) + grey).clamp(0, 1)
    # From the smallest level up, where the power is smooth.
    images = images.clamp_min(1 / 512) ** factor(0.7, 1.3)
    noise = rng.normal(std=0.005, shape=images.shape[1:]).to(images.dtype)
    return (images + noise).clamp(0, 1)


def _moved(images: Tensor, rng: Keyed) -> Tensor:
    """Flip, turn, scale and move by bilinear interpolation."""
    flip = 1 - 2 * (rng.uniform() < 0.5).float()
    angle, size = rng.uniform(-math.pi / 12, math.pi / 12), rng.uniform(0.9, 1.1)
    shift = rng.uniform(-0.125, 0.125, (2,))  # of a side of length 2
    cos, sin = angle.cos() / size, angle.sin() / size
    rows = [torch.stack([flip * cos, -sin, shift[:, 0]], 1), torch.stack([flip * sin, cos, shift[:, 1]], 1)]
    grid = F.affine_grid(torch.stack(rows, 1).to(images.dtype), list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)


def _check(images: Tensor) -> None:
    expected = "images in [0, 1], N x C x H x W, with normalisation inside the model"
    if images.ndim != 4:
        raise DataError("Views need a batch of images.", expected=expected, got=f"shape {tuple(images.shape)}")
    low, high = torch.stack(torch.aminmax(images)).tolist()
    if low < 0.0 or high > 1.0:
        fix = "put shiftproof.models.Normalize before the model, and give it images in [0, 1]"
        raise DataError(
            "Image values are outside [0, 1].", expected=expected, got=f"values {low:.4g} to {high:.4g}", fix=fix
        )
