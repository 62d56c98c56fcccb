"""Cubic B-splines through the pixels of an image, mirrored at its border pixels, as in scipy.ndimage.

A spline is given by one coefficient per pixel; its value at a point is the weighted sum of the 4 x 4 coefficients
around it. With the pixels themselves as coefficients the spline smooths the image.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from shiftproof.shifts.filters import border_index


def coefficients(images: Tensor) -> Tensor:
    """Return the coefficients of the splines through images, N x C x H x W.

    Sums are made in double precision: their order, which may depend on the batch, cannot show in float32.
    """
    down, across = (_inverse(side, images.device) for side in images.shape[2:])
    return (down @ (images.double() @ across.T)).float()


@lru_cache(maxsize=16)
def _inverse(side: int, device: torch.device) -> Tensor:
    """Return the inverse of the matrix that takes coefficients along a side to values at the pixels."""
    values = (
        np.diag(np.full(side, 4 / 6)) + np.diag(np.full(side - 1, 1 / 6), 1) + np.diag(np.full(side - 1, 1 / 6), -1)
    )
    values[0, 1] = values[-1, -2] = 2 / 6  # both neighbours of a border pixel are the same one
    return torch.from_numpy(np.linalg.inv(values)).to(device)


def taps(positions: Tensor, side: int, softness: float = 1.0) -> tuple[Tensor, Tensor]:
    """Return the coefficients that positions along a side take, [..., 4] int64, and their weights, [..., 4].

    At softness 0 the weights are those of linear interpolation, between 0 and 1 a mixture.
    """
    near = positions.floor()
    index = border_index(near.long()[..., None] + torch.arange(-1, 3, device=positions.device), side, "reflect-101")
    t = positions - near
    linear = torch.stack([torch.zeros_like(t), 1 - t, t, torch.zeros_like(t)], dim=-1)
    return index, softness * weights(t) + (1 - softness) * linear


def weights(t: Tensor) -> Tensor:
    """Return the weights of the pixels before, at, after and next after a point a share t beyond a pixel, [..., 4]."""
    u = 1 - t
    at, after = (x * x * (3 * x - 6) + 4 for x in (t, u))
    return torch.stack([u * u * u, at, after, t * t * t], dim=-1).div_(6)
