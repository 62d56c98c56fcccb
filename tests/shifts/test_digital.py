"""Digital corruptions against scikit-image, Pillow and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from shiftproof.keyed import Keyed
from shiftproof.shifts import corruption
from shiftproof.shifts.corruptions.corruption import Corruption
from shiftproof.shifts.corruptions.digital import Brightness, Contrast, ElasticTransform, Saturate
from shiftproof.shifts.image_shift import Shape
from shiftproof.shifts.tables import Parameters

color = pytest.importorskip("skimage.color", reason="scikit-image is the reference")

DIGITAL = ("brightness", "contrast", "saturate", "pixelate", "jpeg_compression", "elastic_transform")


def pictures(*shape: int) -> Tensor:
    """Images with smooth and fine parts on the 256 levels, some pixels black, white or grey."""
    generator = torch.Generator().manual_seed(0)
    fine = torch.rand(shape, generator=generator)
    coarse = torch.nn.functional.interpolate(fine[:, :, ::4, ::4], size=shape[2:], mode="bilinear")
    images = ((0.3 * fine + 0.7 * coarse) * 255).round() / 255
    images[:, :, 0, 0], images[:, :, 0, 1], images[:, :, 1, 0] = 0.0, 1.0, 100 / 255
    return images


def through_hsv(images: Tensor, channel: int, times: float, plus: float) -> Tensor:
    """Scale the saturation (1) or the value (2) and add to it, by scikit-image."""
    hsv = color.rgb2hsv(images.double().permute(0, 2, 3, 1).numpy())
    hsv[..., channel] = np.clip(hsv[..., channel] * times + plus, 0, 1)
    return torch.from_numpy(color.hsv2rgb(hsv)).permute(0, 3, 1, 2).float()


class TestEveryDigitalCorruption:
    @pytest.mark.parametrize("severity", [0.5, 3.0, 5.0])
    @pytest.mark.parametrize(("channels", "height", "width"), [(3, 32, 32), (1, 23, 40), (3, 8, 8)])
    @pytest.mark.parametrize("name", DIGITAL)
    def test_an_image_has_the_same_bits_in_any_batch(
        self, name: str, channels: int, height: int, width: int, severity: float
    ) -> None:
        shift = corruption(name, severity)
        images, keys = pictures(64, channels, height, width), torch.arange(100, 164)
        before = images.clone()
        together = shift(images, keys)
        assert torch.equal(images, before)
        assert torch.equal(shift(images[5:6], keys[5:6]), together[5:6])
        assert torch.equal(shift(images[9:16], keys[9:16]), together[9:16])
        order = torch.randperm(64, generator=torch.Generator().manual_seed(1))
        assert torch.equal(shift(images[order], keys[order]), together[order])


@pytest.mark.parametrize("amount", [0.05, 0.1, 0.5])
def test_brightness_is_an_added_value_in_hsv(amount: float) -> None:
    images = pictures(4, 3, 16, 16)
    brightened = Brightness().apply(images, None, Parameters(amount=amount))
    torch.testing.assert_close(brightened, through_hsv(images, 2, 1.0, amount), atol=1e-6, rtol=0)


def test_brightness_of_one_channel_is_a_sum() -> None:
    images = pictures(2, 1, 9, 11)
    brightened = Brightness().apply(images, None, Parameters(amount=0.2))
    torch.testing.assert_close(brightened, (images + 0.2).clamp(max=1.0))


@pytest.mark.parametrize(("times", "plus"), [(0.1, 0.0), (2.0, 0.0), (5.0, 0.1), (20.0, 0.2), (1.0, 0.5)])
def test_saturate_scales_saturation_in_hsv(times: float, plus: float) -> None:
    images = pictures(4, 3, 16, 16)
    saturated = Saturate().apply(images, None, Parameters(times=times, plus=plus))
    torch.testing.assert_close(saturated, through_hsv(images, 1, times, plus), atol=1e-6, rtol=0)


def test_saturate_turns_grey_red_and_leaves_one_channel_alone() -> None:
    grey = torch.full((1, 3, 8, 8), 0.5)
    red, green, blue = Saturate().apply(grey, None, Parameters(times=1.0, plus=0.2))[0, :, 0, 0].tolist()
    assert (red, green, blue) == pytest.approx((0.5, 0.4, 0.4))
    single = pictures(2, 1, 8, 8)
    assert torch.equal(Saturate().apply(single, None, Parameters(times=5.0, plus=0.1)), single)


@pytest.mark.parametrize("channels", [1, 3])
def test_contrast_shrinks_about_the_mean_of_each_channel(channels: int) -> None:
    images = pictures(2, channels, 13, 17)
    array = images.double().numpy()
    mean = array.mean(axis=(2, 3), keepdims=True)
    flat = Contrast().apply(images, None, Parameters(factor=0.3))
    np.testing.assert_allclose(flat.numpy(), (array - mean) * 0.3 + mean, atol=1e-6)


class TestElasticTransform:
    def test_lengths_follow_the_image_side(self) -> None:
        shift = corruption("elastic_transform", 3)
        assert isinstance(shift, Corruption)
        units = {side: shift.parameters(side, side).unit for side in (32, 64, 224, 448)}
        assert units[32] * 32 == pytest.approx(32)
        assert units[224] * 224 == pytest.approx(244)
        assert units[448] * 448 == pytest.approx(488)
        assert 1 < units[64] < 244 / 224

    def test_moves_stay_within_reach_and_fill_it(self) -> None:
        p = Parameters(alpha=0.1, sigma=0.05, affine=0.1, unit=1.0)
        moves = ElasticTransform().sample(Keyed(0, range(500)), Shape(3, 32, 32), p).moves
        assert moves.shape == (500, 3, 2)
        assert 3.1 < moves.abs().max() <= 3.2
        assert moves.mean().abs() < 0.15

    def test_a_still_field_leaves_the_image_as_it_is(self) -> None:
        p = Parameters(alpha=0.1, sigma=0.05, affine=0.0, unit=1.0)
        images = pictures(2, 3, 20, 32)
        drawn = ElasticTransform().sample(Keyed(0, [1, 2]), Shape(3, 20, 32), p)
        still = drawn._replace(coefficients=torch.zeros_like(drawn.coefficients))
        torch.testing.assert_close(ElasticTransform().apply(images, still, p), images, atol=2e-6, rtol=0)
