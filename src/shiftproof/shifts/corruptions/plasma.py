"""Plasma: fractal clouds by the diamond-square method, on a torus, a batch at a time.

Every level doubles the grid. The centre of a cell takes the mean of its four corners, the middle of an edge the mean
of the two corners and two centres around it, and each gets a random offset whose size falls from level to level.
"""

from __future__ import annotations

import torch
from torch import Tensor

from shiftproof.shifts import kernels

ROUGHNESS = 100.0
"""The size of the first offsets, from which the others follow by the decay."""


def plasma_side(height: int, width: int) -> int:
    """Return the side of the map that covers an image: a power of two."""
    return 1 << (max(height, width) - 1).bit_length()


def plasma(unit: Tensor, decay: float) -> Tensor:
    """Return maps [N, side, side] scaled to [0, 1] from independent numbers uniform in [0, 1), [N, side**2].

    The offset of a level is uniform in (-w**2, w**2), where w starts at 100 and is divided by `decay` per level: the
    published generator multiplies a number uniform in (-w, w) by w. A level from n to 2n cells takes the numbers
    n**2 to 4 n**2; the first number is not used, as the first corner is 0.
    """
    n, wibble = 1, ROUGHNESS
    grid = torch.zeros_like(unit[:, :1]).view(-1, 1, 1)
    while n * n < unit.shape[1]:
        grid = _doubled(grid, unit, wibble * wibble)
        n, wibble = 2 * n, wibble / decay
    low, high = (bound.view(-1, 1, 1) for bound in torch.aminmax(grid.flatten(1), dim=1))
    return grid.sub_(low).div_(high - low)


def _doubled(corners: Tensor, unit: Tensor, reach: float) -> Tensor:
    """Return a grid of twice the side from its corners, [N, n, n], and offsets in (-reach, reach)."""
    if kernels.usable(corners):
        from shiftproof.shifts.kernels import plasma as fused

        return fused.double(corners, unit, reach)
    n = corners.shape[1]
    offsets = unit[:, n * n : 4 * n * n].view(-1, 3, n, n).sub(0.5).mul_(2.0 * reach)
    return _double(corners, *offsets.unbind(1))


def _double(corners: Tensor, centre: Tensor, across: Tensor, down: Tensor) -> Tensor:
    """Return a grid of twice the side from its corners, [N, n, n], and the offsets of the three kinds of new points."""
    beside = corners + corners.roll(-1, 2)
    centres = torch.add(centre, beside + beside.roll(-1, 1), alpha=0.25)
    tops = torch.add(across, beside + centres + centres.roll(1, 1), alpha=0.25)
    lefts = torch.add(down, corners + corners.roll(-1, 1) + centres + centres.roll(1, 2), alpha=0.25)
    rows = torch.stack([corners, tops], dim=3), torch.stack([lefts, centres], dim=3)
    return torch.stack(rows, dim=2).view(len(corners), 2 * corners.shape[1], 2 * corners.shape[2])
