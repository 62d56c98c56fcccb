"""Textures made by rule: always the same, with the looks they are given, icy at the edges."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from shiftproof.keyed import Keyed
from shiftproof.shifts.corruptions.crystals import GROWTHS, LOOKS, SIDE, Growth, crystals, textures


@pytest.mark.parametrize("growth", GROWTHS)
def test_a_key_always_grows_the_same_crystals(growth: Growth) -> None:
    alone, among = crystals(Keyed(0, [7]), growth), crystals(Keyed(0, [4, 7]), growth)
    assert torch.equal(alone[0], among[1])
    assert not torch.equal(among[0], among[1])


def test_textures_have_their_looks() -> None:
    for look, texture in zip(LOOKS, textures(), strict=True):
        assert texture.shape == (3, SIDE, SIDE)
        assert texture.min() >= 0
        assert texture.max() <= 1
        assert (texture.mean(dim=(1, 2)) * 255).tolist() == pytest.approx(look.colour, abs=2)
        assert float(texture.mean(dim=0).std() * 255) == pytest.approx(look.contrast, rel=0.1)


def test_there_is_structure_at_every_scale() -> None:
    for texture in textures():
        power = np.abs(np.fft.fft2(texture.mean(dim=0).numpy() * 255)) ** 2 / SIDE**2
        frequency = np.fft.fftfreq(SIDE) * SIDE
        radius = np.hypot(frequency[:, None], frequency)
        octaves = [power[(radius >= low) & (radius < 2 * low)].mean() for low in (2, 4, 8, 16, 32, 64, 128)]
        # Photographs of frost fall by a factor of 3 to 6 per octave.
        ratios = np.array(octaves[:-1]) / np.array(octaves[1:])
        assert ((ratios > 1.2) & (ratios < 12)).all()


def test_ice_is_thickest_at_the_edges() -> None:
    quarter = SIDE // 4
    for texture in textures():
        middle = texture[:, quarter:-quarter, quarter:-quarter]
        rim = torch.cat([texture[:, :quarter], texture[:, -quarter:]], dim=1)
        assert rim.std() > middle.std()


@pytest.mark.parametrize("growth", GROWTHS)
def test_crystals_fill_the_window_without_seams(growth: Growth) -> None:
    assert SIDE % growth.seeds == 0
    shade = crystals(Keyed(3, [1]), growth)[0]
    assert shade.isfinite().all()
    # Cells of seeds leave no grid: steps across cell borders are like steps within cells.
    pixels = SIDE // growth.seeds
    steps = shade.diff(dim=1).abs()
    across = steps[:, pixels - 1 :: pixels].mean()
    assert float(across / steps.mean()) == pytest.approx(1.0, abs=0.15)
