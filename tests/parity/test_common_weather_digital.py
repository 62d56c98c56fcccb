"""Weather and digital corruptions against the released generators' outputs, distances and spectra."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from shiftproof.keyed import Keyed
from shiftproof.shifts import corruption
from shiftproof.shifts.corruptions.corruption import Corruption
from shiftproof.shifts.corruptions.frost import Frost
from shiftproof.shifts.corruptions.jpeg import compress_tensor
from shiftproof.shifts.image_shift import Shape
from shiftproof.shifts.levels import quantize

pytestmark = pytest.mark.parity

DETERMINISTIC = ("brightness", "contrast", "saturate", "pixelate", "jpeg_compression")
WEATHER = ("fog", "snow", "spatter")
SEVERITIES = (1, 2, 3, 4, 5)
PART = 50
PHOTOGRAPHS = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "frost"

Corrupt = Callable[[int, Tensor, Tensor], Tensor]
"""Severity, uint8 images and keys to levels."""


def by_name(name: str) -> Corrupt:
    return lambda severity, images, keys: corruption(name, severity)(images.float() / 255, keys) * 255


def photographed(severity: int, images: Tensor, keys: Tensor) -> Tensor:
    """Frost from the photographs of the released generator."""
    if not PHOTOGRAPHS.exists():
        pytest.skip("the released frost photographs are not here: ../shared/data/frost")
    shift = corruption("frost", severity)
    assert isinstance(shift, Corruption)
    frost, p = Frost(str(PHOTOGRAPHS)), shift.parameters(*images.shape[2:])
    unit = frost.sample(Keyed(0, keys).fork("frost"), Shape(*images.shape[1:]), p)
    return quantize(frost.apply(images.float() / 255, unit, p)) * 255


def difference(corrupt: Corrupt, severity: int, images: Tensor, draw: int = 0) -> Tensor:
    """Levels of corrupted images less those of the images; draws are independent of each other."""
    keys = torch.arange(len(images)) + draw * len(images)
    parts = zip(images.split(PART), keys.split(PART), strict=True)
    return torch.cat([corrupt(severity, part, part_keys).round_() - part for part, part_keys in parts])


@pytest.mark.parametrize("size", ["cifar", "imagenet"])
@pytest.mark.parametrize("name", DETERMINISTIC)
def test_outputs_are_the_released_ones(name: str, size: str, request: pytest.FixtureRequest) -> None:
    reference: Mapping[str, NDArray[np.uint8]] = request.getfixturevalue(f"deterministic_{size}")
    inputs = torch.from_numpy(reference["inputs"]).permute(0, 3, 1, 2)
    for severity, outputs in zip(SEVERITIES, torch.from_numpy(reference[name]), strict=True):
        expected = outputs.permute(0, 3, 1, 2).float() - inputs
        error = (difference(by_name(name), severity, inputs) - expected).abs()
        # Values within rounding of a level may be truncated to either side; nothing else differs.
        assert error.mean() < 0.2, severity
        assert error.max() <= (0 if name in ("pixelate", "jpeg_compression") else 1), severity


@pytest.mark.parametrize("size", ["cifar", "imagenet"])
def test_tensor_jpeg_is_near_the_released_outputs(size: str, request: pytest.FixtureRequest) -> None:
    reference: Mapping[str, NDArray[np.uint8]] = request.getfixturevalue(f"deterministic_{size}")
    inputs = torch.from_numpy(reference["inputs"]).permute(0, 3, 1, 2)
    side = inputs.shape[2]
    for severity, outputs in zip(SEVERITIES, torch.from_numpy(reference["jpeg_compression"]), strict=True):
        shift = corruption("jpeg_compression", severity)
        assert isinstance(shift, Corruption)
        quality = round(shift.parameters(side, side).quality)
        error = (compress_tensor(inputs, quality).float() - outputs.permute(0, 3, 1, 2)).abs()
        assert error.mean() < 0.2, severity


@pytest.mark.parametrize("size", ["cifar", "imagenet"])
@pytest.mark.parametrize(
    ("name", "corrupt", "mad", "mse"),
    [
        *((name, by_name(name), 0.02, 0.02) for name in DETERMINISTIC),
        *((name, by_name(name), 0.10, 0.20) for name in WEATHER),
        ("elastic_transform", by_name("elastic_transform"), 0.05, 0.10),
        pytest.param("frost", photographed, 0.10, 0.20, id="frost-photographs"),
        pytest.param("frost", by_name("frost"), 0.20, 0.40, id="frost-by-rule"),
    ],
)
def test_distances_are_the_released_ones(
    name: str, corrupt: Corrupt, mad: float, mse: float, size: str, request: pytest.FixtureRequest
) -> None:
    rows: Mapping[tuple[str, int], Mapping[str, Any]] = request.getfixturevalue(f"{size}_c_errors")
    images: Tensor = request.getfixturevalue(f"{size}_images")
    # The hundred larger images are few for fields that vary between draws, so they are drawn for twice.
    draws = range(2 if size == "imagenet" and name not in DETERMINISTIC else 1)
    for severity in SEVERITIES:
        row = rows[name, severity]
        change = torch.stack([difference(corrupt, severity, images[: row["n"]], draw) for draw in draws])
        assert change.abs().mean().item() == pytest.approx(row["mad"], rel=mad), severity
        assert change.square().mean(dtype=torch.float64).item() == pytest.approx(row["mse"], rel=mse), severity


@pytest.mark.parametrize("size", ["cifar", "imagenet"])
@pytest.mark.parametrize(
    ("name", "corrupt", "tolerance"),
    [
        *((name, by_name(name), 0.1) for name in (*WEATHER, "elastic_transform")),
        pytest.param("frost", photographed, 0.1, id="frost-photographs"),
        pytest.param("frost", by_name("frost"), 0.2, id="frost-by-rule"),
    ],
)
def test_spectra_are_the_released_ones(
    name: str,
    corrupt: Corrupt,
    tolerance: float,
    size: str,
    radial_power: Callable[[Tensor], Tensor],
    request: pytest.FixtureRequest,
) -> None:
    reference: Mapping[str, NDArray[np.float32]] = request.getfixturevalue(f"spectra_{size}")
    images: Tensor = request.getfixturevalue(f"{size}_images")
    # The reference's larger images are not at hand; others have spectra near theirs, not the same.
    images, slack = (images[reference["indices"]], 0.0) if size == "cifar" else (images[::2], 0.05)
    found = list(reference["corruptions"]).index(name)
    for severity, expected in zip(reference["severities"], reference["log_power"][found], strict=True):
        power = radial_power(difference(corrupt, int(severity), images))
        log_power = torch.log10(power + 1e-3).mean(0).numpy()
        heard = expected > 0.5
        assert heard.mean() > 0.3, severity
        np.testing.assert_allclose(
            log_power[heard], expected[heard], rtol=tolerance + slack, err_msg=f"severity {severity}"
        )
