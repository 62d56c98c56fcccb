"""The fitted surface against its closed form, its limits, and what it promises about its own error."""

from itertools import product

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from shiftproof.streams.ccc import surfaces
from shiftproof.streams.ccc.surfaces import Counted, fit_surface

SHAPE = (9, 11)
PLACES = list(product(range(0, 9, 2), range(0, 11, 2)))


def smooth(shape=SHAPE):
    """Return an accuracy that falls along both axes, with a bend."""
    i, j = np.indices(shape)
    return 0.1 + 0.75 * np.exp(-((i / 6) ** 2) - 0.12 * j)


def drawn(truth, images, seed, places=PLACES):
    rng = np.random.default_rng(seed)
    return {place: Counted(int(rng.binomial(images, truth[place])), images) for place in places}


def test_much_counted_places_keep_what_was_counted():
    truth = np.round(smooth(), 3)
    exact = {place: Counted(round(1e9 * truth[place]), 10**9) for place in PLACES}
    fitted = fit_surface(exact, SHAPE)
    assert [fitted.accuracy[place] for place in PLACES] == pytest.approx([truth[place] for place in PLACES], abs=1e-4)
    assert fitted.accuracy == pytest.approx(truth, abs=0.03)


def test_neighbours_make_a_place_surer_than_its_own_count():
    truth, raw, fitted = smooth(), [], []
    for seed in range(20):
        counted = drawn(truth, 250, seed)
        found = fit_surface(counted, SHAPE)
        raw += [right / images - truth[place] for place, (right, images) in counted.items()]
        fitted += [found.accuracy[place] - truth[place] for place in counted]
    assert np.std(fitted) < 0.8 * np.std(raw)
    assert abs(np.mean(fitted)) < 0.005


def test_its_standard_errors_are_those_of_its_errors():
    scores = []
    for seed in range(40):
        truth = smooth() + np.random.default_rng(seed).normal(0, 0.02, SHAPE)
        found = fit_surface(drawn(truth, 250, seed), SHAPE)
        scores.append((found.accuracy - truth) / found.error)
    assert 0.8 < np.sqrt(np.mean(np.square(scores))) < 1.2


def test_few_images_and_far_places_are_less_sure():
    near = [place for place in PLACES if place[1] <= 4]
    few, many = (fit_surface(drawn(smooth(), images, 0, near), SHAPE).error for images in (100, 10_000))
    assert (many < few).all()
    assert few[4, 4] < few[4, 6] < few[4, 10]


def test_the_likelihood_is_that_of_a_normal_distribution():
    places = np.array([[0.0, 0.0], [1.0, 2.0], [4.0, 3.0], [4.0, 4.0]])
    values, noise = np.array([0.2, 0.1, -0.1, -0.2]), np.array([1e-3, 2e-3, 1e-3, 3e-3])
    fit = surfaces._Fit(places, values, noise, 5.0, 8.0, 0.01)
    covariance = fit.covariance(places, places) + np.diag(noise)
    assert fit.likelihood - len(values) / 2 * np.log(2 * np.pi) == pytest.approx(
        multivariate_normal.logpdf(values, cov=covariance)
    )
    inverse = np.linalg.inv(covariance)
    elsewhere = np.array([[2.0, 2.0], [4.0, 3.0]])
    across = fit.covariance(elsewhere, places)
    mean, error = fit.at(elsewhere)
    assert mean == pytest.approx(across @ inverse @ values)
    assert error**2 == pytest.approx(np.diag(fit.covariance(elsewhere, elsewhere) - across @ inverse @ across.T))


def test_a_jump_is_not_smoothed_away():
    truth = np.where(np.arange(11)[None, :] < 5, 0.8, 0.4) + np.zeros((9, 1))
    counted = drawn(truth, 2000, 0, list(product(range(0, 9, 2), range(11))))
    found = fit_surface(counted, SHAPE)
    assert np.abs(found.accuracy - truth)[::2].max() < 0.05


def test_accuracies_are_shares():
    fitted = fit_surface({(0, 0): Counted(50, 50), (0, 5): Counted(0, 50)}, (1, 11)).accuracy
    assert fitted.min() >= 0
    assert fitted.max() <= 1
