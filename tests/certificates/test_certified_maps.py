"""Certified segmentation: family-wise error by simulation, corrections against plain loops, radii that hold."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm

from shiftproof.certificates.certified_maps import (
    ABSTAIN,
    MapCertificateOptions,
    SmoothedSegmenter,
    certified_classes,
    least_copies,
    rejected,
)
from shiftproof.errors import ConfigurationError


def plain_holm(values, alpha):
    found = [False] * len(values)
    for step, place in enumerate(sorted(range(len(values)), key=lambda place: values[place])):
        if values[place] > alpha / (len(values) - step):
            break
        found[place] = True
    return found


def test_holm_is_a_plain_loop():
    rng = np.random.default_rng(0)
    for _ in range(50):
        values = rng.beta(0.2, 1.0, 40)
        assert rejected(values, 0.05).tolist() == plain_holm(values.tolist(), 0.05)
        assert (rejected(values, 0.05) >= rejected(values, 0.05, "bonferroni")).all()


@pytest.mark.parametrize("control", ["holm", "bonferroni"])
def test_no_image_has_a_false_class_more_often_than_alpha(control):
    """Images of 400 pixels, half of them at or just below tau, where the null is hardest to keep."""
    options = MapCertificateOptions(tau=0.75, testing=100, alpha=0.05, control=control)
    rng = np.random.default_rng(1)
    truth = np.concatenate([np.full(200, 0.75), rng.uniform(0.9, 1.0, 200)])
    false, certified = 0, 0
    for _ in range(2000):
        hits = rng.binomial(options.testing, truth)
        sure = certified_classes(np.zeros(400), hits, options) != ABSTAIN
        false += sure[:200].any()
        certified += sure[200:].sum()
    assert false <= 2000 * 0.05 + 3 * math.sqrt(2000 * 0.05 * 0.95)
    assert certified > 2000 * 100  # most of those that are far above tau


def test_too_few_copies_are_refused():
    options = MapCertificateOptions(testing=61)
    assert least_copies(240 * 180, 0.75, 0.001) == 62
    with pytest.raises(ConfigurationError, match="Too few noisy copies"):
        SmoothedSegmenter(lambda images: images, options).certify(torch.zeros(3, 180, 240), 0)


def test_certified_pixels_hold_within_the_radius():
    """Two classes by the sign of a pixel: the exact probability of each under noise is known, and so is the radius."""
    options = MapCertificateOptions(sigma=0.5, tau=0.75, testing=200, alpha=0.01)
    segmenter = SmoothedSegmenter(lambda images: torch.stack([-images[:, 0], images[:, 0]], 1), options)
    image = torch.linspace(-1, 1, 64).view(1, 8, 8)
    found = segmenter.certify(image, 5)
    assert found.radius == pytest.approx(0.5 * norm.ppf(0.75))
    exact = norm.cdf(image[0].abs().numpy() / 0.5)
    sure = found.classes != ABSTAIN
    assert (exact[sure] > 0.75).all()
    assert (found.classes[sure] == (image[0].numpy() > 0)[sure]).all()
    assert (image[0].abs().numpy()[sure] >= found.radius - 1e-6).all()
    assert sure[exact > 0.95].all()
    again = segmenter.certify(image, 5, batch_size=3)
    assert (again.classes == found.classes).all()
