"""Kernel of `shifts.plasma`: one level of the diamond-square method."""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: N803

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_CELLS = 256


def double(corners: Tensor, unit: Tensor, reach: float) -> Tensor:
    """Return grids of twice the side from corners, [N, n, n], with offsets from the numbers n**2 to 4 n**2 of `unit`.

    An offset is uniform in (-reach, reach); `unit` is [N, numbers] in [0, 1).
    """
    count, side, _ = corners.shape
    doubled = corners.new_empty(count, 2 * side, 2 * side)
    with torch.cuda.device_of(corners):
        _double[(count, triton.cdiv(side * side, _CELLS))](
            doubled, corners, unit, unit.shape[1], side, reach, CELLS=_CELLS
        )
    return doubled


@triton.jit
def _double(doubled, corners, unit, numbers, side, reach, CELLS: tl.constexpr):
    image = tl.program_id(0).to(tl.int64)
    cell = tl.program_id(1) * CELLS + tl.arange(0, CELLS)
    cells = side * side
    inside = cell < cells
    y, x = cell // side, cell % side
    above, below = (y + side - 1) % side * side, (y + 1) % side * side
    before, after = (x + side - 1) % side, (x + 1) % side
    y = y * side
    grid, offsets = corners + image * cells, unit + image * numbers + cells
    here = tl.load(grid + y + x, mask=inside)
    under = tl.load(grid + below + x, mask=inside)
    beside = here + tl.load(grid + y + after, mask=inside)
    beside_under = under + tl.load(grid + below + after, mask=inside)
    beside_above = tl.load(grid + above + x, mask=inside) + tl.load(grid + above + after, mask=inside)
    left = tl.load(grid + y + before, mask=inside) + here
    left_under = tl.load(grid + below + before, mask=inside) + under
    centre = _offset(offsets + y + x, reach, inside) + 0.25 * (beside + beside_under)
    centre_above = _offset(offsets + above + x, reach, inside) + 0.25 * (beside_above + beside)
    centre_before = _offset(offsets + y + before, reach, inside) + 0.25 * (left + left_under)
    top = _offset(offsets + cells + y + x, reach, inside) + 0.25 * (beside + centre + centre_above)
    side_ = _offset(offsets + 2 * cells + y + x, reach, inside) + 0.25 * (here + under + centre + centre_before)
    place = doubled + image * 4 * cells + 4 * y + 2 * x
    tl.store(place, here, mask=inside)
    tl.store(place + 1, top, mask=inside)
    tl.store(place + 2 * side, side_, mask=inside)
    tl.store(place + 2 * side + 1, centre, mask=inside)


@triton.jit
def _offset(place, reach, inside):
    return (tl.load(place, mask=inside) - 0.5) * (2.0 * reach)
