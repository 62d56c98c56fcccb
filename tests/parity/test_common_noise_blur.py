"""Noise and blur against the released generators' outputs, distances and spectra."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from shiftproof.shifts import corruption

pytestmark = pytest.mark.parity

DETERMINISTIC = ("gaussian_blur", "defocus_blur", "zoom_blur")
RANDOM = ("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise", "glass_blur", "motion_blur")
SEVERITIES = (1, 2, 3, 4, 5)
PART = 50


def corrupted(name: str, severity: int, images: Tensor) -> Tensor:
    """Corrupt uint8 images and return the levels, as float32."""
    shift = corruption(name, severity)
    keys = torch.arange(len(images))
    parts = [
        shift(part.float() / 255, part_keys).mul_(255).round_()
        for part, part_keys in zip(images.split(PART), keys.split(PART), strict=True)
    ]
    return torch.cat(parts)


@pytest.mark.parametrize("size", ["cifar", "imagenet"])
@pytest.mark.parametrize("name", DETERMINISTIC)
def test_outputs_are_the_released_ones(name: str, size: str, request: pytest.FixtureRequest) -> None:
    reference: Mapping[str, NDArray[np.uint8]] = request.getfixturevalue(f"deterministic_{size}")
    inputs = torch.from_numpy(reference["inputs"]).permute(0, 3, 1, 2)
    for severity, expected in zip(SEVERITIES, torch.from_numpy(reference[name]), strict=True):
        difference = (corrupted(name, severity, inputs) - expected.permute(0, 3, 1, 2)).abs()
        # Values within rounding of a level may be truncated to either side; nothing else differs.
        assert difference.mean() < 0.1, severity
        assert difference.max() <= 1, severity


@pytest.mark.parametrize("size", ["cifar", "imagenet"])
@pytest.mark.parametrize("name", DETERMINISTIC + RANDOM)
def test_distances_are_the_released_ones(name: str, size: str, request: pytest.FixtureRequest) -> None:
    rows: Mapping[tuple[str, int], Mapping[str, Any]] = request.getfixturevalue(f"{size}_c_errors")
    images: Tensor = request.getfixturevalue(f"{size}_images")
    for severity in SEVERITIES:
        row = rows[name, severity]
        images = images[: row["n"]]
        levels = corrupted(name, severity, images)
        difference = (levels - images).double()
        assert difference.abs().mean().item() == pytest.approx(row["mad"], rel=0.025), severity
        assert difference.square().mean().item() == pytest.approx(row["mse"], rel=0.05), severity
        assert levels.double().mean((0, 2, 3)).tolist() == pytest.approx(row["mean"], abs=0.3), severity
        assert levels.double().std((0, 2, 3)).tolist() == pytest.approx(row["std"], abs=0.3), severity


@pytest.mark.parametrize("size", ["cifar", "imagenet"])
@pytest.mark.parametrize("name", RANDOM)
def test_spectra_are_the_released_ones(
    name: str, size: str, radial_power: Callable[[Tensor], Tensor], request: pytest.FixtureRequest
) -> None:
    reference: Mapping[str, NDArray[np.float32]] = request.getfixturevalue(f"spectra_{size}")
    images: Tensor = request.getfixturevalue(f"{size}_images")
    # The ImageNet spectra are of images that are not here, but many images have much the same mean.
    images = images[reference["indices"]] if size == "cifar" else images[::4]
    found = list(reference["corruptions"]).index(name)
    for severity, expected in zip(reference["severities"], reference["log_power"][found], strict=True):
        power = radial_power(corrupted(name, int(severity), images) - images)
        log_power = torch.log10(power + 1e-3).mean(0).numpy()
        heard = expected > 0.5
        assert heard.mean() > 0.8, severity
        np.testing.assert_allclose(log_power[heard], expected[heard], rtol=0.1, err_msg=f"severity {severity}")
