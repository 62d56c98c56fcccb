"""Levels of stored images."""

from __future__ import annotations

import torch

from shiftproof.shifts.base import quantize
from shiftproof.shifts.levels import from_levels, to_levels


def test_every_level_survives_the_way_there_and_back() -> None:
    levels = torch.arange(256, dtype=torch.uint8)
    assert torch.equal(to_levels(from_levels(levels)), levels)


def test_values_between_levels_are_truncated_as_images_are() -> None:
    images = torch.linspace(0, 1, 10_001)
    assert torch.equal(from_levels(to_levels(images)), quantize(images))
