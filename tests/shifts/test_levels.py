"""Levels of stored images."""

from __future__ import annotations

import torch

from shiftproof.shifts.levels import from_levels, quantize, to_bytes, to_levels


def test_every_level_survives_the_way_there_and_back() -> None:
    levels = torch.arange(256, dtype=torch.uint8)
    assert torch.equal(to_bytes(from_levels(levels)), levels)
    assert torch.equal(to_levels(from_levels(levels)), levels.float())
    assert torch.equal(quantize(from_levels(levels)), from_levels(levels))


def test_values_between_levels_are_truncated_as_images_are() -> None:
    images = torch.linspace(0, 1, 10_001)
    assert torch.equal(from_levels(to_bytes(images)), quantize(images))
    assert torch.equal(from_levels(to_levels(images)), quantize(images))
    assert torch.equal(to_bytes(images), (images.double() * 255 + 1e-4).to(torch.uint8))


def test_values_outside_are_clipped() -> None:
    assert quantize(torch.tensor([-1.0, 2.0])).tolist() == [0.0, 1.0]
