"""Coverage: no rule claims too large a radius more often than it says, and the test that tells can fail."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, norm

from shiftproof.certificates.radius import radius
from shiftproof.certificates.rules import AtLeast, Fixed, Judgement, Rule, Sequential, make_rule, rule_of
from shiftproof.errors import ConfigurationError
from shiftproof.measures.intervals import lower_bound

SIGMA = 0.25
HARD = (0.5, 0.5001, 0.51, 0.6, 0.9, 0.99, 0.9999, 1 - 1e-5, 1.0)


def certified(rule, p, runs, seed=0):
    """Certify `runs` images whose class has probability p: the radii claimed and the samples taken, [runs] each."""
    rng = np.random.default_rng([seed, int(p * 1e9)])
    hits, radii, samples = (np.zeros(runs, kind) for kind in (np.int64, float, np.int64))
    going, before = np.arange(runs), 0
    for look, n in enumerate(rule.looks):
        hits[going] += rng.binomial(n - before, p, len(going))
        different, which = np.unique(hits[going], return_inverse=True)  # equal counts are judged alike
        claimed, done = (answer[which] for answer in rule.judge(look, different))
        radii[going[done]], samples[going[done]] = claimed[done], n
        going, before = going[~done], n
    assert len(going) == 0
    return radii, samples


def wrong(rule, p, runs, seed=0):
    """How often the radius claimed is larger than the true one."""
    truth = rule.sigma * norm.ppf(p) if p > 0.5 else 0.0
    return int((certified(rule, p, runs, seed)[0] > truth + 1e-12).sum())


def covers(rule, p, runs=20_000, seed=0):
    """Whether errors are no more frequent than alpha, as far as so many runs can tell."""
    return binomtest(wrong(rule, p, runs, seed), runs, rule.alpha, alternative="greater").pvalue > 1e-6


def rules(n, alpha):
    yield Fixed(sigma=SIGMA, n=n, alpha=alpha)
    yield Fixed(sigma=SIGMA, n=n, alpha=alpha, futility=False)
    yield Sequential(sigma=SIGMA, n=n, alpha=alpha)
    yield Sequential(sigma=SIGMA, n=n, alpha=alpha, tolerance=0.5)
    for asked in (0.01, 0.1, 0.3):
        yield AtLeast(sigma=SIGMA, asked=asked, n=n, alpha=alpha)


@pytest.mark.parametrize("p", HARD)
@pytest.mark.parametrize("alpha", [0.001, 0.05])
def test_coverage(p, alpha):
    for rule in rules(10_000, alpha):
        assert covers(rule, p), rule


@pytest.mark.parametrize("p", HARD)
def test_coverage_at_full_size(p):
    for rule in rules(100_000, 0.001):
        assert covers(rule, p, runs=2000), rule


@pytest.mark.parametrize("short", [1e-6, 1e-4, 1e-2])
@pytest.mark.parametrize("alpha", [0.001, 0.05])
def test_coverage_where_the_asked_radius_is_just_missed(short, alpha):
    """The hardest case of the test: p a little under what the radius needs."""
    for asked in (0.02, 0.25, 0.6):
        rule = AtLeast(sigma=SIGMA, asked=asked, n=10_000, alpha=alpha)
        assert covers(rule, rule.p * (1 - short)), (asked, short)


@settings(max_examples=30)
@given(st.floats(0.5, 1.0), st.integers(40, 20_000), st.floats(0.002, 0.2))
def test_coverage_everywhere(p, n, alpha):
    for name in ("fixed", "sequential"):
        assert covers(make_rule(name, sigma=SIGMA, n=n, alpha=alpha), p, runs=2000)
    assert covers(make_rule("radius", sigma=SIGMA, n=n, alpha=alpha, radius=0.05), p, runs=2000)


@dataclass(frozen=True, kw_only=True)
class PointEstimate(Fixed):
    """Broken: takes the share of hits for a bound."""

    def judge(self, look, hits):
        return Judgement(radius(hits / self.n, self.sigma), np.ones(len(hits), bool))


@dataclass(frozen=True, kw_only=True)
class Wald(Fixed):
    """Broken: the normal approximation, which is certain after n hits."""

    def judge(self, look, hits):
        share = hits / self.n
        bound = share - norm.ppf(1 - self.alpha) * np.sqrt(share * (1 - share) / self.n)
        return Judgement(radius(bound, self.sigma), np.ones(len(hits), bool))


@dataclass(frozen=True, kw_only=True)
class Peeking(Sequential):
    """Broken: stops at the first look that shows anything, each with all of alpha."""

    @property
    def alpha_per_look(self):
        return self.alpha

    def judge(self, look, hits):
        n = self.looks[look]
        shown = radius(lower_bound(hits, n, self.alpha), self.sigma)
        return Judgement(shown, (shown > 0) | (n == self.n))


@pytest.mark.parametrize(
    ("broken", "p"), [(PointEstimate, 0.6), (PointEstimate, 0.5), (Wald, 1 - 1e-5), (Peeking, 0.5)], ids=str
)
def test_the_check_of_coverage_fails_for_broken_bounds(broken, p):
    rule: Rule = broken(sigma=SIGMA, n=10_000, alpha=0.05, **({} if broken is Peeking else {"futility": False}))
    assert not covers(rule, p)


def test_fixed_without_futility_is_one_bound_over_all_samples():
    rule = Fixed(sigma=0.5, n=1000, alpha=0.001, futility=False)
    assert rule.looks == (1000,)
    claimed, done = rule.judge(0, np.array([0, 500, 900, 1000]))
    assert done.all()
    assert claimed.tolist() == radius(lower_bound([0, 500, 900, 1000], 1000, 0.001), 0.5).tolist()


def test_sequential_looks_as_specified():
    rule = Sequential(sigma=1.0)
    assert rule.looks == (1_000, 3_000, 10_000, 30_000, 100_000)
    assert rule.alpha_per_look == pytest.approx(0.001 / 5)


def test_futility_spares_the_hopeless_and_costs_the_others_nothing():
    for rule in (Fixed(sigma=SIGMA), Sequential(sigma=SIGMA)):
        radii, samples = certified(rule, 0.3, 1000)
        assert (radii == 0).all()
        assert samples.mean() < 0.011 * rule.n
    plain, stopping = Fixed(sigma=SIGMA, futility=False), Fixed(sigma=SIGMA)
    assert certified(plain, 0.9, 2000)[0].mean() == pytest.approx(certified(stopping, 0.9, 2000)[0].mean(), rel=1e-3)


@pytest.mark.parametrize("p", [0.8, 0.95, 0.999, 1.0])
def test_sequential_loses_little_radius(p):
    full = certified(Fixed(sigma=SIGMA), p, 500)[0].mean()
    radii, samples = certified(Sequential(sigma=SIGMA), p, 500)
    assert radii.mean() > full - 0.15 * SIGMA
    assert samples.mean() <= 100_000 if p == 1 else samples.mean() <= 31_000


@pytest.mark.parametrize(("p", "yes"), [(0.99, True), (0.7, False)])
def test_the_asked_radius_is_decided_with_few_samples(p, yes):
    radii, samples = certified(AtLeast(sigma=SIGMA, asked=SIGMA), p, 1000)
    assert (radii == SIGMA).mean() == pytest.approx(1.0 if yes else 0.0, abs=0.01)
    assert samples.mean() < 500


BAD = {
    "sigma": {"sigma": 0.0},
    "negative sigma": {"sigma": -1.0},
    "nan sigma": {"sigma": float("nan")},
    "alpha": {"alpha": 0.0},
    "large alpha": {"alpha": 1.0},
    "no samples": {"n": 0},
    "too few samples": {"n": 9, "alpha": 0.001},
    "tolerance": {"tolerance": -1.0, "name": "sequential"},
    "unknown": {"name": "sequentiel"},
    "radius without its rule": {"radius": 0.25},
    "rule without its radius": {"name": "radius"},
    "negative radius": {"name": "radius", "radius": -0.5},
    "radius out of reach": {"name": "radius", "radius": 1.5},
}


@pytest.mark.parametrize("options", BAD.values(), ids=BAD.keys())
def test_bad_numbers_are_refused(options):
    with pytest.raises(ConfigurationError):
        make_rule(**{"name": "fixed", "sigma": SIGMA, **options})


def test_a_radius_out_of_reach_is_answered_with_the_largest_in_reach():
    with pytest.raises(ConfigurationError, match="at most") as caught:
        AtLeast(sigma=SIGMA, asked=2.0)
    largest = float(caught.value.facts["expected"].split("at most ")[1].split(" ")[0])
    AtLeast(sigma=SIGMA, asked=largest)
    with pytest.raises(ConfigurationError):
        AtLeast(sigma=SIGMA, asked=largest + 0.005)


@pytest.mark.parametrize(("name", "options"), [("fixed", {}), ("sequential", {}), ("radius", {"radius": 0.1})])
def test_a_rule_is_made_again_from_what_a_certificate_says(name, options):
    rule = make_rule(name, sigma=0.1, n=500, alpha=0.01, **options)
    assert rule_of(rule.facts()) == rule
