from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import linalg, spatial, special, stats
from torch.distributions import Normal, kl_divergence

from shiftproof.errors import ConfigurationError, DataError
from shiftproof.measures import (
    ErrorLine,
    LayerStatistics,
    expected_distance_bounds,
    layer_distances,
    mean_distance,
    optimal_prior,
    shift_map,
)
from shiftproof.measures.normalization import (
    classical_scaling,
    jeffreys_divergence,
    normalized_squared_wasserstein,
    squared_wasserstein,
)

RNG = np.random.default_rng(0)
PRIORS = (0, 0.5, 1, 8, 64, 1e6, math.inf)


def layer(mean: object, var: object, name: str = "bn") -> LayerStatistics:
    return LayerStatistics(name, np.atleast_1d(np.asarray(mean, float)), np.atleast_1d(np.asarray(var, float)))


def random_layer(channels: int = 7, name: str = "bn") -> LayerStatistics:
    return layer(RNG.normal(size=channels), RNG.uniform(0.1, 4, channels), name)


@st.composite
def layers(draw: st.DrawFn, count: int = 2) -> list[LayerStatistics]:
    channels = draw(st.integers(1, 5))
    means = st.lists(st.floats(-10, 10), min_size=channels, max_size=channels)
    variances = st.lists(st.floats(0.01, 100), min_size=channels, max_size=channels)
    return [layer(draw(means), draw(variances)) for _ in range(count)]


# Distances


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


# Proposition 1


@given(layers(), st.floats(0, 1e4), st.integers(2, 1000), st.floats(0.5, 0.999))
def test_bounds_are_the_printed_ones(two, prior, n, confidence):
    source, target = two
    total = prior + n
    sigma = np.sqrt(target.var)
    lower = (
        (sigma - np.sqrt(prior / total * source.var + (n - 1) / total * target.var)) ** 2
        + prior**2 / total**2 * (target.mean - source.mean) ** 2
        + n / total**2 * target.var
    )
    quantile = stats.chi2.ppf((1 - confidence) / 2, n - 1)
    least = prior / total * source.var + quantile / total * target.var
    upper = lower + sigma**5 * (n - 1) / (2 * total**2) * least**-1.5
    bounds = expected_distance_bounds(source, target, prior=prior, n=n, confidence=confidence)
    np.testing.assert_allclose(bounds.lower, lower, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(bounds.upper, upper, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(bounds.sum(), (lower.sum(), upper.sum()), rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 32])
def test_the_expected_distance_lies_between_the_bounds(n):
    """Draw real samples, mix their statistics with the source's, and measure: L <= E[W^2] <= U for the whole grid."""
    drawn = np.random.default_rng(n).normal(size=(20_000, n))
    gaps, sigmas = (grid.ravel() for grid in np.meshgrid([0, 0.1, 1, 4], [0.1, 0.5, 1, 1.2, 5]))
    source, target = layer(np.zeros_like(gaps), np.ones_like(gaps)), layer(gaps, sigmas**2)
    means = gaps + sigmas * drawn.mean(1, keepdims=True)
    variances = sigmas**2 * drawn.var(1, keepdims=True)
    for prior in PRIORS:
        share = 1 if math.isinf(prior) else prior / (prior + n)
        mean, var = share * source.mean + (1 - share) * means, share * source.var + (1 - share) * variances
        squared = (mean - gaps) ** 2 + (np.sqrt(var) - sigmas) ** 2
        doubt = 5 * squared.std(0) / math.sqrt(len(drawn)) + 1e-9
        bounds = expected_distance_bounds(source, target, prior=prior, n=n)
        assert (bounds.lower <= squared.mean(0) + doubt).all()
        assert (bounds.upper >= squared.mean(0) - doubt).all()
        if n == 1 or prior >= 1e6:  # nothing random is left under the root, and the bounds meet
            np.testing.assert_allclose(squared.mean(0), bounds.lower, atol=doubt.max())
            np.testing.assert_allclose(bounds.upper, bounds.lower, atol=1e-9)


def test_bounds_hold_and_close_without_a_prior():
    """Without a prior the expectation has a closed form: the mean of a chi distribution."""
    for n in (2, 3, 5, 10, 100, 1000, 100_000):
        mean_of_root = math.sqrt(2 / n) * special.poch((n - 1) / 2, 0.5)
        bounds = expected_distance_bounds(layer(3, 2), layer(-1, 4), prior=0, n=n)
        assert bounds.lower[0] <= 2 * 4 * (1 - mean_of_root) <= bounds.upper[0]
        if n >= 1000:
            assert bounds.upper[0] / bounds.lower[0] == pytest.approx(1.5, rel=0.1)


def test_limits_of_the_bounds():
    source, target = random_layer(), random_layer()
    by_channel = (source.mean - target.mean) ** 2 + (np.sqrt(source.var) - np.sqrt(target.var)) ** 2
    for n in (1, 8, 64):  # an infinite prior leaves the distance between source and target
        bounds = expected_distance_bounds(source, target, prior=math.inf, n=n)
        np.testing.assert_allclose(bounds.lower, by_channel, rtol=1e-12)
        np.testing.assert_array_equal(bounds.upper, bounds.lower)
        near = expected_distance_bounds(source, target, prior=1e9, n=n)
        np.testing.assert_allclose([near.lower, near.upper], [by_channel, by_channel], rtol=1e-4)
    for prior in (0, 16, 1e3):  # infinitely many samples leave nothing
        bounds = expected_distance_bounds(source, target, prior=prior, n=1e12)
        assert np.max(bounds.upper) < 1e-8
    n, sigma2 = 8, target.var  # a source equal to the target, once known and once not
    quantile = stats.chi2.ppf(0.025, n - 1)
    for prior in (0, 4):
        bounds = expected_distance_bounds(target, target, prior=prior, n=n)
        total = prior + n
        lower = sigma2 * ((1 - math.sqrt(1 - 1 / total)) ** 2 + n / total**2)
        np.testing.assert_allclose(bounds.lower, lower, rtol=1e-12)
        upper = lower + sigma2 * (n - 1) / (2 * total**2) * ((prior + quantile) / total) ** -1.5
        np.testing.assert_allclose(bounds.upper, upper, rtol=1e-12)
    bounds = expected_distance_bounds(target, target, prior=0, n=n)
    np.testing.assert_allclose(bounds.lower, 2 * sigma2 * (1 - math.sqrt(1 - 1 / n)), rtol=1e-12)


def test_channels_without_variance_have_bounds():
    bounds = expected_distance_bounds(layer([0, 0], [0, 1]), layer([2, 2], [0, 0]), prior=0, n=4)
    np.testing.assert_array_equal([bounds.lower, bounds.upper], np.zeros((2, 2)))
    bounds = expected_distance_bounds(layer([0, 0], [0, 1]), layer([2, 2], [0, 0]), prior=4, n=4)
    np.testing.assert_allclose([bounds.lower, bounds.upper], [[1, 1.5]] * 2)


@pytest.mark.parametrize("wrong", [{"prior": -1}, {"prior": math.nan}, {"n": 0}, {"n": math.inf}, {"confidence": 1}])
def test_impossible_numbers_of_samples_are_refused(wrong):
    with pytest.raises(ConfigurationError, match="have no bounds"):
        expected_distance_bounds(layer(0, 1), layer(1, 1), **{"prior": 1, "n": 4, **wrong})


# The prior


@given(st.integers(2, 200), st.floats(0.05, 5), st.floats(0.1, 10))
def test_the_best_prior_where_only_means_differ_has_a_closed_form(n, gap, var):
    """With a source variance of (n - 1) / n of the target's, the prior matters to the means only: sigma^2 / gap^2."""
    assume(var / gap**2 < 1e3 * n)
    found = optimal_prior([layer(0, var * (n - 1) / n)], [layer(gap, var)], n=n, bound="lower")
    assert found == pytest.approx(var / gap**2, rel=1e-2)


@given(layers(), st.integers(1, 64), st.sampled_from(["lower", "upper"]), st.booleans())
def test_no_other_prior_has_a_smaller_bound(two, n, bound, normalized):
    source, target = two

    def value(prior: float) -> float:
        bounds = expected_distance_bounds(source, target, prior=prior, n=n)
        units = source.var + 1e-5 if normalized else 1
        return float(np.sum(getattr(bounds, bound) / units))

    found = optimal_prior([source], [target], n=n, bound=bound, normalized=normalized)
    others = [0, *np.geomspace(n / 1e3, n * 1e3, 50), math.inf]
    assert value(found) <= min(map(value, others)) * (1 + 1e-6) + 1e-9


def test_the_deepest_of_several_valleys_is_found():
    source, target = layer([0, 0, 4, 8, 0], [1, 1, 1, 0.25, 0.125]), layer([0, 0, 0, 0, 9], [1, 1, 1, 9, 100])
    found = optimal_prior([source], [target], n=5)
    values = [float(np.sum(expected_distance_bounds(source, target, prior=p, n=5).upper)) for p in (found, 8.9, 400.0)]
    assert values[0] == min(values)


def test_the_prior_between_its_extremes():
    source, target = [random_layer(9, "a"), random_layer(4, "b")], [random_layer(9, "a"), random_layer(4, "b")]
    far = [layer(x.mean + 10, 50 * x.var, x.name) for x in source]
    near = [layer(x.mean + 0.1, 1.1 * x.var, x.name) for x in source]
    assert optimal_prior(source, source, n=8, bound="lower") == math.inf  # the source is right already
    assert optimal_prior(source, target, n=1e9) == pytest.approx(0, abs=1e5)  # next to 1e9 samples
    low, both, high = (optimal_prior(source, *shifts, n=8) for shifts in ([far], [far, near], [near]))
    assert 0 < low < both < high < math.inf
    with pytest.raises(ConfigurationError, match="needs a target"):
        optimal_prior(source, n=8)


# Errors from distances


def test_the_line_is_that_of_least_squares():
    distances, errors = RNG.uniform(0, 3, 20), RNG.uniform(0, 1, 20)
    line, expected = ErrorLine.fit(distances, errors), stats.linregress(distances, errors)
    assert (line.slope, line.intercept) == pytest.approx((expected.slope, expected.intercept), rel=1e-10)
    assert line.r_squared == pytest.approx(expected.rvalue**2, rel=1e-9)
    np.testing.assert_allclose(
        line.predict([[0.0], [2.0]]), expected.intercept + expected.slope * np.array([[0.0], [2.0]])
    )


@given(st.floats(-1, 1), st.floats(0, 1), st.lists(st.floats(0, 10), min_size=2, max_size=9))
def test_errors_on_a_line_are_predicted(slope, intercept, distances):
    assume(np.ptp(distances) > 1e-2)
    x = np.array(distances)
    line = ErrorLine.fit(x, slope * x + intercept)
    np.testing.assert_allclose(line.predict([0, 5]), [intercept, 5 * slope + intercept], atol=1e-9)
    assert line.score([1, 2, 4], slope * np.array([1, 2, 4]) + intercept) == pytest.approx(1) or abs(slope) < 1e-6


def test_scores_of_a_line():
    line = ErrorLine.fit([0, 1, 2], [0.1, 0.2, 0.3])
    assert line.score([0, 2], [0.2, 0.2]) == 0  # no spread to explain
    assert line.score([0, 2], [0.3, 0.1]) == pytest.approx(-3)
    assert ErrorLine.fit([0, 1], [0.5, 0.5]) == ErrorLine(slope=0, intercept=0.5, r_squared=1)


@pytest.mark.parametrize(("distances", "errors"), [([1, 1], [0, 1]), ([1, 2], [0]), ([], []), ([1, 2], [0, math.nan])])
def test_no_line_through_too_little(distances, errors):
    with pytest.raises(DataError, match="No line"):
        ErrorLine.fit(distances, errors)


# The map


def test_scaling_finds_points_in_the_plane_again():
    points = RNG.normal(size=(9, 2)) * [3, 1] + 5
    distances = spatial.distance_matrix(points, points)
    found, share = classical_scaling(distances)
    np.testing.assert_allclose(spatial.distance_matrix(found, found), distances, atol=1e-9)
    assert share == pytest.approx(1)
    np.testing.assert_allclose(found.mean(0), 0, atol=1e-9)
    assert (found[np.abs(found).argmax(0), [0, 1]] > 0).all()
    flat, part = classical_scaling(distances, dimensions=1)
    np.testing.assert_allclose(flat[:, 0], found[:, 0], atol=1e-9)
    assert part == pytest.approx(found[:, 0].var() / found.var(0).sum())


def test_scaling_of_what_no_plane_holds():
    simplex = 1.0 - np.eye(4)  # a tetrahedron: three axes alike
    points, share = classical_scaling(simplex)
    assert points.shape == (4, 2)
    assert share == pytest.approx(2 / 3)
    np.testing.assert_array_equal(classical_scaling(np.zeros((1, 1)))[0], np.zeros((1, 2)))
    np.testing.assert_array_equal(classical_scaling(np.zeros((3, 3)))[0], np.zeros((3, 2)))


def test_the_map_of_one_channel_is_the_plane_of_mean_and_deviation():
    source = [layer(1, 4)]
    shifts = {"darker": [layer(-3, 4)], "noisier": [layer(1, 36)], "both": [layer(-3, 36)]}
    found = shift_map(source, shifts)
    assert found.names == ("darker", "noisier", "both")
    expected = np.array([[0, 0], [-2, 0], [0, 2], [-2, 2]])  # in deviations of the source
    here = np.vstack([np.zeros(2), found.points])
    np.testing.assert_allclose(
        spatial.distance_matrix(here, here), spatial.distance_matrix(expected, expected), atol=1e-4
    )
    assert found.share == pytest.approx(1)


@pytest.mark.parametrize("distance", ["wasserstein", "normalized_wasserstein", "jeffreys"])
def test_near_shifts_are_near_on_the_map(distance):
    source = [random_layer(16, "a"), random_layer(8, "b"), random_layer(4, "never reached")]

    def moved(by: float, towards: int) -> list[LayerStatistics]:
        rng = np.random.default_rng(towards)
        return [layer(x.mean + by * rng.normal(size=x.mean.shape), x.var, x.name) for x in source[:2]]

    found = shift_map(source, {"fog": moved(1, 1), "haze": moved(1.2, 1), "blur": moved(1, 2)}, distance)
    fog, haze, blur = found.points
    assert np.linalg.norm(fog - haze) < 0.5 * min(np.linalg.norm(fog - blur), np.linalg.norm(fog))
    assert 0.5 < found.share <= 1
    with pytest.raises(DataError, match="no shifts"):
        shift_map(source, {})
