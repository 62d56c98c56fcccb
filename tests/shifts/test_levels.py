"""Levels of stored images."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from shiftproof.data import load_data
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


@pytest.mark.parametrize("device", ["cpu", *(["cuda"] if torch.cuda.is_available() else [])])
def test_levels_are_the_nearest_numbers_however_they_are_made(device: str) -> None:
    """Two ways with another last bit can end on two levels after a shift."""
    whole = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16).expand(1, 3, 16, 16).contiguous()
    nearest = torch.from_numpy(np.arange(256, dtype=np.float32) / np.float32(255)).view(16, 16).expand(1, 3, 16, 16)
    stored = whole.to(device)
    strided = stored.transpose(2, 3).contiguous().transpose(2, 3)
    (batch,) = load_data((whole, torch.zeros(1, dtype=torch.int64))).batches(1, device=device)
    ways = {
        "levels": from_levels(stored),
        "strided levels": from_levels(strided),
        "floats": from_levels(strided.float()),
        "quantized": quantize(nearest.to(device).contiguous()),
        "quantized, strided": quantize(nearest.to(device).transpose(2, 3).contiguous().transpose(2, 3)),
        "quantized bytes": quantize(strided),
        "a batch": batch.inputs,
    }
    for name, made in ways.items():
        assert torch.equal(made.cpu(), nearest), name
