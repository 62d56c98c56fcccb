from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import special, stats

from shiftproof.errors import ConfigurationError
from shiftproof.measures import expected_distance_bounds, optimal_prior
from tests.measures.layers import layer, layers, random_layer

PRIORS = (0, 0.5, 1, 8, 64, 1e6, math.inf)


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
    with pytest.raises(ConfigurationError, match="settings for the bounds"):
        expected_distance_bounds(layer(0, 1), layer(1, 1), **{"prior": 1, "n": 4, **wrong})


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
