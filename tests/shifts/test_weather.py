"""Fog and snow against closed forms and scipy; every weather corruption in any batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import ndimage
from torch import Tensor

from shiftproof.keyed import Keyed
from shiftproof.shifts import corruption
from shiftproof.shifts.corruptions.plasma import plasma
from shiftproof.shifts.corruptions.weather import Flakes, Fog, Snow, _zoomed
from shiftproof.shifts.image_shift import Shape
from shiftproof.shifts.tables import Parameters

WEATHER = ("fog", "frost", "snow", "spatter")
SNOW = Parameters(loc=0.2, scale=0.3, zoom=2.0, threshold=0.5, radius=4, sigma=2.0, mix=0.7)


def pictures(*shape: int) -> Tensor:
    """Images with structure at several scales, on the 256 levels."""
    fine = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    coarse = torch.nn.functional.interpolate(fine[:, :, ::4, ::4], size=shape[2:], mode="bilinear")
    return ((0.3 * fine + 0.7 * coarse) * 255).round() / 255


class TestEveryWeather:
    @pytest.mark.parametrize("severity", [0.5, 3.0, 5.0])
    @pytest.mark.parametrize(("channels", "height", "width"), [(3, 32, 32), (1, 23, 40), (3, 8, 8)])
    @pytest.mark.parametrize("name", WEATHER)
    def test_an_image_has_the_same_bits_in_any_batch(
        self, name: str, channels: int, height: int, width: int, severity: float
    ) -> None:
        shift = corruption(name, severity)
        images, keys = pictures(64, channels, height, width), torch.arange(100, 164)
        before = images.clone()
        together = shift(images, keys)
        assert torch.equal(images, before)
        assert together.isfinite().all()
        assert torch.equal(shift(images[5:6], keys[5:6]), together[5:6])
        assert torch.equal(shift(images[9:16], keys[9:16]), together[9:16])
        order = torch.randperm(64, generator=torch.Generator().manual_seed(1))
        assert torch.equal(shift(images[order], keys[order]), together[order])

    @pytest.mark.parametrize("name", WEATHER)
    def test_images_get_weather_of_their_own(self, name: str) -> None:
        shifted = corruption(name, 4)(pictures(1, 3, 32, 32).expand(6, -1, -1, -1), range(6))
        assert len({image.numpy().tobytes() for image in shifted}) == 6


class TestFog:
    def test_mixes_the_top_left_of_the_cloud_and_keeps_the_peak(self) -> None:
        p = Parameters(thickness=1.5, decay=2.0)
        images = pictures(3, 3, 20, 30) * torch.tensor([1.0, 0.5, 0.0]).view(3, 1, 1, 1)
        unit = Fog().sample(Keyed(0, range(3)), Shape(3, 20, 30), p)
        assert unit.shape == (3, 32 * 32)
        foggy = Fog().apply(images, unit, p)
        cloud = plasma(unit, 2.0)[:, None, :20, :30].double().numpy()
        peak = images.amax(dim=(1, 2, 3), keepdim=True).double().numpy()
        np.testing.assert_allclose(foggy, (images.numpy() + 1.5 * cloud) * peak / (peak + 1.5), atol=1e-6)
        assert (foggy.amax(dim=(1, 2, 3)) <= images.amax(dim=(1, 2, 3)) + 1e-6).all()


class TestSnow:
    def test_without_flakes_the_image_is_whitened(self) -> None:
        images = pictures(2, 3, 16, 16)
        field = torch.zeros(2, 1, 8, 8)
        snowy = Snow().apply(images, Flakes(field, torch.full((2,), -90.0)), SNOW)
        x = images.double().numpy()
        grey = np.tensordot(x, [0.299, 0.587, 0.114], axes=(1, 0))[:, None]
        np.testing.assert_allclose(snowy, 0.7 * x + 0.3 * np.maximum(x, 1.5 * grey + 0.5), atol=1e-6)

    def test_the_layer_is_its_own_half_turn(self) -> None:
        drawn = Snow().sample(Keyed(0, range(4)), Shape(1, 24, 24), SNOW)
        layer = Snow().apply(torch.ones(4, 1, 24, 24), drawn, Parameters({**SNOW, "mix": 1.0})) - 1
        assert layer.amax() > 0.1
        torch.testing.assert_close(layer, layer.flip(2, 3))

    def test_flakes_fly_downwards_within_45_degrees(self) -> None:
        drawn = Snow().sample(Keyed(0, range(1000)), Shape(1, 32, 32), SNOW)
        assert drawn.field.shape == (1000, 1, 16, 16)
        assert -135 <= drawn.angle.min() < -130
        assert -50 < drawn.angle.max() <= -45
        assert float(drawn.field.mean()) == pytest.approx(0.2, abs=0.01)
        assert float(drawn.field.std()) == pytest.approx(0.3, abs=0.01)

    @pytest.mark.parametrize(("height", "width", "zoom"), [(32, 32, 1.0), (32, 32, 1.75), (30, 41, 4.5), (9, 8, 2.5)])
    def test_zooming_is_scipy_s(self, height: int, width: int, zoom: float) -> None:
        kept = [int(np.ceil(side / zoom)) for side in (height, width)]
        field = torch.randn(2, 1, *kept, generator=torch.Generator().manual_seed(0))
        got = _zoomed(field, height, width, zoom)
        for plane, large in zip(field[:, 0].double().numpy(), got[:, 0].numpy(), strict=True):
            expected = ndimage.zoom(plane, zoom, order=1)
            top, left = (expected.shape[0] - height) // 2, (expected.shape[1] - width) // 2
            np.testing.assert_allclose(large, expected[top : top + height, left : left + width], atol=1e-5)
