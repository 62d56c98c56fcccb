"""Splines against scipy.ndimage."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import ndimage

from shiftproof.shifts import splines
from tests.shifts.batches import random_images


@pytest.mark.parametrize(("height", "width"), [(8, 8), (11, 20), (32, 32)])
def test_coefficients_are_scipys(height: int, width: int) -> None:
    images = random_images(3, 3, height, width)
    expected = [[ndimage.spline_filter(plane, mode="mirror") for plane in image] for image in images.numpy()]
    np.testing.assert_allclose(splines.coefficients(images).numpy(), np.array(expected), atol=2e-6)


@pytest.mark.parametrize("softness", [0.0, 0.3, 1.0])
def test_taps_interpolate_as_scipy_does(softness: float) -> None:
    values = np.random.default_rng(0).uniform(size=9)
    positions = np.linspace(0, 8, 41)
    index, share = splines.taps(torch.from_numpy(positions), 9, softness)
    cubic, linear = (
        ndimage.map_coordinates(values, [positions], order=order, mode="mirror", prefilter=False) for order in (3, 1)
    )
    found = (torch.from_numpy(values)[index] * share).sum(1).numpy()
    np.testing.assert_allclose(found, softness * cubic + (1 - softness) * linear, atol=1e-12)


def test_the_spline_goes_through_the_pixels() -> None:
    images = random_images(2, 1, 10, 10)
    index, share = splines.taps(torch.arange(10.0, dtype=torch.float64), 10)
    values = splines.coefficients(images).double()
    for axis in (2, 3):
        taps = values.movedim(axis, 3)[..., index]
        values = (taps * share).sum(4).movedim(3, axis)
    torch.testing.assert_close(values.float(), images, atol=1e-6, rtol=0)
