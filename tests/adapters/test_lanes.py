"""Streams side by side in one network are answered as adapters answer each by itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import shiftproof
from benchmarks.lanes import FAMILY, Rdumb
from benchmarks.lanes_petta import Petta
from shiftproof.adapters import Guard, adapt
from shiftproof.adapters.catalogue import method

RATES = (1.0, 10.0)
SURE: dict[str, Any] = {"entropy_margin": 0.9}
QUICK: dict[str, dict[str, Any]] = {
    "eta": SURE,
    "rdumb": SURE | {"reset": 3},
    "eata": SURE | {"fisher_images": 20},
    "rdumbpp": SURE | {"deviations": 0.0, "warm_up": 1, "cool_down": 2, "keep_drift": 0.8},
    "asr": SURE | {"level_share": 0.97, "keep_slope": 2.0},
}
"""Options under which each does within a few batches what it is for."""


def streams(batches: int, size: int) -> list[Tensor]:
    """Return batches [N, S, 3, 8, 8] of two streams whose contrast changes."""
    drawn = torch.rand(batches, size, 2, 3, 8, 8, generator=torch.Generator().manual_seed(0)).double()
    first = shiftproof.load_data("demo").take(batches * size * 2)
    (batch,) = first.batches(len(first))
    images = (batch.inputs.double() / 255)[:, :, ::4, ::4].view(drawn.shape)
    return [
        (0.85 * each + 0.15 * noise) * (0.4 if place % 4 == 3 else 1)
        for place, (each, noise) in enumerate(zip(images, drawn, strict=True))
    ]


@pytest.fixture(scope="module", params=["demo", "cifar10-vit"])
def model(request: pytest.FixtureRequest) -> tuple[str, nn.Module]:
    """Return a network of each kind of normalisation, in double precision."""
    found = shiftproof.load_model(request.param)
    assert isinstance(found, nn.Module)
    return request.param, found.double()


@pytest.mark.parametrize(("size", "capacity"), [(3, 12), (20, 40)])
def test_lanes_of_petta_answer_as_adapters_do(model: tuple[str, nn.Module], size: int, capacity: int) -> None:
    preset = "cifar" if model[0] == "demo" else "cifar_vit"
    (batch,) = shiftproof.load_data("demo").take(60).batches(60)
    source = batch.inputs[:, :, ::4, ::4].double() / 255
    chosen: dict[str, Any] = {
        "source": source,
        "capacity": capacity,
        "update_every": 9,
        "ema": 0.2,
        "keep_weights": 0.6,
    }
    options = method("petta").options(preset, "paper", chosen).to_dict()
    lanes = Petta(model[1], options, [options["lr"] * rate for rate in RATES], 10)
    adapters = [adapt(model[1], "petta", preset=preset, lr=options["lr"] * rate, **chosen) for rate in RATES]
    for images in streams(9 if size < 9 else 5, size):
        expected = torch.stack([adapter(images[:, lane]) for lane, adapter in enumerate(adapters)], 1)
        assert torch.equal(lanes(images), expected.argmax(2))
    assert all(len(bank.entries) < 40 for bank in lanes.banks)  # the larger memory is never full
    for lane, adapter in enumerate(adapters):
        own = torch.cat([parameter.detach().flatten() for parameter in adapter.trained.values()])
        torch.testing.assert_close(lanes.theta[lane].detach(), own, rtol=0, atol=1e-9)
        known = torch.cat([adapter.memory[f"teacher/{name}"].flatten() for name in adapter.trained])
        torch.testing.assert_close(lanes.teacher[lane], known, rtol=0, atol=1e-9)
        assert adapter.updates >= 2


@pytest.mark.parametrize("window", [0, 8])
@pytest.mark.parametrize("name", FAMILY)
def test_lanes_answer_as_adapters_do(model: tuple[str, nn.Module], name: str, window: int) -> None:
    preset = "cifar" if model[0] == "demo" else "cifar_vit"
    if (name == "bn" and preset != "cifar") or (name == "source" and window):
        pytest.skip("it does not apply")
    options = method(name).options(preset, "paper", QUICK.get(name, {})).to_dict()
    lr = options.get("lr", 0.0)
    lanes = FAMILY[name](model[1], options, [lr * rate for rate in RATES], 10)
    adapters = [
        adapt(model[1], name, preset=preset, window=window, **QUICK.get(name, {}), **({"lr": lr * rate} if lr else {}))
        for rate in RATES
    ]
    for images in streams(7, 3 if window else 12):
        expected = torch.stack([adapter(images[:, lane]) for lane, adapter in enumerate(adapters)], 1)
        assert torch.equal(lanes(images, window), expected.argmax(2))
    for row, adapter in zip(lanes.theta.detach(), adapters, strict=True):
        trained = torch.cat([parameter.detach().flatten() for parameter in adapter.trained.values()] or [row])
        torch.testing.assert_close(row, trained, rtol=0, atol=1e-9)
    assert name != "rdumbpp" or window or any(adapter.resets for adapter in adapters)
    assert name != "asr" or any(adapter.resets for adapter in adapters)
    assert name in ("source", "bn") or sum(adapter.updates for adapter in adapters) > 3
    assert not lanes.bad.any()


def test_the_test_of_guard_goes_beside_rdumb(model: tuple[str, nn.Module]) -> None:
    preset = "cifar" if model[0] == "demo" else "cifar_vit"
    options = method("rdumb").options(preset, "paper", {}).to_dict()
    lanes = Rdumb(model[1], options, [options["lr"]] * 2, 10)
    lanes.guard = Guard(interval=2, ratio=0.1, slack=0.01)
    adapters = [adapt(model[1], "guard", preset=preset, reset=lanes.guard) for _ in range(2)]
    for images in streams(4, 16):
        lanes(images)
        for lane, adapter in enumerate(adapters):
            adapter(images[:, lane])
    for capital, adapter in zip(lanes.capital, adapters, strict=True):
        torch.testing.assert_close(torch.from_numpy(capital), adapter.memory["guard/capital"], rtol=1e-9, atol=0)
    assert lanes.alarms == [None, None]
    lanes.capital[1] = 1e3
    lanes.steps = 1
    lanes(streams(1, 16)[0])
    assert lanes.alarms == [None, 2]
