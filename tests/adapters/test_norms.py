"""Which statistics batch normalisation uses: the limits of the prior, running statistics, every kind of layer."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from shiftproof.adapters import adapt
from shiftproof.adapters.norms import (
    AdaptiveBatchNorm,
    BatchStatistics,
    GatheredStatistics,
    PartStatistics,
    RunningStatistics,
    commit_all,
    replace_batch_norms,
)
from tests.adapters.networks import convolutional, stream


def layer(channels: int = 4) -> nn.BatchNorm2d:
    torch.manual_seed(1)
    norm = nn.BatchNorm2d(channels).double()
    for tensor in (*norm.parameters(), norm.running_mean, norm.running_var):
        nn.init.uniform_(tensor, 0.5, 2)  # type: ignore[arg-type]
    return norm.eval()


def inputs(images: int, channels: int = 4, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(images, channels, 3, 2, generator=generator, dtype=torch.float64) * 3 + 1


def test_no_prior_is_training_mode_and_infinite_prior_is_the_source() -> None:
    norm, x = layer(), inputs(5)
    batch = AdaptiveBatchNorm(norm, BatchStatistics(0))(x)
    torch.testing.assert_close(batch, copy.deepcopy(norm).train()(x))
    assert torch.equal(AdaptiveBatchNorm(norm, BatchStatistics(math.inf))(x), norm(x))


@given(st.floats(0, 1e6), st.integers(1, 9), st.sampled_from([0, 1]))
@settings(max_examples=30, deadline=None)
def test_prior_mixes_statistics_by_images(prior: float, images: int, correction: int) -> None:
    norm, x = layer(), inputs(images)
    got = AdaptiveBatchNorm(norm, BatchStatistics(prior, "unbiased" if correction else "biased"))(x)
    share = prior / (prior + images)
    var, mean = torch.var_mean(x, (0, 2, 3), correction=correction)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    mean, var = share * norm.running_mean + (1 - share) * mean, share * norm.running_var + (1 - share) * var
    expected = (x - mean.view(1, -1, 1, 1)) / (var.view(1, -1, 1, 1) + norm.eps).sqrt()
    expected = expected * norm.weight.view(1, -1, 1, 1) + norm.bias.view(1, -1, 1, 1)
    torch.testing.assert_close(got, expected)


def test_prior_tends_to_its_limits() -> None:
    norm, x = layer(), inputs(6)
    near = [AdaptiveBatchNorm(norm, BatchStatistics(prior))(x) for prior in (1e-12, 1e15)]
    limits = [AdaptiveBatchNorm(norm, BatchStatistics(prior))(x) for prior in (0, math.inf)]
    for close, limit in zip(near, limits, strict=True):
        torch.testing.assert_close(close, limit, rtol=1e-9, atol=1e-9)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5))
@settings(max_examples=25, deadline=None)
def test_cumulative_statistics_are_those_of_all_images(sizes: list[int]) -> None:
    norm = AdaptiveBatchNorm(layer(), RunningStatistics())
    batches = [inputs(size, seed=place) for place, size in enumerate(sizes)]
    for batch in batches:
        norm(batch)
        commit_all([norm])
    var, mean = torch.var_mean(torch.cat(batches), (0, 2, 3), correction=0)
    torch.testing.assert_close(norm.target_mean, mean)
    torch.testing.assert_close(norm.target_var, var)
    assert int(norm.seen) == sum(sizes)


def test_exponential_average_starts_at_the_source() -> None:
    source = layer()
    norm = AdaptiveBatchNorm(source, RunningStatistics(momentum=0.1))
    expected = source.running_mean
    assert expected is not None
    for seed in range(3):
        x = inputs(4, seed=seed)
        norm(x)
        commit_all([norm])
        expected = 0.9 * expected + 0.1 * x.mean((0, 2, 3))
        torch.testing.assert_close(norm.target_mean, expected)


def test_gathered_statistics_are_used_without_the_batch() -> None:
    source, x = layer(), inputs(4)
    norm = AdaptiveBatchNorm(source, GatheredStatistics())
    assert torch.equal(norm(x), source(x))
    norm.target_mean.fill_(1)
    norm.target_var.fill_(4)
    norm.seen.fill_(9)
    torch.testing.assert_close(norm(x), norm.with_statistics(x, torch.ones(4).double(), torch.full((4,), 4.0).double()))
    assert norm.pending is None


def test_layers_that_never_had_statistics_use_those_gathered() -> None:
    norm = AdaptiveBatchNorm(nn.BatchNorm2d(3, track_running_stats=False), GatheredStatistics())
    images = torch.randn(6, 3, 4, 4)
    torch.testing.assert_close(norm(images), nn.functional.batch_norm(images, None, None, training=True))
    norm.target_mean.fill_(2.0)
    norm.target_var.fill_(4.0)
    norm.seen.fill_(9)
    torch.testing.assert_close(norm(images), (images - 2) / math.sqrt(4 + norm.eps))


def test_gradients_flow_through_mixed_statistics() -> None:
    norm, x = AdaptiveBatchNorm(layer(2), BatchStatistics(3)), inputs(3, channels=2).requires_grad_()
    assert torch.autograd.gradcheck(norm, x)
    running = AdaptiveBatchNorm(layer(2), RunningStatistics(momentum=0.3))

    def fresh(x: Tensor) -> Tensor:
        running.pending = None
        return running(x)  # type: ignore[no-any-return]

    assert torch.autograd.gradcheck(fresh, x)


@pytest.mark.parametrize(
    ("norm", "shape"),
    [
        (nn.BatchNorm1d(4), (6, 4)),
        (nn.BatchNorm1d(4), (6, 4, 5)),
        (nn.BatchNorm3d(4), (6, 4, 2, 2, 2)),
        (nn.SyncBatchNorm(4), (6, 4, 3, 3)),
        (nn.BatchNorm2d(4, affine=False), (6, 4, 3, 3)),
        (nn.BatchNorm2d(4, track_running_stats=False), (6, 4, 3, 3)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else str(len(value)),
)
@pytest.mark.parametrize(
    "policy", [BatchStatistics(), BatchStatistics(8), RunningStatistics(), RunningStatistics(0.1), GatheredStatistics()]
)
def test_every_batch_norm_adapts(norm: nn.Module, shape: tuple[int, ...], policy) -> None:
    model = nn.Sequential(copy.deepcopy(norm))
    assert list(replace_batch_norms(model, policy)) == ["0"]
    x = torch.randn(shape) * 2 + 1
    y = model(x)
    assert y.shape == x.shape
    assert bool(y.isfinite().all())
    if policy == BatchStatistics():
        dims = [dim for dim in range(x.ndim) if dim != 1]
        torch.testing.assert_close(y.mean(dims), torch.zeros(4), atol=1e-5, rtol=0)


def test_one_value_per_channel_is_no_crash() -> None:
    norm = nn.BatchNorm1d(3).double()  # without a spread, rounding is divided by the root of eps
    nn.init.constant_(norm.bias, 0.5)
    for policy in (BatchStatistics(), BatchStatistics(0, "unbiased"), PartStatistics(1)):
        answer = AdaptiveBatchNorm(norm, policy)(torch.rand(1, 3, dtype=torch.float64))
        torch.testing.assert_close(answer, torch.full((1, 3), 0.5, dtype=torch.float64))
    parts = AdaptiveBatchNorm(norm, PartStatistics(2))(torch.rand(2, 3, dtype=torch.float64))
    torch.testing.assert_close(parts, torch.full((2, 3), 0.5, dtype=torch.float64))


def test_a_shared_layer_stays_shared() -> None:
    shared = nn.BatchNorm2d(3)
    model = nn.Sequential(shared, nn.ReLU(), shared)
    assert len(replace_batch_norms(model, BatchStatistics())) == 1
    assert model[0] is model[2]
    assert isinstance(model[2], AdaptiveBatchNorm)
    adapted = adapt(nn.Sequential(shared, shared, nn.Flatten(), nn.Linear(12, 2)), "bn", statistics="cumulative")
    adapted(torch.rand(4, 3, 2, 2))
    assert int(adapted.model[0].seen) == 8  # type: ignore[index]


def test_layers_inside_a_batch_norm_are_kept() -> None:
    """Fused layers (timm's BatchNormAct2d) hold their activation inside."""

    class Fused(nn.BatchNorm2d):
        def __init__(self, channels: int) -> None:
            super().__init__(channels)
            self.act = nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            return self.act(super().forward(x))  # type: ignore[no-any-return]

    model = convolutional(Fused)
    images = stream(1)[0]
    assert torch.allclose(adapt(model, "source")(images), model(images), atol=1e-6)


def test_predicting_gathers_nothing_and_failing_neither() -> None:
    adapted = adapt(convolutional(), "bn", statistics="cumulative")
    first, second = stream(2)
    adapted(first)
    known = copy.deepcopy(adapted.state_dict())
    expected = adapted.predict(second)
    bad = second.clone()
    bad[0, 0, 0, 0] = math.nan
    assert not bool(adapted(bad).isfinite().all())
    assert adapted.skipped == 1
    for name, tensor in adapted.state_dict().items():
        if isinstance(tensor, Tensor):
            assert torch.equal(tensor, known[name]), name
    assert torch.equal(adapted(second), expected)
