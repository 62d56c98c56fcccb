from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import linalg
from torch.distributions import Normal, kl_divergence

from shiftproof.errors import DataError
from shiftproof.measures import LayerStatistics, layer_distances, mean_distance
from shiftproof.measures.normalization import jeffreys_divergence, normalized_squared_wasserstein, squared_wasserstein
from tests.measures.layers import layer, layers, random_layer


def test_wasserstein_is_that_of_gaussians_with_diagonal_covariances():
    one, other = random_layer(), random_layer()
    a, b = np.diag(one.var), np.diag(other.var)
    root = linalg.sqrtm(b)
    expected = np.sum((one.mean - other.mean) ** 2) + np.trace(a + b - 2 * linalg.sqrtm(root @ a @ root))
    assert squared_wasserstein(one, other) == pytest.approx(expected, rel=1e-12)
    assert layer_distances([one], [other], "wasserstein") == {"bn": pytest.approx(math.sqrt(expected))}


def test_normalized_wasserstein_is_in_units_of_the_source():
    source, target = random_layer(), random_layer()
    s, t = np.diag(source.var), np.diag(target.var)
    gap = target.mean - source.mean
    trace = np.trace(np.eye(7) + t @ linalg.inv(s) - 2 * linalg.sqrtm(t) @ linalg.inv(linalg.sqrtm(s)))
    expected = trace + gap @ linalg.inv(s) @ gap
    assert normalized_squared_wasserstein(source, target, eps=0) == pytest.approx(expected, rel=1e-12)
    by_channel = [
        squared_wasserstein(layer(*a), layer(*b)) / a[1]
        for a, b in zip(channels(source), channels(target), strict=True)
    ]
    assert expected == pytest.approx(sum(by_channel), rel=1e-12)


def channels(one: LayerStatistics) -> list[tuple[float, float]]:
    return list(zip(one.mean.tolist(), one.var.tolist(), strict=True))


def test_jeffreys_is_the_mean_of_both_divergences():
    one, other = random_layer(), random_layer()
    p, q = (Normal(torch.from_numpy(x.mean), torch.from_numpy(np.sqrt(x.var))) for x in (one, other))
    expected = float((kl_divergence(p, q) + kl_divergence(q, p)).sum() / 2)
    assert jeffreys_divergence(one, other, eps=0) == pytest.approx(expected, rel=1e-12)
    # The printed equation 10, whose other form loses digits where the two are near.
    printed = np.sum(
        other.var / one.var + one.var / other.var + (one.mean - other.mean) ** 2 * (1 / one.var + 1 / other.var) - 2
    )
    assert jeffreys_divergence(one, other, eps=0) == pytest.approx(printed / 4, rel=1e-12)


@given(layers(3))
def test_distances_are_distances(three):
    a, b, c = three
    for distance in (squared_wasserstein, jeffreys_divergence):
        assert distance(a, b) == pytest.approx(distance(b, a), rel=1e-12)
    for distance in (squared_wasserstein, jeffreys_divergence, normalized_squared_wasserstein):
        assert distance(a, a) == 0
        differ = not np.allclose([a.mean, a.var], [b.mean, b.var], rtol=1e-6, atol=1e-6)
        assert distance(a, b) > 0 if differ else distance(a, b) >= 0
    w = {pair: math.sqrt(squared_wasserstein(*pair)) for pair in ((a, b), (b, c), (a, c))}
    assert w[a, c] <= w[a, b] + w[b, c] + 1e-9


@given(layers(), st.floats(0.1, 10), st.floats(-5, 5))
def test_relative_distances_do_not_depend_on_the_scale_of_a_layer(two, scale, offset):
    moved = [layer(scale * x.mean + offset, scale**2 * x.var) for x in two]
    for distance in (normalized_squared_wasserstein, jeffreys_divergence):
        assert distance(*moved, eps=0) == pytest.approx(distance(*two, eps=0), rel=1e-7, abs=1e-7)
    assert squared_wasserstein(*moved) == pytest.approx(scale**2 * squared_wasserstein(*two), rel=1e-7, abs=1e-7)


def test_a_channel_that_is_always_zero_decides_nothing():
    source, target = layer([0, 1], [0, 1]), layer([1e-9, 2], [1e-12, 1])
    assert normalized_squared_wasserstein(source, target) == pytest.approx(1, rel=1e-4)
    assert jeffreys_divergence(source, target) == pytest.approx(0.5, rel=1e-4)
    for distance in (normalized_squared_wasserstein, jeffreys_divergence):
        with pytest.raises(DataError, match="without variance"):
            distance(source, target, eps=0)


def test_layers_are_met_by_name_and_averaged():
    source = [random_layer(3, "a"), random_layer(5, "b"), random_layer(2, "never reached")]
    target = [random_layer(5, "b"), random_layer(3, "a")]
    for name in ("wasserstein", "normalized_wasserstein", "jeffreys"):
        found = layer_distances(source, target, name)
        assert found == {
            "b": layer_distances([source[1]], [target[0]], name)["b"],
            "a": layer_distances([source[0]], [target[1]], name)["a"],
        }
        assert mean_distance(source, target, name) == pytest.approx((found["a"] + found["b"]) / 2)
    for stranger in ([random_layer(3, "c")], [random_layer(4, "a")], []):
        with pytest.raises(DataError, match="one network"):
            mean_distance(source, stranger)


@pytest.mark.parametrize(
    ("mean", "var"), [([0, 1], [1]), ([0], [-1]), ([math.nan], [1]), ([0], [math.inf]), ([[0]], [[1]])]
)
def test_impossible_statistics_are_refused(mean, var):
    with pytest.raises(DataError, match="cannot be used"):
        layer(mean, var)
