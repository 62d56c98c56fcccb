"""Geometric operations against Pillow, numpy and scipy."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.ndimage import affine_transform
from torch import Tensor

from shiftproof.errors import ConfigurationError
from shiftproof.shifts.operations import geometric
from shiftproof.shifts.operations.geometric import Fill
from shiftproof.shifts.operations.operation import operation
from tests.shifts.test_enhance import Pixels, to_levels, to_pixels

BILINEAR = Image.Resampling.BILINEAR
AFFINE = Image.Transform.AFFINE


def one(value: float) -> Tensor:
    return torch.tensor([value], dtype=torch.float64)


@pytest.fixture(scope="module")
def photograph() -> Pixels:
    data = pytest.importorskip("skimage.data")
    cat: Pixels = data.chelsea()[60:156, 100:228]
    return cat


def assert_close(result: Tensor, expected: Image.Image) -> None:
    """Within a level everywhere, and nearly everywhere the same: Pillow samples in float64 and truncates."""
    difference = np.abs(to_pixels(result[0]).astype(int) - np.asarray(expected).astype(int))
    assert difference.max() <= 1
    assert difference.mean() < 0.1


@pytest.mark.parametrize("degrees", [0.0, 5.0, -17.3, 45.0, 90.0, 180.0, 271.0])
def test_rotate_equals_pillow(photograph: Pixels, degrees: float) -> None:
    expected = Image.fromarray(photograph).rotate(degrees, BILINEAR)
    assert_close(geometric.rotate(to_levels(photograph), one(degrees)), expected)


@pytest.mark.parametrize("slope", [0.1, -0.3, 0.7])
def test_shear_equals_pillow(photograph: Pixels, slope: float) -> None:
    image, levels = Image.fromarray(photograph), to_levels(photograph)
    expected = image.transform(image.size, AFFINE, (1, -slope, 0, 0, 1, 0), BILINEAR)
    assert_close(geometric.shear_x(levels, one(slope)), expected)
    expected = image.transform(image.size, AFFINE, (1, 0, 0, -slope, 1, 0), BILINEAR)
    assert_close(geometric.shear_y(levels, one(slope)), expected)


@pytest.mark.parametrize("factor", [0.6, 1.0, 1.37, 3.0])
def test_scale_equals_pillow(photograph: Pixels, factor: float) -> None:
    image = Image.fromarray(photograph)
    width, height = image.size
    matrix = (1 / factor, 0, width * (1 - 1 / factor) / 2, 0, 1 / factor, height * (1 - 1 / factor) / 2)
    expected = image.transform(image.size, AFFINE, matrix, BILINEAR)
    assert_close(geometric.scale(to_levels(photograph), one(factor)), expected)


@pytest.mark.parametrize(("fill", "mode"), [("black", "constant"), ("edge", "edge"), ("reflect", "symmetric")])
@pytest.mark.parametrize("size", [(8, 11), (32, 32), (224, 300)])
def test_translation_moves_whole_pixels_without_loss(fill: Fill, mode: str, size: tuple[int, int]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)
    right, down = 3, -2
    padded = np.pad(pixels, 3, mode=mode)  # type: ignore[call-overload]
    expected = padded[3 - down : 3 - down + size[0], 3 - right : 3 - right + size[1]]
    result = geometric.translate(to_levels(pixels), one(right / size[1]), one(down / size[0]), fill)
    assert np.array_equal(to_pixels(result[0]), expected)


def test_grey_fill_is_the_middle_level() -> None:
    white = torch.full((1, 3, 8, 8), 255.0)
    result = geometric.translate_x(white, one(0.5), "grey")
    assert torch.equal(result[..., :4], torch.full((1, 3, 8, 4), 128.0))
    assert torch.equal(result[..., 4:], white[..., 4:])


def test_reflected_rotation_equals_scipy(photograph: Pixels) -> None:
    grey = photograph[..., 1]
    angle = math.radians(20)
    matrix = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    centre = (np.array(grey.shape) - 1) / 2
    expected = affine_transform(grey.astype(float), matrix, centre - matrix @ centre, order=1, mode="reflect")
    result = to_pixels(geometric.rotate(to_levels(grey), one(20.0), "reflect")[0]).astype(int)
    assert np.abs(result - np.floor(expected)).max() <= 1
    assert np.abs(result - expected).mean() < 0.6


def test_flip_and_quarter_turns_are_exact() -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    assert np.array_equal(to_pixels(geometric.flip(to_levels(pixels))[0]), pixels[:, ::-1])
    assert np.array_equal(to_pixels(geometric.rotate(to_levels(pixels), one(90.0))[0]), np.rot90(pixels))


@pytest.mark.parametrize(
    "function", [geometric.rotate, geometric.translate_x, geometric.translate_y, geometric.shear_x, geometric.shear_y]
)
def test_every_image_has_its_own_level(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    levels = torch.randint(0, 256, (5, 3, 20, 31), generator=torch.Generator().manual_seed(0)).float()
    level = torch.tensor([-0.4, 0.0, 0.05, 0.3, 0.9], dtype=torch.float64)
    together = function(levels, level)
    assert torch.equal(together[1], levels[1])
    for image in range(5):
        assert torch.equal(function(levels[image : image + 1], level[image : image + 1])[0], together[image])


def test_unknown_fill() -> None:
    with pytest.raises(ConfigurationError, match="did you mean  reflect"):
        operation("rotate", 3, fill="reflected")  # type: ignore[arg-type]
