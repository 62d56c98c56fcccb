"""Batched diamond-square against the definition, point by point."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from shiftproof.keyed import Keyed
from shiftproof.shifts.corruptions.plasma import plasma, plasma_side


def by_definition(unit: NDArray[np.float64], side: int, decay: float) -> NDArray[np.float64]:
    """Fill one map in place, on a torus, level by level."""
    grid = np.zeros((side, side))
    step, wibble, n = side, 100.0, 1
    while step > 1:
        half = step // 2
        centre, across, down = wibble * wibble * (2 * unit[n * n : 4 * n * n].reshape(3, n, n) - 1)

        def at(y: int, x: int) -> float:
            return float(grid[y % side, x % side])

        for i in range(n):
            for j in range(n):
                y, x = i * step, j * step
                corners = at(y, x) + at(y, x + step) + at(y + step, x) + at(y + step, x + step)
                grid[y + half, x + half] = corners / 4 + centre[i, j]
        for i in range(n):
            for j in range(n):
                y, x = i * step, j * step
                above = at(y, x) + at(y, x + step) + at(y + half, x + half) + at(y - half, x + half)
                beside = at(y, x) + at(y + step, x) + at(y + half, x + half) + at(y + half, x - half)
                grid[y, x + half] = above / 4 + across[i, j]
                grid[y + half, x] = beside / 4 + down[i, j]
        step, wibble, n = half, wibble / decay, 2 * n
    scaled: NDArray[np.float64] = (grid - grid.min()) / (grid.max() - grid.min())
    return scaled


@pytest.mark.parametrize("decay", [1.4, 3.0])
def test_maps_follow_the_definition(decay: float) -> None:
    unit = Keyed(0, range(4)).uniform(shape=(16 * 16,))
    maps = plasma(unit, decay)
    assert maps.shape == (4, 16, 16)
    for numbers, got in zip(unit.double().numpy(), maps.numpy(), strict=True):
        np.testing.assert_allclose(got, by_definition(numbers, 16, decay), atol=1e-5)


def test_maps_fill_the_unit_interval_and_smoothness_grows_with_decay() -> None:
    unit = Keyed(0, range(8)).uniform(shape=(64 * 64,))
    rough, smooth = plasma(unit, 1.4), plasma(unit, 3.0)
    for maps in (rough, smooth):
        assert torch.equal(maps.amin(dim=(1, 2)), torch.zeros(8))
        assert torch.equal(maps.amax(dim=(1, 2)), torch.ones(8))
    assert rough.diff(dim=2).abs().mean() > 3 * smooth.diff(dim=2).abs().mean()


@pytest.mark.parametrize(("height", "width", "side"), [(224, 224, 256), (32, 32, 32), (8, 40, 64), (33, 9, 64)])
def test_the_map_covers_the_image(height: int, width: int, side: int) -> None:
    assert plasma_side(height, width) == side
