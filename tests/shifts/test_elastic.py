"""Warps against scipy, and the displacement field against the filter it stands for."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import ndimage
from torch import Tensor

from shiftproof.keyed import Keyed
from shiftproof.shifts.corruptions import elastic


def pictures(*shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("side", "sigma"), [(32, 0.0), (32, 1.0), (32, 6.4), (48, 2.44), (40, 35.0), (9, 0.3)])
def test_cosines_have_the_covariance_of_smoothed_noise(side: int, sigma: float) -> None:
    smooth = (
        ndimage.gaussian_filter1d(np.eye(side), sigma, axis=0, mode="reflect", truncate=3) if sigma else np.eye(side)
    )
    covariance = smooth @ smooth.T
    cosines = elastic.smooth_cosines(side, sigma)
    assert cosines.shape == (side, elastic.modes(side, sigma))
    np.testing.assert_allclose(cosines @ cosines.T, covariance, atol=1e-3 * covariance.max())


def test_wide_filters_need_few_cosines() -> None:
    assert elastic.modes(224, 0.7 * 244) < 5
    assert elastic.modes(224, 0.01 * 244) < 100


def test_fields_have_the_spread_of_smoothed_uniform_noise() -> None:
    height, width, sigma = 24, 36, 2.0
    rng = Keyed(0, range(400))
    shape = (2, elastic.modes(width, sigma), elastic.modes(height, sigma))
    field = elastic.smooth_field(rng.normal(shape=shape), height, width, sigma)
    uniform = np.random.default_rng(0).uniform(-1, 1, (400, height, width))
    smooth = ndimage.gaussian_filter(uniform, sigma, axes=(1, 2), mode="reflect", truncate=3)
    assert field.shape == (400, 2, height, width)
    expected = smooth.std(axis=0)
    np.testing.assert_allclose(field[:, 0].std(dim=0).numpy().mean(), expected.mean(), rtol=0.03)
    np.testing.assert_allclose(field[:, 1, :3, :3].std().item(), smooth[:, :3, :3].std(), rtol=0.08)
    # Fields along x and y are independent.
    assert abs(float((field[:, 0] * field[:, 1]).mean())) < 0.02 * float(field.square().mean())


@pytest.mark.parametrize(("height", "width"), [(32, 32), (20, 33), (8, 8)])
def test_affine_warp_is_scipy_s_with_mirrored_borders(height: int, width: int) -> None:
    images = pictures(3, 2, height, width)
    moves = Keyed(1, range(3)).uniform(-0.1 * width, 0.1 * width, (3, 2))
    warped = elastic.affine_warp(images, moves)
    half = min(height, width) // 3
    centre = np.array([width // 2, height // 2])
    points = centre + np.array([[half, half], [half, -half], [-half, -half]])
    for image, got, move in zip(images.numpy(), warped.numpy(), moves.double().numpy(), strict=True):
        # The map from moved points back to the points, as (x, y, 1) @ solution.
        solution = np.linalg.solve(np.column_stack([points + move, np.ones(3)]), points)
        matrix, offset = solution[:2].T[::-1, ::-1], solution[2][::-1]
        for plane, got_plane in zip(image, got, strict=True):
            expected = ndimage.affine_transform(plane.astype(float), matrix, offset, order=1, mode="mirror")
            np.testing.assert_allclose(got_plane, expected, atol=2e-4)


def test_equal_moves_are_a_translation() -> None:
    images = pictures(1, 1, 16, 16)
    moved = elastic.affine_warp(images, torch.tensor([[[2.0, -1.0]] * 3]))
    torch.testing.assert_close(moved[..., :15, 2:], images[..., 1:, :14], atol=1e-5, rtol=0)


def test_displacing_is_scipy_s_with_reflected_borders() -> None:
    images = pictures(2, 3, 17, 24)
    displacement = Keyed(2, range(2)).uniform(-9.0, 9.0, (2, 17, 24))
    got = elastic.displace(images, displacement).numpy()
    y, x = np.mgrid[:17, :24]
    for image, (dx, dy), warped in zip(images.numpy(), displacement.numpy(), got, strict=True):
        for plane, warped_plane in zip(image, warped, strict=True):
            expected = ndimage.map_coordinates(plane.astype(float), [y + dy, x + dx], order=1, mode="reflect")
            np.testing.assert_allclose(warped_plane, expected, atol=2e-5)
