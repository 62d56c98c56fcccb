"""Trajectories of the released implementations: our logits along all of it to 1e-6 in float64, to 1e-2 in float32."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from shiftproof.adapters import adapt
from shiftproof.models import load_model

pytestmark = pytest.mark.parity

SHARED = Path(__file__).parents[3] / "shared"
FOLDER = SHARED / "reference" / "adaptation"
WEIGHTS = SHARED / "data" / "cifar10-resnets" / "resnet20.safetensors"
SGD = {"optimizer": "sgd", "momentum": 0.9}
FILTERED = {**SGD, "lr": 5e-3, "entropy_margin": 0.4, "similarity": 0.4}

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "source": ("source", {}),
    "bn": ("bn", {}),
    "bn_prior_biased_N16_n8": ("bn", {"prior": 16}),
    "bn_prior_unbiased_N16_n64": ("bn", {"prior": 16, "variant": "release"}),
    "tent_sgd_lr5e-3": ("tent", {**SGD, "lr": 5e-3}),
    "rpl": ("rpl", {}),
    "cpl_eps8": ("cpl", {}),
    "eta_lr5e-3": ("eta", FILTERED),
    "eata_alpha2000_lr5e-3": ("eata", FILTERED),
    "rdumb_reset10_lr5e-3": ("rdumb", {**FILTERED, "reset": 10}),
    "sar_mario": ("sar", {"variant": "release", "recover_below": 0.2}),
    "lame_rbf5": ("lame", {}),
    "roid_noconsistency_sgd": ("roid", {"consistency": False}),
    "deyo_patch": ("deyo", {}),
}


@pytest.fixture(scope="module")
def stream() -> list[Tensor]:
    if not FOLDER.exists():
        pytest.skip(f"reference trajectories are not at {FOLDER}")
    with np.load(FOLDER / "stream.npz") as file:
        batches = file["images"]
    return [torch.from_numpy(batch).permute(0, 3, 1, 2).double() / 255 for batch in batches]


class Recorded:
    """The patch orders the original drew, handed out batch after batch."""

    def __init__(self, orders: np.ndarray) -> None:
        self.orders, self.place = torch.from_numpy(orders.astype(np.int64)), 0

    def __call__(self, count: int, step: int, device: torch.device) -> Tensor:
        self.place += count
        return self.orders[self.place - count : self.place]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    ("dtype", "batches"),
    [
        pytest.param(torch.float64, 3, id="float64 beginning"),
        pytest.param(torch.float32, 6, id="float32 beginning"),  # rounding grows along the stream
        pytest.param(torch.float64, 24, id="float64", marks=pytest.mark.slow),
        pytest.param(torch.float32, 24, id="float32", marks=pytest.mark.slow),
    ],
)
def test_logits_follow_the_original(case: str, dtype: torch.dtype, batches: int, stream: list[Tensor]) -> None:
    name, options = CASES[case]
    batches = max(batches, options.get("reset", 0) + 1)  # a reset is gone through
    with np.load(FOLDER / f"{case}.npz") as file:
        expected = torch.from_numpy(file["logits"]).double()[:batches]
        orders = next((file[key] for key in file.files if key.startswith("perm")), None)
    images = [batch.to(dtype) for batch in stream[:batches]]
    if name == "eata":
        options = {**options, "fisher": images[:2]}
    if name == "deyo":
        assert orders is not None
        options = {**options, "orders": Recorded(orders)}
    model = load_model("resnet20", weights=WEIGHTS, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    assert isinstance(model, torch.nn.Module)
    adapter = adapt(model.to(dtype), name, **options)
    size = 8 if case.endswith("n8") else 64
    got = torch.cat([adapter(part) for batch in images for part in torch.split(batch, size)]).double()
    if name == "lame":
        got = got.exp()
    difference = (got - expected.reshape(got.shape)).abs().max().item()
    assert difference < (1e-6 if dtype == torch.float64 else 1e-2), difference
    assert math.isfinite(difference)
