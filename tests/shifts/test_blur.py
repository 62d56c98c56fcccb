"""Blurs against scipy, and the exchange of glass blur against the scan it stands for."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import ndimage
from torch import Tensor

from shiftproof.keyed import Keyed
from shiftproof.shifts import corruption
from shiftproof.shifts.corruptions.blur import (
    DefocusBlur,
    GaussianBlur,
    GlassBlur,
    MotionBlur,
    ZoomBlur,
    disk,
    exchange_sources,
)
from shiftproof.shifts.image_shift import Shape
from shiftproof.shifts.tables import Parameters

BLURS = ("gaussian_blur", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur")


def pictures(*shape: int) -> Tensor:
    """Images with structure at several scales, on the 256 levels."""
    fine = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    coarse = torch.nn.functional.interpolate(fine[:, :, ::4, ::4], size=shape[2:], mode="bilinear")
    return ((0.3 * fine + 0.7 * coarse) * 255).round() / 255


class TestEveryBlur:
    @pytest.mark.parametrize("severity", [2.5, 5.0])
    @pytest.mark.parametrize(("channels", "height", "width"), [(3, 32, 32), (1, 23, 40)])
    @pytest.mark.parametrize("name", BLURS)
    def test_an_image_has_the_same_bits_in_any_batch(
        self, name: str, channels: int, height: int, width: int, severity: float
    ) -> None:
        shift = corruption(name, severity, preset="imagenet")
        images, keys = pictures(64, channels, height, width), torch.arange(100, 164)
        before = images.clone()
        together = shift(images, keys)
        for rows in (slice(0, 1), slice(63, 64), slice(5, 12)):
            assert torch.equal(shift(images[rows].clone(), keys[rows]), together[rows])
        order = torch.randperm(64, generator=torch.Generator().manual_seed(1))
        assert torch.equal(shift(images[order], keys[order]), together[order])
        assert torch.equal(images, before)

    @pytest.mark.parametrize("preset", ["cifar", "imagenet"])
    @pytest.mark.parametrize("name", BLURS)
    def test_a_flat_image_stays_as_it_is(self, name: str, preset: str) -> None:
        levels = torch.tensor([0.0, 1.0, 128.0, 255.0]) / 255
        images = levels[:, None, None, None].expand(4, 3, 20, 26).contiguous()
        assert torch.equal(corruption(name, 3.0, preset=preset)(images, range(4)), images)

    @pytest.mark.parametrize("severity", [0.01, 0.7, 5.0])
    @pytest.mark.parametrize("name", BLURS)
    def test_the_smallest_images_can_be_blurred(self, name: str, severity: float) -> None:
        images = pictures(2, 1, 8, 9)
        for preset in ("cifar", "imagenet"):
            blurred = corruption(name, severity, preset=preset)(images, [1, 2])
            assert blurred.shape == images.shape
            assert bool(((blurred >= 0) & (blurred <= 1)).all())

    @pytest.mark.parametrize("name", BLURS)
    def test_a_hint_of_severity_changes_little(self, name: str) -> None:
        images = pictures(4, 3, 32, 32)
        slight, full = (corruption(name, severity)(images, range(4)) for severity in (0.02, 3.0))
        assert (slight - images).abs().mean() < 1.5 / 255 < (full - images).abs().mean()


def test_gaussian_blur_is_scipys() -> None:
    images = pictures(2, 3, 24, 20)
    expected = ndimage.gaussian_filter(images.double().numpy(), 1.3, mode="nearest", axes=(2, 3))
    blurred = GaussianBlur().apply(images, None, Parameters(sigma=1.3))
    np.testing.assert_allclose(blurred.numpy(), expected, atol=1e-6)


class TestDefocusBlur:
    def test_a_sharp_disk_has_equal_weights_within_its_radius(self) -> None:
        kernel = disk(3.0, 0.05)
        axis = torch.arange(-3, 4)
        inside = axis[:, None] ** 2 + axis**2 <= 9
        torch.testing.assert_close(kernel, inside.double() / inside.sum())

    def test_under_one_pixel_only_the_smoothing_is_left(self) -> None:
        taps = torch.tensor([math.exp(-1 / (2 * 0.6**2)), 1.0, math.exp(-1 / (2 * 0.6**2))], dtype=torch.float64)
        taps /= taps.sum()
        torch.testing.assert_close(disk(0.5, 0.6), taps[:, None] * taps)

    @pytest.mark.parametrize(("radius", "half", "reach"), [(3.0, 8, 1), (8.0, 8, 1), (8.5, 9, 2), (10.0, 10, 2)])
    def test_a_disk_is_smoothed_on_its_mirrored_grid(self, radius: float, half: int, reach: int) -> None:
        axis = np.arange(-half, half + 1)
        expected = (axis[:, None] ** 2 + axis**2 <= radius**2).astype(float)
        expected /= expected.sum()
        taps = np.exp(-0.5 * (np.arange(-reach, reach + 1) / 0.5) ** 2)
        for dimension in (0, 1):
            expected = ndimage.correlate1d(expected, taps / taps.sum(), axis=dimension, mode="mirror")
        kernel = disk(radius, 0.5).numpy()
        margin = half - len(kernel) // 2
        np.testing.assert_allclose(np.pad(kernel, margin), expected, atol=1e-9)

    def test_the_filter_is_scipys(self) -> None:
        images = pictures(2, 3, 40, 30)
        blurred = DefocusBlur().apply(images, None, Parameters(radius=6.0, alias=0.5))
        kernel = disk(6.0, 0.5).numpy()[None, None]
        expected = ndimage.correlate(images.double().numpy(), kernel, mode="mirror")
        np.testing.assert_allclose(blurred.numpy(), expected, atol=1e-6)


def scan(unit: NDArray[np.float32], delta: int) -> NDArray[np.int64]:
    """Exchange pixels one after another in scan order, on an image whose values are the pixels' own numbers."""
    height, width = unit.shape[1:]
    image = np.arange(height * width).reshape(height, width)
    for numbers in unit:
        for h in range(height - delta, delta, -1):
            for w in range(width - delta, delta, -1):
                dy, dx = divmod(int(numbers[h, w] * (2 * delta) ** 2), 2 * delta)
                image[h, w] = image[h + dy - delta, w + dx - delta]
    return image.ravel()


class TestGlassBlur:
    @pytest.mark.parametrize("delta", [1, 2, 3, 4])
    @pytest.mark.parametrize(("height", "width", "exchanges"), [(48, 40, 1), (17, 33, 3), (8, 8, 2), (20, 20, 0)])
    def test_pointer_doubling_ends_where_the_scan_does(
        self, delta: int, height: int, width: int, exchanges: int
    ) -> None:
        unit = Keyed(3, [5, 6, 7]).uniform(shape=(exchanges, height, width))
        expected = [scan(numbers.numpy(), delta) for numbers in unit]
        assert exchange_sources(unit, delta).tolist() == [source.tolist() for source in expected]

    def test_the_longest_paths_that_occur_are_followed_to_their_end(self) -> None:
        unit = Keyed(0, [1]).uniform(shape=(1, 200, 180))
        assert exchange_sources(unit, 4)[0].tolist() == scan(unit[0].numpy(), 4).tolist()

    def test_exchange_lies_between_two_blurs(self) -> None:
        images, p = pictures(2, 3, 30, 26), Parameters(sigma=0.9, delta=2.0, iterations=2.0)
        glass = GlassBlur()
        unit = glass.sample(Keyed(0, [8, 9]), Shape(3, 30, 26), p)
        blurred = ndimage.gaussian_filter(images.double().numpy(), 0.9, mode="nearest", axes=(2, 3))
        levels = np.floor(blurred * 255 + 2.0**-10) / 255
        sources = [scan(numbers.numpy(), 2) for numbers in unit]
        mixed = np.stack([level.reshape(3, -1)[:, source] for level, source in zip(levels, sources, strict=True)])
        expected = ndimage.gaussian_filter(mixed.reshape(images.shape), 0.9, mode="nearest", axes=(2, 3))
        # A blurred value within rounding of a level may be truncated to either side.
        difference = np.abs(glass.apply(images, unit, p).numpy() - expected)
        assert difference.mean() < 1e-5
        assert difference.max() < 1.5 / 255


class TestMotionBlur:
    def test_angles_fill_ninety_degrees_about_the_horizontal(self) -> None:
        angle = MotionBlur().sample(Keyed(0, range(4000)), Shape(3, 32, 32), Parameters())
        assert -45 <= angle.min() < -44.5
        assert 44.5 < angle.max() <= 45
        assert angle.mean().item() == pytest.approx(0, abs=1.3)

    def test_a_point_becomes_a_line_that_ends_in_it(self) -> None:
        images = torch.zeros(1, 1, 32, 32)
        images[0, 0, 16, 20] = 1.0
        smeared = MotionBlur().apply(images, torch.tensor([0.0]), Parameters(radius=5.0, sigma=3.0))
        weights = torch.exp(-0.5 * (torch.arange(11) / 3.0) ** 2)
        expected = torch.zeros(32, 32)
        expected[16, 10:21] = (weights / weights.sum()).flip(0)
        torch.testing.assert_close(smeared[0, 0], expected, atol=1e-6, rtol=0)


def zoomed_mean(image: NDArray[np.float64], zooms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Zoom blur of one plane with scipy's zoom."""
    total = image.copy()
    for zoom in zooms:
        crop = [math.ceil(side / zoom) for side in image.shape]
        top, left = ((side - part) // 2 for side, part in zip(image.shape, crop, strict=True))
        large = ndimage.zoom(image[top : top + crop[0], left : left + crop[1]], zoom, order=1, mode="nearest")
        top, left = ((side - part) // 2 for side, part in zip(large.shape, image.shape, strict=True))
        total += large[top : top + image.shape[0], left : left + image.shape[1]]
    return total / (len(zooms) + 1)


class TestZoomBlur:
    @pytest.mark.parametrize(("stop", "step", "layers"), [(1.06, 0.01, 7), (1.21, 0.02, 11), (1.31, 0.03, 11)])
    @pytest.mark.parametrize(("height", "width"), [(32, 32), (45, 70), (8, 9)])
    def test_layers_are_scipys_zooms(self, stop: float, step: float, layers: int, height: int, width: int) -> None:
        zooms = np.arange(1, stop, step)
        assert len(zooms) == layers
        images = pictures(2, 3, height, width)
        expected = [[zoomed_mean(plane.double().numpy(), zooms) for plane in image] for image in images]
        blurred = ZoomBlur().apply(images, None, Parameters(stop=stop, step=step))
        np.testing.assert_allclose(blurred.numpy(), np.array(expected), atol=2e-6)

    def test_large_images_are_prepared_in_bands(self) -> None:
        images = pictures(1, 1, 150, 130)
        blurred = ZoomBlur().apply(images, None, Parameters(stop=1.31, step=0.03))
        expected = zoomed_mean(images[0, 0].double().numpy(), np.arange(1, 1.31, 0.03))
        np.testing.assert_allclose(blurred[0, 0].numpy(), expected, atol=2e-6)
