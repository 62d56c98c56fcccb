"""Every method on every kind of model: normalisation layers, dimensions, precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from shiftproof.adapters import METHODS
from shiftproof.errors import ModelError
from tests.adapters.networks import LEARNING, Flat, convolutional, small, stream, transformer

MODELS: dict[str, Callable[[], nn.Module]] = {
    "group": lambda: convolutional(lambda channels: nn.GroupNorm(2, channels)),
    "instance": lambda: convolutional(lambda channels: nn.InstanceNorm2d(channels, affine=True)),
    "transformer": transformer,
    "two classes": lambda: convolutional(classes=2),
    "thousand classes": lambda: convolutional(classes=1000),
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", METHODS)
def test_every_method_on_every_kind_of_model(name: str, model: str) -> None:
    net = MODELS[model]()
    if name == "bn" and model in ("group", "instance", "transformer"):
        with pytest.raises(ModelError, match="does not apply: the model has no batch normalisation") as caught:
            small(name, net)
        assert "tent" in caught.value.facts["fix"]
        return
    adapter = small(name, net)
    for batch in stream(2):
        logits = adapter(batch)
        assert logits.shape == net(batch).shape
        assert bool(logits.isfinite().all())
    assert adapter.skipped == 0
    if name in LEARNING:
        assert adapter.updates > 0


@pytest.mark.parametrize("kind", ["1d", "3d"])
@pytest.mark.parametrize("name", ["bn", "tent", "eata", "sar", "slr"])
def test_other_dimensions(name: str, kind: str) -> None:
    torch.manual_seed(0)
    layers: list[nn.Module] = (
        [nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4)]
        if kind == "1d"
        else [nn.Conv3d(2, 4, 2), nn.BatchNorm3d(4), nn.ReLU(), Flat(), nn.Linear(4, 4)]
    )
    adapter = small(name, nn.Sequential(*layers))
    for batch in stream(2, shape=(6,) if kind == "1d" else (2, 3, 3, 3)):
        assert adapter(batch).shape == (8, 4)
    assert adapter.skipped == 0


def test_an_unused_layer_is_no_obstacle() -> None:
    class Spare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.spare = convolutional(), nn.BatchNorm2d(3)

        def forward(self, images: Tensor) -> Tensor:
            return self.used(images)  # type: ignore[no-any-return]

    for name in ("tent", "sar", "eata", "cotta", "rotta"):
        adapter = small(name, Spare())
        for batch in stream(2):
            adapter(batch)
        assert adapter.updates == 2


@pytest.mark.parametrize("name", ["tent", "cotta", "memo"])
def test_dropout_stays_off(name: str) -> None:
    one, other = small(name), small(name)
    one.train()
    other.model.apply(lambda module: setattr(module, "p", 0.0) if isinstance(module, nn.Dropout) else None)
    for batch in stream(2):
        assert torch.equal(one(batch), other(batch))
    assert not any(module.training for module in one.model.modules())


@pytest.mark.parametrize("name", ["source", "bn", "tent", "eata", "cotta", "rotta", "lame", "t3a"])
def test_reduced_precision(name: str) -> None:
    options: dict[str, Any] = {"prior": 4} if name == "bn" else {}
    full, reduced = small(name, **options), small(name, amp="bfloat16", **options)
    for batch in stream(2):
        exact, rough = full(batch), reduced(batch)
        assert rough.dtype == torch.float32
        torch.testing.assert_close(rough, exact, atol=0.1, rtol=0.1)
    assert all(parameter.dtype == torch.float32 for parameter in reduced.trained.values())
    assert reduced.skipped == 0


def test_frozen_parameters_of_the_user_still_learn_in_the_copy() -> None:
    model = convolutional().requires_grad_(False)
    adapter = small("tent", model)
    adapter(stream(1)[0])
    assert adapter.updates == 1
    assert not any(parameter.requires_grad for parameter in model.parameters())
