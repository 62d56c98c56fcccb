"""Elastic distortion: a random affine map, then smooth random displacements (Simard et al. 2003).

The published generator smooths one uniform number per pixel with a Gaussian, reflected at the borders and cut off at
three sigma. Cosines are the eigenvectors of that filter, so the field is drawn in their basis: the transform of
independent numbers of equal variance is again uncorrelated, and near normal as a sum of many. Only cosines that the
filter lets through are drawn, a handful where sigma is large.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from shiftproof.shifts import kernels
from shiftproof.shifts.origins import OUTSIDE, nearest

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
    x, y = (torch.arange(side, device=images.device, dtype=torch.float64) for side in (width, height))
    # In grid_sample's units of -1 to 1 between border centres.
    units = (2 / (width - 1), 2 / (height - 1))
    sources = [
        ((along_x * unit - 1).float(), (along_y * unit).float())
        for (along_x, along_y), unit in zip(affine_source(moves, x, y, height, width), units, strict=True)
    ]
    if kernels.usable(images):
        from shiftproof.shifts.kernels.elastic import sample_affine

        return sample_affine(images, *(torch.stack(parts, dim=1) for parts in zip(*sources, strict=True)))
    grid = torch.stack([across[:, None, :] + down[:, :, None] for across, down in sources], dim=3)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="reflection", align_corners=True)


def affine_source(moves: Tensor, x: Tensor, y: Tensor, height: int, width: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield what output columns x, and rows y, add to the source column, and to the source row, of `affine_warp`.

    In pixels, [N, ...] as `x` and `y` are [...] or [N, ...].
    """
    half = min(height, width) // 3
    moves = moves.double()
    # Edges of the moved square from its first corner to the second, (a, b), and to the third, (c, d); without moves
    # they are (0, -2 half) and (-2 half, -2 half).
    a, b, c, d = (moves[:, 1:] - moves[:, :1] - 2 * half).flatten(1).unbind(1)
    a = a + 2 * half
    # An output point is origin + s (a, b) + t (c, d), and its source is corner + s (0, -2 half) + t (-2 half, -2 half).
    scale = 2 * half / (a * d - b * c)
    corners = (width // 2 + half, height // 2 + half)
    each = (-1, *(1,) * max(1, x.ndim - 1))
    right, below = (
        points - (moves[:, 0, axis] + corner).view(each)
        for axis, (points, corner) in enumerate(zip((x, y), corners, strict=True))
    )
    factors = ((b * scale, -a * scale), ((b - d) * scale, (c - a) * scale))
    for (from_x, from_y), corner in zip(factors, corners, strict=True):
        yield from_x.view(each) * right + corner, from_y.view(each) * below


def distorted_origins(moves: Tensor, displacement: Tensor | None, height: int, width: int) -> Tensor:
    """Return where the pixels of `displace(affine_warp(images, moves), displacement)` come from, [N, H, W]."""
    x, y = (torch.arange(side, device=moves.device, dtype=torch.float64) for side in (width, height))
    across, down = (points.expand(len(moves), height, width) for points in (x, y[:, None]))
    if displacement is not None:
        across, down = across + displacement[:, 0], down + displacement[:, 1]
        # Beyond the image, the warped image is mirrored: what is seen there comes from elsewhere.
        beyond = nearest(down, across, height, width) == OUTSIDE
        across = across.masked_fill(beyond, math.nan)
    columns, rows = (along_x + along_y for along_x, along_y in affine_source(moves, across, down, height, width))
    return nearest(rows, columns, height, width)


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
