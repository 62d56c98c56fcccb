"""Label shift against what is known by construction."""

import numpy as np
import pytest

from shiftproof.errors import DataError
from shiftproof.measures.estimation import fit_temperature
from shiftproof.measures.label_shift import (
    adjusted,
    bbse_mix,
    effective,
    em_mix,
    fit_scaling,
    mix_explains,
    output_scores,
    to_source_mix,
    weighted_ks,
)

CLASSES = 4


def draw(count, mix, seed, spread=1.2, biases=0.0):
    """Draw labels in a mix, and logits of Gaussian features for which the Bayes posterior is known."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(CLASSES, count, p=mix)
    features = np.eye(CLASSES)[labels] * 2 + spread * rng.normal(size=(count, CLASSES))
    return features * 2 / spread**2 + biases, labels


EVEN = np.full(CLASSES, 1 / CLASSES)
SKEWED = np.array([0.6, 0.25, 0.1, 0.05])


def test_scaling_undoes_a_temperature_and_biases():
    logits, labels = draw(20_000, EVEN, 0)
    moved = logits * 3 + np.array([1.0, 0, -1, 0])
    found = fit_scaling(moved, labels, pull=0.0)
    assert found.temperature == pytest.approx(3, rel=0.05)
    np.testing.assert_allclose(found.biases, -np.array([1.0, 0, -1, 0]) / 3, atol=0.05)
    plain = fit_scaling(logits, labels)
    assert plain.temperature == pytest.approx(fit_temperature(logits, labels), rel=0.02)
    right = logits.argmax(1)
    assert fit_scaling(logits, right).temperature == pytest.approx(1, abs=1e-4)  # nothing is wrong


def test_em_and_bbse_find_the_mix():
    source, labels = draw(4000, EVEN, 1)
    scaling = fit_scaling(source, labels)
    p, q = scaling(source), scaling(draw(4000, SKEWED, 2)[0])
    assert np.abs(em_mix(q, p.mean(0)) - SKEWED).sum() / 2 < 0.03
    by_confusion = bbse_mix(p, labels, q)
    assert np.abs(by_confusion.mix - SKEWED).sum() / 2 < 0.03
    assert 0.2 < by_confusion.least_singular < 1
    np.testing.assert_allclose(em_mix(p, p.mean(0)), p.mean(0))  # nothing shifted: exactly the same


def test_adjusted_probabilities_are_calibrated_on_the_target():
    source, labels = draw(8000, EVEN, 3)
    target, truth = draw(8000, SKEWED, 4)
    scaling = fit_scaling(source, labels)
    posteriors = adjusted(scaling(target), EVEN, SKEWED)
    answers = posteriors.argmax(1)
    assert posteriors.max(1).mean() == pytest.approx((answers == truth).mean(), abs=0.01)
    weights = to_source_mix(posteriors, EVEN, SKEWED)
    assert weights.mean() == pytest.approx(1)
    brought = np.average(target, axis=0, weights=weights)  # inputs come as often as in the source
    np.testing.assert_allclose(brought, source.mean(0), atol=0.12)
    assert np.abs(target.mean(0) - source.mean(0)).max() > 0.9
    assert effective(weights) < 8000 == effective(np.ones(8000))


def test_weighted_ks_is_scipys_without_weights():
    from scipy.stats import ks_2samp

    rng = np.random.default_rng(0)
    one, other = rng.normal(size=300), rng.normal(0.2, 1, 200)
    expected = ks_2samp(one, other, method="asymp").pvalue
    assert weighted_ks(one, np.ones(300), other) == pytest.approx(expected, rel=0.15)


def test_the_residual_test_tells_a_mix_from_more_than_a_mix():
    source, labels = draw(500, EVEN, 0)
    scaling = fit_scaling(source, labels)
    scores = output_scores(source, scaling)

    def explained(logits):
        mix = em_mix(scaling(logits), scaling(source).mean(0))
        return mix_explains(scores, labels, mix / scaling(source).mean(0), output_scores(logits, scaling)) >= 0.05

    same = [explained(draw(400, SKEWED, seed)[0]) for seed in range(10, 40)]
    worse = [explained(draw(400, SKEWED, seed, spread=2.5)[0]) for seed in range(40, 60)]
    assert sum(same) >= 27  # 95% of 30 is 28.5
    assert sum(worse) <= 1


def test_shapes_that_do_not_fit_are_told():
    with pytest.raises(DataError, match="do not fit"):
        em_mix(np.ones((3, 2)) / 2, np.ones(3) / 3)


def test_classes_that_are_all_but_gone_weigh_as_much_as_any_may():
    posteriors = np.array([[1.0, 0, 0, 0], [0, 1.0, 0, 0]])
    weights = to_source_mix(posteriors, EVEN, np.array([1.0 - 1e-310, 1e-310, 0.0, 0.0]))
    assert weights[1] / weights[0] == pytest.approx(10 / 0.25)


def test_a_mix_of_classes_that_the_source_lacks_explains_nothing():
    rng = np.random.default_rng(0)
    scores, labels = rng.normal(size=(40, 3)), np.zeros(40, np.int64)
    for nearly_none in (0.0, 1e-200):  # what is left of a class after many steps of EM; its square is 0
        assert mix_explains(scores, labels, np.array([nearly_none, 2.0]), rng.normal(size=(50, 3))) == 0.0


def test_how_many_inputs_weights_are_worth_does_not_depend_on_their_scale():
    weights = np.array([1.0, 2.0, 3.0])
    assert effective(1e-200 * weights) == pytest.approx(effective(weights)) == pytest.approx(36 / 14)
