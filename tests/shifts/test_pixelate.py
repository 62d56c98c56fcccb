"""Batched BOX resampling against Pillow's, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from shiftproof.shifts.corruptions.pixelate import pixelate


def by_pillow(image: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    """Shrink along x, then along y, and enlarge: versions of Pillow differ in the order they choose by themselves."""
    full = Image.fromarray(image)
    narrow = full.resize((width, full.height), Image.Resampling.BOX)
    small = narrow.resize((width, height), Image.Resampling.BOX)
    return np.asarray(small.resize(full.size, Image.Resampling.BOX))


def check(height: int, width: int, small_height: int, small_width: int, seed: int) -> None:
    images = np.random.default_rng(seed).integers(0, 256, (2, height, width, 3), dtype=np.uint8)
    squares = pixelate(torch.from_numpy(images).permute(0, 3, 1, 2), small_height, small_width)
    expected = np.stack([by_pillow(image, small_height, small_width) for image in images])
    np.testing.assert_array_equal(squares.permute(0, 2, 3, 1).numpy(), expected)


@settings(max_examples=50)
@given(st.integers(8, 70), st.integers(8, 70), st.floats(0.05, 1.0), st.floats(0.05, 1.0), st.integers(0, 2**32 - 1))
def test_any_size_equals_pillow(height: int, width: int, down: float, across: float, seed: int) -> None:
    check(height, width, max(1, int(height * down)), max(1, int(width * across)), seed)


@pytest.mark.parametrize("factor", [0.25, 0.3, 0.4, 0.5, 0.6])
def test_published_factors_at_224_equal_pillow_in_one_call(factor: float) -> None:
    image = np.random.default_rng(0).integers(0, 256, (224, 224, 3), dtype=np.uint8)
    side = int(224 * factor)
    small = Image.fromarray(image).resize((side, side), Image.Resampling.BOX)
    expected = np.asarray(small.resize((224, 224), Image.Resampling.BOX))
    squares = pixelate(torch.from_numpy(image).permute(2, 0, 1)[None], side, side)
    np.testing.assert_array_equal(squares[0].permute(1, 2, 0).numpy(), expected)


def test_one_square_is_the_mean() -> None:
    levels = torch.tensor([[0, 255], [255, 255]], dtype=torch.uint8).repeat_interleave(4, 0).repeat_interleave(4, 1)
    # 127.5 rounds to 128 along x; the mean of 128 and 255 rounds up along y.
    assert pixelate(levels[None, None], 1, 1).unique().tolist() == [192]
