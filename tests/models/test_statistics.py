from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from shiftproof.errors import ConfigurationError, DataError, ModelError
from shiftproof.measures import LayerStatistics, mean_distance
from shiftproof.models import StatisticsTap, build_network, collect_statistics, source_statistics


class Branches(nn.Module):
    """A network whose batch norms run in another order than they are registered, with dropout before the last."""

    def __init__(self) -> None:
        super().__init__()
        self.late = nn.BatchNorm1d(6)
        self.second = nn.BatchNorm2d(5)
        self.first = nn.BatchNorm2d(4)
        self.conv1, self.conv2 = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 5, 3)
        self.linear, self.head = nn.Linear(5, 6), nn.Linear(6, 3)

    def forward(self, images: Tensor) -> Tensor:
        x = F.relu(self.first(self.conv1(images)))
        x = F.relu(self.second(self.conv2(x))).mean((2, 3))
        x = self.late(self.linear(F.dropout(x, training=self.training)))
        logits: Tensor = self.head(x)
        return logits


@pytest.fixture(scope="module")
def model() -> Any:
    return trained(Branches())


Moments: TypeAlias = dict[str, tuple[np.ndarray, np.ndarray]]
IMAGES = torch.rand(12, 3, 8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def trained(model: nn.Module) -> Any:
    """Give a network running statistics that are not those of any images here."""
    generator = torch.Generator().manual_seed(0)
    model.double().eval()
    for name, tensor in model.state_dict().items():
        if name.endswith(("running_mean", "running_var")):
            tensor.copy_(torch.rand(tensor.shape, generator=generator) + 0.5)
    return model


def moments(x: Tensor) -> tuple[np.ndarray, np.ndarray]:
    columns = x.detach().transpose(0, 1).flatten(1).numpy()
    return columns.mean(1), columns.var(1)


def by_name(statistics: tuple[LayerStatistics, ...]) -> Moments:
    return {layer.name: (layer.mean, layer.var) for layer in statistics}


def assert_same(ours: Moments, theirs: Moments, rtol: float = 1e-11) -> None:
    assert list(ours) == list(theirs)
    for name, pair in ours.items():
        np.testing.assert_allclose(pair, theirs[name], rtol=rtol, atol=1e-13, err_msg=name)


def by_hand(model: Branches, images: Tensor, *, exact: bool) -> Moments:
    """Compute the statistics on all images at once, layer by layer."""
    found = {}

    def normalise(name: str, x: Tensor) -> Tensor:
        norm = getattr(model, name)
        found[name] = moments(x)
        mean, var = map(torch.from_numpy, found[name]) if exact else (norm.running_mean, norm.running_var)
        shape = (1, -1, *(1,) * (x.ndim - 2))
        x = (x - mean.view(shape)) / (var.view(shape) + norm.eps).sqrt()
        return torch.addcmul(norm.bias.view(shape), x, norm.weight.view(shape))

    x = F.relu(normalise("first", model.conv1(images)))
    x = F.relu(normalise("second", model.conv2(x))).mean((2, 3))
    normalise("late", model.linear(x))
    return {name: found[name] for name in ("late", "second", "first")}


def test_source_statistics_are_the_running_ones_and_do_not_follow_the_model(model):
    model = copy.deepcopy(model)
    found = source_statistics(model)
    assert [(layer.name, layer.images) for layer in found] == [("late", None), ("second", None), ("first", None)]
    expected = model.first.running_mean.clone()
    model.first.running_mean.zero_()
    np.testing.assert_array_equal(found[2].mean, expected)
    np.testing.assert_array_equal(found[1].var, model.second.running_var)


@pytest.mark.parametrize("exact", [False, True])
def test_collection_equals_a_computation_by_hand(model, exact):
    found = collect_statistics(model, IMAGES.split(5), exact=exact)
    assert_same(by_name(found), by_hand(model, IMAGES, exact=exact))
    assert [layer.images for layer in found] == [12] * 3


@given(cuts=st.sets(st.integers(1, 11)), exact=st.booleans())
@settings(max_examples=20)
def test_the_division_into_batches_does_not_matter(model, cuts, exact):
    batches = [IMAGES[start:end] for start, end in pairwise([0, *sorted(cuts), 12])]
    found = collect_statistics(model, batches, exact=exact)
    assert_same(by_name(found), by_name(collect_statistics(model, [IMAGES], exact=exact)))


def test_float32_pools_without_losing_a_small_variance_on_a_large_mean():
    model = nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(16, 2)).eval()
    images = 100 + torch.randn(64, 1, 4, 4, generator=torch.Generator().manual_seed(0)) / 8
    (layer,) = collect_statistics(model, images.split(7))
    mean, var = moments(images.double())
    np.testing.assert_allclose(layer.mean, mean, rtol=1e-7)
    np.testing.assert_allclose(layer.var, var, rtol=1e-4)
    assert layer.mean.dtype == layer.var.dtype == np.float64


def test_exact_statistics_are_those_the_network_then_has():
    model = trained(build_network("resnet20"))
    images = torch.rand(8, 3, 12, 12, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    exact = collect_statistics(model, images.split(4), exact=True)
    with torch.no_grad():
        for layer in exact:
            norm = model.get_submodule(layer.name)
            norm.running_mean.copy_(torch.from_numpy(layer.mean))
            norm.running_var.copy_(torch.from_numpy(layer.var))
    again = collect_statistics(model, [images])
    assert len(again) == 19
    assert_same(by_name(again), by_name(exact), rtol=1e-9)
    assert mean_distance(source_statistics(model), again) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_the_model_is_not_changed(model, exact, training):
    model = copy.deepcopy(model).train(training)
    model.first.eval()
    model.second.weight.requires_grad_(False)
    before = copy.deepcopy(model.state_dict())
    found = collect_statistics(model, [IMAGES], exact=exact)
    assert_same(by_name(found), by_hand(model, IMAGES, exact=exact))  # without dropout
    assert [(name, tensor.tolist()) for name, tensor in model.state_dict().items()] == [
        (name, tensor.tolist()) for name, tensor in before.items()
    ]
    assert [module.training for module in model.modules()] == [
        training and name != "first" for name, _ in model.named_modules()
    ]
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert not model.second.weight.requires_grad
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize(
    ("norm", "shape"),
    [
        (nn.BatchNorm1d, ()),
        (nn.BatchNorm1d, (6,)),
        (nn.BatchNorm2d, (2, 3)),
        (nn.BatchNorm3d, (1, 2, 3)),
        (nn.SyncBatchNorm, (2, 3)),
    ],
)
@pytest.mark.parametrize("exact", [False, True])
def test_batch_norms_of_all_dimensions(norm, shape, exact):
    features = 4 * int(np.prod(shape))
    model = trained(
        nn.Sequential(nn.Flatten(), nn.Linear(192, features), nn.Unflatten(1, (4, *shape)), norm(4))
        + nn.Sequential(nn.Flatten(), nn.Linear(features, 2))
    )
    (layer,) = collect_statistics(model, IMAGES.split(5), exact=exact)
    assert layer.name == "3"
    assert_same({"3": (layer.mean, layer.var)}, {"3": moments(model[:3](IMAGES))})


class Uneven(nn.Module):
    """A batch norm used twice, one that never runs, and one without running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.auxiliary, self.batchwise = nn.BatchNorm2d(3), nn.BatchNorm2d(3, track_running_stats=False)
        self.twice = nn.BatchNorm2d(3)

    def forward(self, images: Tensor) -> Tensor:
        x: Tensor = self.twice(2 * self.twice(images) + 1)
        return x.mean((2, 3))


@pytest.mark.parametrize("exact", [False, True])
def test_a_layer_used_twice_has_the_statistics_of_all_its_inputs(exact):
    model = trained(Uneven())
    (layer,) = collect_statistics(model, IMAGES.split(5), exact=exact)
    assert layer.name == "twice"
    second = 2 * model.twice(IMAGES) + 1
    assert_same({"twice": (layer.mean, layer.var)}, {"twice": moments(torch.cat([IMAGES, second]))})
    assert [layer.name for layer in source_statistics(model)] == ["auxiliary", "twice"]
    assert mean_distance(source_statistics(model), [layer]) > 0  # what images never reach is not compared


def test_exact_passes_stop_at_their_layer(model, monkeypatch):
    widths: list[int] = []

    def forward(self: nn.Linear, x: Tensor) -> Tensor:
        widths.append(x.shape[1])
        return F.linear(x, self.weight, self.bias)

    monkeypatch.setattr(nn.Linear, "forward", forward)
    collect_statistics(model, IMAGES.split(4), exact=True)
    assert widths.count(5) == 1 + 3  # before the last batch norm: once to learn the order, then in its own pass
    assert widths.count(6) == 1  # after it


def test_a_model_that_handles_errors_does_not_handle_the_stop():
    class Stubborn(Branches):
        def forward(self, images: Tensor) -> Tensor:
            try:
                return super().forward(images)
            except Exception:
                return images.mean((2, 3))

    model = trained(Stubborn())
    assert_same(by_name(collect_statistics(model, [IMAGES], exact=True)), by_hand(model, IMAGES, exact=True))


def test_what_cannot_be_used_is_told(model):
    with pytest.raises(ModelError, match="no statistics of batch normalisation"):
        source_statistics(nn.Sequential(nn.Flatten(), nn.LayerNorm(192)))
    with pytest.raises(ModelError, match="no statistics of batch normalisation"):
        collect_statistics(lambda images: images, [IMAGES])  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="several times"):
        collect_statistics(model, iter([IMAGES]), exact=True)
    for exact in (False, True):
        for nothing in ([], [IMAGES[:0]]):
            with pytest.raises(DataError, match="no images"):
                collect_statistics(model, nothing, exact=exact)
        with pytest.raises(DataError, match="without labels"):
            collect_statistics(model, [(IMAGES, torch.zeros(12))], exact=exact)  # type: ignore[list-item]
    with pytest.raises(ModelError, match="failed on a batch"):
        collect_statistics(model, [IMAGES[:, :1]])


def test_empty_batches_between_others_are_passed_over(model):
    found = collect_statistics(model, [IMAGES[:5], IMAGES[:0], IMAGES[5:]])
    assert_same(by_name(found), by_hand(model, IMAGES, exact=False))


def test_a_tap_takes_the_statistics_of_passes_that_are_made_anyway(model):
    model = copy.deepcopy(model).eval()
    tap = StatisticsTap(model)
    with torch.no_grad():
        for part in (IMAGES[:5], IMAGES[5:]):
            with tap:
                model(part)
        model(IMAGES + 1)  # not while it is open
    assert_same(by_name(tap.statistics(images=len(IMAGES))), by_hand(model, IMAGES, exact=False))
    assert not any(module._forward_pre_hooks for module in model.modules())
