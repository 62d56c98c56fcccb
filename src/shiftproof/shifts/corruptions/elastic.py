"""Elastic distortion: a random affine map, then smooth random displacements (Simard et al. 2003).

The published generator smooths one uniform number per pixel with a Gaussian, reflected at the borders and cut off at
three sigma. Cosines are the eigenvectors of that filter, so the field is drawn in their basis: the transform of
independent numbers of equal variance is again uncorrelated, and near normal as a sum of many. Only cosines that the
filter lets through are drawn, a handful where sigma is large.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from shiftproof.shifts import kernels

_TRUNCATE = 3.0
_LOST = 1e-4
"""Share of the field's energy that the cosines left out would carry."""
_UNIFORM_STD = 1 / math.sqrt(3)
"""Standard deviation of a number uniform in (-1, 1)."""


def modes(side: int, sigma: float) -> int:
    """Return the number of cosines along a side that a Gaussian of sigma pixels lets through."""
    return smooth_cosines(side, sigma).shape[1]


def smooth_field(coefficients: Tensor, height: int, width: int, sigma: float) -> Tensor:
    """Return fields [N, D, height, width] of the published filter's variance and covariance.

    `coefficients` are independent standard normal numbers, [N, D, modes(width), modes(height)]. The products are made
    in double precision, so that the order of summation, which may depend on the batch, cannot show in the result.
    """
    across, down = (_basis(side, sigma, coefficients.device) for side in (width, height))
    columns = (coefficients.double() @ down.T).mT.contiguous()
    return (columns @ across.T).mul_(_UNIFORM_STD).float()


@lru_cache(maxsize=64)
def smooth_cosines(side: int, sigma: float) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Return orthonormal cosines over the pixels of a side, each times the filter's gain, [side, modes]."""
    radius = int(_TRUNCATE * sigma + 0.5)
    offset = np.arange(-radius, radius + 1)
    weight = np.exp(-0.5 * (offset / sigma) ** 2) if radius else np.ones(1)
    frequency = np.arange(side) * (np.pi / side)
    gain = np.cos(frequency[:, None] * offset) @ (weight / weight.sum())
    energy = np.cumsum(gain**2)
    kept = 1 + int(np.searchsorted(energy, (1 - _LOST) * energy[-1]))
    cosines = np.cos((np.arange(side)[:, None] + 0.5) * frequency[:kept]) * math.sqrt(2 / side)
    cosines[:, 0] /= math.sqrt(2)
    return np.ascontiguousarray(cosines * gain[:kept])


@lru_cache(maxsize=64)
def _basis(side: int, sigma: float, device: torch.device) -> Tensor:
    return torch.from_numpy(smooth_cosines(side, sigma)).to(device)


def affine_warp(images: Tensor, moves: Tensor) -> Tensor:
    """Move three points of the images, N x C x H x W, by (x, y) pixels, [N, 3, 2], and everything else with them.

    The points are three corners of the central square whose half side is a third of the image's. Sampling is bilinear;
    outside, the image is mirrored about its border pixels.
    """
    height, width = images.shape[2:]
    half = min(height, width) // 3
    moves = moves.double()
    # Edges of the moved square from its first corner to the second, (a, b), and to the third, (c, d); without moves
    # they are (0, -2 half) and (-2 half, -2 half).
    a, b, c, d = (moves[:, 1:] - moves[:, :1] - 2 * half).flatten(1).unbind(1)
    a = a + 2 * half
    # An output point is origin + s (a, b) + t (c, d), and its source is corner + s (0, -2 half) + t (-2 half, -2 half).
    scale = 2 * half / (a * d - b * c)
    x, y = (torch.arange(side, device=images.device, dtype=torch.float64) for side in (width, height))
    corner_x, corner_y = width // 2 + half, height // 2 + half
    right = x - (moves[:, 0, :1] + corner_x)
    below = y - (moves[:, 0, 1:] + corner_y)

    def coordinate(from_x: Tensor, from_y: Tensor, corner: int, side: int) -> tuple[Tensor, Tensor]:
        """Return what column, [N, W], and row, [N, H], add to the source along one axis.

        In grid_sample's units of -1 to 1 between border centres.
        """
        along_x, along_y = from_x[:, None] * right + corner, from_y[:, None] * below
        unit = 2 / (side - 1)
        return (along_x * unit - 1).float(), (along_y * unit).float()

    sources = (
        coordinate(b * scale, -a * scale, corner_x, width),
        coordinate((b - d) * scale, (c - a) * scale, corner_y, height),
    )
    if kernels.usable(images):
        from shiftproof.shifts.kernels.elastic import sample_affine

        return sample_affine(images, *(torch.stack(parts, dim=1) for parts in zip(*sources, strict=True)))
    grid = torch.stack([across[:, None, :] + down[:, :, None] for across, down in sources], dim=3)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="reflection", align_corners=True)


def displace(images: Tensor, displacement: Tensor) -> Tensor:
    """Sample images, N x C x H x W, at each pixel plus (x, y), [N, 2, H, W]; mirrored at the outer edges."""
    height, width = images.shape[2:]
    x, y = (torch.arange(side, device=images.device) for side in (width, height))
    # grid_sample's units run from -1 to 1 between the outer edges of the border pixels.
    x, y = (2 * x + 1) / width - 1, (2 * y + 1) / height - 1
    if kernels.usable(images):
        from shiftproof.shifts.kernels.elastic import sample_displaced

        return sample_displaced(images, x, y, displacement)
    across = torch.add(x, displacement[:, 0], alpha=2 / width)
    down = torch.add(y[:, None], displacement[:, 1], alpha=2 / height)
    grid = torch.stack([across, down], dim=3)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="reflection", align_corners=False)
