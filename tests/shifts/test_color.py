"""Luma against Pillow."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image

from shiftproof.shifts.color import luma


def test_luma_is_that_of_pillow() -> None:
    levels = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
    images = torch.from_numpy(levels).permute(2, 0, 1)[None].float() / 255
    expected = np.asarray(Image.fromarray(levels).convert("L"))
    assert np.abs(luma(images)[0, 0].numpy() * 255 - expected).max() < 0.51


def test_one_channel_is_its_own_luma() -> None:
    images = torch.rand(2, 1, 8, 8)
    assert torch.equal(luma(images), images)
