"""From probabilities to ranges: known values, the worst classifier reaches exactly so far, and rules keep alpha."""

import math
from functools import partial

import numpy as np
import pytest
from scipy.stats import binomtest, norm

from shiftproof.certificates.laws import (
    GRID,
    LAWS,
    check_sigma,
    contrast_brightness_need,
    contrast_brightness_share,
    exponential_needs,
    exponential_reach,
    law_of,
    rectangle_needs,
    rectangle_reach,
    scale_of,
)
from shiftproof.certificates.rules import make_rule
from shiftproof.errors import ConfigurationError
from tests.certificates.test_rules import certified

SCALES = {"l2": 0.25, "brightness": 0.1, "contrast+brightness": 0.2, "blur": 2.0, "translation": 3.0}


@pytest.mark.parametrize("against", SCALES)
def test_a_range_rises_with_the_probability_and_back(against):
    law, scale = law_of(against), SCALES[against]
    p = np.linspace(0.5001, 0.9999, 200)
    ranges = law.reach(p, scale)
    assert (np.diff(ranges) >= 0).all()
    assert (law.reach([0.2, 0.5], scale) == 0).all()
    some = ranges > 0
    assert (law.needs(ranges[some], scale) <= p[some] + 1e-9).all()  # what is claimed is shown


def test_exponential_noise_in_closed_form():
    assert exponential_reach([0.9, 0.99, 0.999], 5).tolist() == pytest.approx([8.05, 19.56, 31.07], abs=0.01)
    t, scale = 3.0, 2.0  # a classifier that changes at a variance of t
    p = 1 - math.exp(-t / scale)
    assert exponential_reach(p, scale) == pytest.approx(t - scale * math.log(2))
    assert exponential_needs(t, scale) == pytest.approx(1 - math.exp(-t / scale) / 2)


def test_contrast_and_brightness_against_known_values():
    share = partial(contrast_brightness_share, b=0.4, sigma=0.4, tau=0.4)
    assert share(0.99, math.log(1.4)) == pytest.approx(0.868489, abs=1e-5)
    assert share(0.99, math.log(0.6)) == pytest.approx(0.685213, abs=1e-5)
    assert share(0.9, 0.0) == pytest.approx(norm.cdf(norm.ppf(0.9) - 1))
    p = contrast_brightness_need(math.log(0.6), 0.4, 0.4, 0.4)
    assert share(p, math.log(0.6)) == pytest.approx(0.5, abs=1e-9)


def test_contrast_and_brightness_by_simulation():
    """The worst set of noises, drawn from: half of it is left at the corner, and p of it at the image itself."""
    k, b, sigma = math.log(0.7), 0.3, 0.4
    rng = np.random.default_rng(0)
    drawn = rng.normal(size=(2, 400_000)) * sigma

    def ratio(u, v):
        return u * k / sigma**2 + (v**2 - (v - b) ** 2 * math.exp(2 * k)) / (2 * sigma**2)

    changed = ratio(k + drawn[0], b + math.exp(-k) * drawn[1])
    level = np.median(changed)
    p = float((ratio(*drawn) < level).mean())
    assert contrast_brightness_need(k, b, sigma, sigma) == pytest.approx(p, abs=0.004)


def test_a_rectangle_is_certified_at_its_corners_and_within():
    scale, p = 0.2, 0.95
    r = float(rectangle_reach(p, scale))
    assert 0.05 < r < 0.5
    for k in np.linspace(math.log(1 - r), math.log(1 + r), 41):
        for b in np.linspace(-r, r, 11):
            assert contrast_brightness_share(p, k, b, scale, scale) >= 0.5
    assert rectangle_needs(r, scale) <= p < rectangle_needs(GRID[np.searchsorted(GRID, r) + 1], scale)


@pytest.mark.parametrize("p", [0.5, 0.55, 0.7, 0.9, 0.99, 0.9999])
@pytest.mark.parametrize("against", SCALES)
def test_rules_keep_alpha_under_every_law(against, p):
    law, scale = law_of(against), SCALES[against]
    truth = float(law.reach(p, scale)) if p > 0.5 else 0.0
    asked = float(law.reach(0.8, scale))
    for n in (100, 1000, 10_000):
        for name, radius in (("fixed", None), ("sequential", None), ("radius", asked)):
            rule = make_rule(name, sigma=scale, n=n, alpha=0.05, radius=radius, against=against)
            radii, _ = certified(rule, p, 2000)
            wrong = int((radii > truth + 1e-12).sum())
            assert binomtest(wrong, 2000, 0.05, alternative="greater").pvalue > 1e-4, (name, n)


def test_noise_is_checked_on_its_own_scale():
    check_sigma(30.0, "translation")
    for against, sigma in (("l2", 3.0), ("brightness", 25.0), ("blur", -1.0), ("translation", math.inf)):
        with pytest.raises(ConfigurationError):
            check_sigma(sigma, against)
    assert scale_of("blur", None) == LAWS["blur"].usual
    with pytest.raises(ConfigurationError, match="sigma"):
        scale_of("l2", None)
    with pytest.raises(ConfigurationError, match="did you mean"):
        law_of("brightnes")
