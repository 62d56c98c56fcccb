"""The mathematics against scipy's own tests, closed forms and exact tails."""

import json
import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from shiftproof.certificates.radius import is_majority, log_evidence, probability, radius, round_down
from shiftproof.measures.intervals import lower_bound, upper_bound

COUNTS = st.integers(1, 100_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
ALPHAS = st.floats(1e-6, 0.4)


@pytest.mark.parametrize(("hits", "n"), [(0, 10), (1, 10), (5, 10), (10, 10), (99_990, 100_000), (100_000, 100_000)])
@pytest.mark.parametrize("alpha", [0.001, 0.05])
def test_bounds_are_those_of_scipys_exact_test(hits, n, alpha):
    low = binomtest(hits, n).proportion_ci(1 - 2 * alpha, method="exact").low
    high = binomtest(hits, n).proportion_ci(1 - 2 * alpha, method="exact").high
    assert lower_bound(hits, n, alpha) == pytest.approx(low, abs=1e-12)
    assert upper_bound(hits, n, alpha) == pytest.approx(high, abs=1e-12)


def test_closed_forms():
    assert lower_bound(100_000, 100_000, 0.001) == pytest.approx(0.001 ** (1 / 100_000), abs=1e-14)
    assert upper_bound(0, 100, 0.01) == pytest.approx(1 - 0.01 ** (1 / 100), abs=1e-14)
    normal = NormalDist()
    for p in (0.500001, 0.6, 0.99, 0.99993):
        assert radius(p, 0.25) == pytest.approx(0.25 * normal.inv_cdf(p), rel=1e-12)
        assert probability(radius(p, 0.25), 0.25) == pytest.approx(p, rel=1e-12)


def test_the_largest_radius_of_the_usual_numbers():
    """100,000 samples that all agree, at alpha .001: 3.81 sigma."""
    assert radius(lower_bound(100_000, 100_000, 0.001), 1.0) == pytest.approx(3.8115, abs=1e-4)


@given(COUNTS, ALPHAS)
def test_the_lower_bound_is_where_so_many_hits_become_unlikely(counts, alpha):
    """P(Binomial(n, bound) >= hits) = alpha: the definition, by scipy's exact tail."""
    hits, n = counts
    bound = float(lower_bound(hits, n, alpha))
    if hits == 0:
        assert bound == 0
    else:
        assert binom.sf(hits - 1, n, bound) == pytest.approx(alpha, rel=1e-6)
        assert bound < hits / n or hits == n


@given(st.floats(0, 100, allow_subnormal=False))
def test_written_radii_never_exceed_computed_ones(value):
    written = json.loads(json.dumps(round_down(value)))
    assert written <= value
    assert value - written < 1.1e-6


def test_half_is_no_majority():
    assert radius([0.0, 0.5], 1.0).tolist() == [0, 0]
    assert radius(0.5 + 1e-12, 1.0) > 0
    assert not is_majority(0, 0, 0.001)
    assert not is_majority(50, 50, 0.001)
    assert is_majority(90, 10, 0.001)
    assert is_majority(8, 0, 0.05) == (2 * 0.5**8 <= 0.05)


@given(st.integers(0, 60), st.floats(0.5, 0.99))
def test_evidence_is_what_an_integral_says(hits, p):
    """Against the mixture integrated on a fine grid of probabilities."""
    n = 60
    theta = math.pi / 2 * (np.arange(200_000) + 0.5) / 200_000  # q = sin^2: uniform angles are the arcsine prior
    q = np.sin(theta) ** 2
    q = q[q > p]
    likelihood = np.exp(hits * np.log(q / p) + (n - hits) * np.log((1 - q) / (1 - p)))
    expected = float(np.log(likelihood.mean()))
    assert float(log_evidence(hits, n, p)) == pytest.approx(expected, abs=2e-2)
