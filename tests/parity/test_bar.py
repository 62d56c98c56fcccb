"""The C-bar family against the released generators' outputs, distances, spectra and errors, on CIFAR-10."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from shiftproof.shifts import corruption, facts, names
from shiftproof.shifts.corruptions.bar_warp import Waves
from shiftproof.shifts.levels import quantize

pytestmark = pytest.mark.parity

SHARED = Path(__file__).resolve().parents[2].parent / "shared"
REFERENCE = SHARED / "reference" / "corruptions"
PUBLISHED = [name for name in names("bar") if "cifar" in facts(name)["published"]]
EVERY = pytest.mark.parametrize("name", PUBLISHED)
SEVERITIES = (1, 2, 3, 4, 5)

Arrays = Mapping[str, NDArray[Any]]
Rows = Mapping[tuple[str, int], Mapping[str, Any]]


@pytest.fixture(scope="module")
def outputs() -> Arrays:
    """Images, the parameters drawn for them and the released outputs."""
    archive: Arrays = np.load(present(REFERENCE / "deterministic_cifar_bar.npz"))
    return archive


@pytest.fixture(scope="module")
def spectra() -> Arrays:
    archive: Arrays = np.load(present(REFERENCE / "spectra_cifar_bar.npz"))
    return archive


@pytest.fixture(scope="module")
def rows() -> Rows:
    """Errors, distances and moments by corruption and severity."""
    content = json.loads(present(REFERENCE / "cifar_bar_errors.json").read_text("utf-8"))
    return {(row["corruption"], row["severity"]): row for row in content["rows"]}


def present(path: Path) -> Path:
    if not path.exists():
        pytest.skip(f"reference data is not here: {path.relative_to(SHARED.parent)}")
    return path


def corrupted(name: str, severity: int, images: Tensor) -> Tensor:
    """Corrupt uint8 images and return the levels, as float32; severities draw independently of each other."""
    keys = torch.arange(len(images))
    return corruption(name, severity)(images.float() / 255, keys, seed=severity).mul_(255).round_()


RECORDED: Mapping[str, Callable[[Arrays, int], Any]] = {
    "circular_motion_blur": lambda reference, at: None,
    "transverse_chromatic_abberation": lambda reference, at: torch.from_numpy(
        reference["transverse_chromatic_abberation__scales"][at].argsort(1).argsort(1)
    ),
    # The released angles are indexed by column, then row.
    "pinch_and_twirl": lambda reference, at: (
        torch.from_numpy(reference["pinch_and_twirl__angles"][at]).sign().float().mT
    ),
    "ripple": lambda reference, at: Waves(
        *(torch.from_numpy(reference[f"ripple__{part}"][at]).float() for part in ("wavelengths", "phases"))
    ),
}
"""How the released generators' parameters are written as ours."""


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_parameters_give_the_released_outputs(name: str, outputs: Arrays) -> None:
    images = torch.from_numpy(outputs["inputs"]).permute(0, 3, 1, 2).float() / 255
    for severity, expected in zip(SEVERITIES, torch.from_numpy(outputs[name]), strict=True):
        shifted = corruption(name, severity).transform(images, RECORDED[name](outputs, severity - 1))
        difference = (quantize(shifted) * 255 - expected.permute(0, 3, 1, 2)).abs()
        # Values within rounding of a level may be truncated to either side; nothing else differs.
        assert difference.mean() < 0.01, severity
        assert difference.round().max() <= 1, severity


@EVERY
def test_distances_are_the_released_ones(name: str, rows: Rows, cifar_images: Tensor) -> None:
    for severity in SEVERITIES:
        row = rows[name, severity]
        images = cifar_images[: row["n"]]
        levels = corrupted(name, severity, images)
        difference = (levels - images).double()
        assert difference.abs().mean().item() == pytest.approx(row["mad"], rel=0.03), severity
        assert difference.square().mean().item() == pytest.approx(row["mse"], rel=0.06), severity
        assert levels.double().mean((0, 2, 3)).tolist() == pytest.approx(row["mean"], abs=2.5), severity
        assert levels.double().std((0, 2, 3)).tolist() == pytest.approx(row["std"], abs=1.5), severity


@EVERY
def test_spectra_are_the_released_ones(
    name: str, spectra: Arrays, cifar_images: Tensor, radial_power: Callable[[Tensor], Tensor]
) -> None:
    images = cifar_images[spectra["indices"]]
    found = list(spectra["corruptions"]).index(name)
    for severity, expected in zip(spectra["severities"], spectra["log_power"][found], strict=True):
        power = radial_power(corrupted(name, int(severity), images) - images)
        log_power = torch.log10(power + 1e-3).mean(0).numpy()
        heard = expected > 0.5
        assert heard.mean() > 0.8, severity
        np.testing.assert_allclose(log_power[heard], expected[heard], rtol=0.1, err_msg=f"severity {severity}")
