"""Enhancement operations against Pillow, bit for bit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from shiftproof.shifts.operations import enhance
from shiftproof.shifts.operations.operation import apply_

Pixels = npt.NDArray[np.uint8]

FACTORS = (0.0, 0.1, 0.3, 0.6421052631578947, 0.8, 1.0, 1.2, 1.9, 10.0, -0.7)
LEVELS: dict[str, tuple[float, ...]] = {
    "autocontrast": (0.0, 0.0157, 0.3, 1.0, 2.0, 5.0, 33.3, 49.9, 50.0, 100.0),
    "brightness": FACTORS,
    "color": FACTORS,
    "contrast": FACTORS,
    "sharpness": FACTORS,
    "solarize": (0.0, 1.0, 19.0, 127.5, 128.0, 255.0, 256.0),
    "posterize": (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0),
    "red_shift": (-255.0, -120.0, -1.0, 0.0, 30.0, 255.0),
    "green_shift": (-30.0, 120.0),
    "blue_shift": (-111.0, 8.0),
    "equalize": (0.0,),
    "invert": (0.0,),
    "grayscale": (0.0,),
}


def with_pillow(name: str, pixels: Pixels, level: float) -> Pixels:
    """Make the operation with Pillow; grey images stay grey."""
    image = Image.fromarray(pixels)
    if name in ("brightness", "color", "contrast", "sharpness"):
        result = getattr(ImageEnhance, name.capitalize())(image).enhance(level)
    elif name.endswith("_shift"):
        levels = np.array(image.convert("RGB"), dtype=int)
        levels[..., ("red_shift", "green_shift", "blue_shift").index(name)] += int(level)
        result = Image.fromarray(levels.clip(0, 255).astype(np.uint8)).convert(image.mode)
    elif name == "grayscale":
        result = ImageOps.grayscale(image).convert(image.mode)
    elif name in ("equalize", "invert"):
        result = getattr(ImageOps, name)(image)
    else:
        result = getattr(ImageOps, name)(image, int(level) if name == "posterize" else level)
    return np.asarray(result)


def to_levels(pixels: Pixels) -> Tensor:
    """H x W or H x W x 3 bytes to 1 x C x H x W levels."""
    levels = torch.from_numpy(pixels.astype(np.float32))
    return levels[None, None] if pixels.ndim == 2 else levels.permute(2, 0, 1)[None].contiguous()


def to_pixels(levels: Tensor) -> Pixels:
    """C x H x W levels to bytes, refusing what is not a level."""
    array = levels.numpy()
    assert np.array_equal(array, array.round().clip(0, 255))
    return np.ascontiguousarray(array.transpose(1, 2, 0).squeeze(2) if len(array) == 1 else array.transpose(1, 2, 0))


def synthetic(channels: int) -> list[Pixels]:
    """Noise, low contrast, two values, one value, and a few bright pixels: the corners of the histogram code."""
    random = np.random.default_rng(0)
    shape = (24, 33) if channels == 1 else (24, 33, 3)
    return [
        random.integers(0, 256, shape, dtype=np.uint8),
        random.normal(128, 9, shape).clip(0, 255).astype(np.uint8),
        random.integers(0, 2, shape, dtype=np.uint8) * np.uint8(255),
        np.full(shape, 77, np.uint8),
        (random.random(shape) < 0.01).astype(np.uint8) * np.uint8(250) + np.uint8(3),
        random.geometric(0.05, shape).clip(0, 255).astype(np.uint8),
    ]


@pytest.fixture(scope="module")
def photographs() -> list[Pixels]:
    data = pytest.importorskip("skimage.data")
    return [data.astronaut()[::2, ::2], data.chelsea()[::2, ::2], data.coffee()[::2, ::2], data.rocket()[::2, ::2]]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", LEVELS)
def test_equals_pillow_with_a_level_of_its_own_for_every_image(name: str, channels: int) -> None:
    pairs = [(pixels, level) for pixels in synthetic(channels) for level in LEVELS[name]]
    batch = torch.cat([to_levels(pixels) for pixels, _ in pairs])
    result = apply_(name, batch, torch.tensor([level for _, level in pairs], dtype=torch.float64))
    for (pixels, level), levels in zip(pairs, result, strict=True):
        assert np.array_equal(to_pixels(levels), with_pillow(name, pixels, level)), level


@pytest.mark.parametrize("name", LEVELS)
def test_equals_pillow_on_photographs(name: str, photographs: list[Pixels]) -> None:
    for pixels in photographs:
        for image in (pixels, np.asarray(Image.fromarray(pixels).convert("L"))):
            level = LEVELS[name][len(LEVELS[name]) // 2]
            (result,) = apply_(name, to_levels(image), torch.tensor([level], dtype=torch.float64))
            assert np.array_equal(to_pixels(result), with_pillow(name, image, level))


sizes = st.tuples(st.integers(8, 20), st.integers(8, 20))
pictures = st.one_of(
    sizes.flatmap(lambda size: arrays(np.uint8, size)),
    sizes.flatmap(lambda size: arrays(np.uint8, (*size, 3))),
)


@given(pixels=pictures, factor=st.floats(-3, 5), name=st.sampled_from(["brightness", "color", "contrast", "sharpness"]))
def test_blends_equal_pillow_for_any_factor(pixels: Pixels, factor: float, name: str) -> None:
    (result,) = apply_(name, to_levels(pixels), torch.tensor([factor], dtype=torch.float64))
    assert np.array_equal(to_pixels(result), with_pillow(name, pixels, factor))


@given(pixels=pictures, cutoff=st.floats(0, 100))
def test_histogram_operations_equal_pillow(pixels: Pixels, cutoff: float) -> None:
    (stretched,) = enhance.autocontrast_(to_levels(pixels), torch.tensor([cutoff], dtype=torch.float64))
    assert np.array_equal(to_pixels(stretched), with_pillow("autocontrast", pixels, cutoff))
    (flat,) = enhance.equalize(to_levels(pixels))
    assert np.array_equal(to_pixels(flat), with_pillow("equalize", pixels, 0.0))


def test_histogram_counts_like_numpy() -> None:
    pixels = synthetic(3)[1]
    counts = enhance.histogram(to_levels(pixels))[0].numpy()
    for channel in range(3):
        assert np.array_equal(counts[channel], np.bincount(pixels[..., channel].ravel(), minlength=256))


def test_every_colour_turns_grey_like_pillow() -> None:
    """All sums of the fixed-point weights, on a grid of colours with the extremes."""
    axis = np.unique(np.r_[np.arange(0, 256, 5), 254, 255]).astype(np.uint8)
    colours = np.stack(np.meshgrid(axis, axis, axis), axis=-1).reshape(len(axis), -1, 3)
    (grey,) = enhance.luma(to_levels(colours))
    assert np.array_equal(to_pixels(grey), np.asarray(Image.fromarray(colours).convert("L")))


@pytest.mark.parametrize("function", [enhance.luma, enhance.invert_, enhance.equalize, enhance.grayscale])
def test_channels_last_images_are_the_same_images(function: Callable[[Tensor], Tensor]) -> None:
    levels = to_levels(synthetic(3)[0])
    assert torch.equal(function(levels.contiguous(memory_format=torch.channels_last)), function(levels))
