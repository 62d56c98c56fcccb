"""Filters against scipy and against plain sums, and the promise of the same bits in any batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import ndimage
from torch import Tensor

from shiftproof.shifts.filters import Border, border_index, correlate, gaussian_blur, motion_blur, weighted_rows

SCIPY_MODES: dict[Border, Literal["nearest", "reflect", "mirror"]] = {
    "nearest": "nearest",
    "reflect": "reflect",
    "reflect-101": "mirror",
}


def noise(*shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(0))


def radial_kernel(reach: int) -> Tensor:
    """Return a kernel that is not separable, of sum 1."""
    axis = torch.arange(-reach, reach + 1, dtype=torch.float64)
    kernel = 1 / (1 + axis[:, None] ** 2 + axis**2)
    return kernel / kernel.sum()


def test_weighted_rows_are_weighted_sums_of_rows() -> None:
    table, weights = noise(10, 4), noise(6, 3)
    index = torch.tensor([[0, 9, 9], [1, 2, 3], [4, 4, 4], [5, 0, 1], [8, 7, 6], [2, 2, 9]])
    expected = torch.einsum("mk,mkd->md", weights, table[index])
    torch.testing.assert_close(weighted_rows(table, index, weights), expected)


@pytest.mark.parametrize(
    ("mode", "numpy_mode"), [("nearest", "edge"), ("reflect", "symmetric"), ("reflect-101", "reflect")]
)
@pytest.mark.parametrize("side", [2, 3, 8])
def test_border_index_continues_a_line_like_numpy(mode: Border, numpy_mode: str, side: int) -> None:
    reach = 3 * side + 1
    expected = np.pad(np.arange(side), reach, mode=numpy_mode)  # type: ignore[call-overload]
    assert border_index(torch.arange(-reach, side + reach), side, mode).tolist() == expected.tolist()


@pytest.mark.parametrize("mode", list(SCIPY_MODES))
@pytest.mark.parametrize(
    ("height", "width", "sigma", "truncate"),
    [(8, 8, 0.4, 4.0), (13, 9, 1.0, 4.0), (32, 48, 3.0, 3.0), (16, 11, 20.0, 3.0), (9, 9, 0.1, 4.0)],
)
def test_gaussian_blur_is_scipys(mode: Border, height: int, width: int, sigma: float, truncate: float) -> None:
    images = noise(2, 3, height, width)
    expected = ndimage.gaussian_filter(
        images.double().numpy(), sigma, mode=SCIPY_MODES[mode], truncate=truncate, axes=(2, 3)
    )
    blurred = gaussian_blur(images, sigma, mode=mode, truncate=truncate)
    np.testing.assert_allclose(blurred.numpy(), expected, atol=1e-6)
    assert blurred.is_contiguous()
    assert blurred.data_ptr() != images.data_ptr()


def test_gaussian_blur_takes_any_memory_layout() -> None:
    images = noise(2, 3, 12, 10)
    layout = images.to(memory_format=torch.channels_last)
    assert torch.equal(gaussian_blur(layout, 1.5), gaussian_blur(images, 1.5))


@pytest.mark.parametrize("reach", [1, 2, 3, 10])
@pytest.mark.parametrize(("height", "width"), [(32, 24), (9, 14)])
def test_correlate_is_scipys(reach: int, height: int, width: int) -> None:
    images, kernel = noise(2, 3, height, width), radial_kernel(reach)
    expected = ndimage.correlate(images.double().numpy(), kernel.numpy()[None, None], mode="mirror")
    np.testing.assert_allclose(correlate(images, kernel).numpy(), expected, atol=1e-6)


def walk_sum(image: NDArray[np.float64], degrees: float, radius: int, sigma: float) -> NDArray[np.float64]:
    """Motion blur of one plane as its definition says: a weighted sum of shifted copies."""
    width = 2 * radius + 1
    weights = np.exp(-(np.arange(width) ** 2) / (2 * sigma**2))
    weights /= weights.sum()
    padded = np.pad(image, width, mode="edge")
    total = np.zeros_like(image)
    for i, weight in enumerate(weights):
        dx = int(np.ceil(i * np.cos(np.radians(degrees)) - 0.5))
        dy = int(np.ceil(i * np.sin(np.radians(degrees)) - 0.5))
        total += weight * np.roll(padded, (-dy, -dx), (0, 1))[width:-width, width:-width]
    return total


@pytest.mark.parametrize(("height", "width"), [(24, 20), (8, 31)])
@pytest.mark.parametrize(("radius", "sigma"), [(3, 1.0), (10, 6.0)])
def test_motion_blur_is_a_sum_along_a_walk(height: int, width: int, radius: int, sigma: float) -> None:
    degrees = [-179.0, -135.0, -100.0, -45.0, -20.0, 0.1, 17.0, 45.0, 70.0, 120.0, 178.0]
    images = noise(len(degrees), 3, height, width)
    expected = [
        [walk_sum(plane.double().numpy(), angle, radius, sigma) for plane in image]
        for image, angle in zip(images, degrees, strict=True)
    ]
    smeared = motion_blur(images, torch.tensor(degrees), radius, sigma)
    np.testing.assert_allclose(smeared.numpy(), np.array(expected), atol=1e-6)


def test_motion_blur_without_reach_changes_nothing() -> None:
    images = noise(2, 1, 12, 12)
    torch.testing.assert_close(motion_blur(images, torch.tensor([30.0, -30.0]), 0.2, 0.0), images)


FILTERS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "gaussian_blur": lambda images, angle: gaussian_blur(images, 2.0),
    "correlate_directly": lambda images, angle: correlate(images, radial_kernel(2)),
    "correlate_by_fourier_transform": lambda images, angle: correlate(images, radial_kernel(6)),
    "motion_blur": lambda images, angle: motion_blur(images, angle, 7, 4.0),
}


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize(("channels", "height", "width"), [(3, 32, 32), (1, 45, 37), (3, 9, 64), (1, 160, 224)])
def test_an_image_has_the_same_bits_in_any_batch(name: str, channels: int, height: int, width: int) -> None:
    apply = FILTERS[name]
    images, angle = noise(64, channels, height, width), torch.linspace(-45, 45, 64)
    together = apply(images, angle)
    for start, size in ((0, 1), (63, 1), (5, 7), (40, 24)):
        rows = slice(start, start + size)
        assert torch.equal(apply(images[rows].clone(), angle[rows].clone()), together[rows])
    order = torch.randperm(64, generator=torch.Generator().manual_seed(1))
    assert torch.equal(apply(images[order], angle[order]), together[order])
