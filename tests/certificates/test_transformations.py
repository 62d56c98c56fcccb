"""Smoothing over a transformation: what composes, what is refused, and claims against classifiers that are known."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import binomtest, norm
from torch.nn import functional

import shiftproof
from shiftproof.certificates import Smoothed, certify
from shiftproof.certificates.laws import law_of
from shiftproof.certificates.transformations import (
    TRANSFORMATIONS,
    Blur,
    BrightnessChange,
    Translation,
    check_resolvable,
    cosines,
)
from shiftproof.errors import ConfigurationError

SIDE = 8
SCALES = {"brightness": 0.1, "contrast+brightness": 0.2, "blur": 2.0, "translation": 0.8}


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 9, 14)])
@pytest.mark.parametrize("name", SCALES)
def test_two_are_one(name, shape):
    check_resolvable(TRANSFORMATIONS[name], shape, SCALES[name])


class Clipped(BrightnessChange):
    name = "clipped"

    def apply(self, prepared, parameters):
        return super().apply(prepared, parameters).clamp(0, 1)


class Padded(Translation):
    name = "padded"

    def apply(self, prepared, parameters):
        moved = [
            functional.pad(image, (9, 9, 9, 9))[:, 9 - int(dy) :, 9 - int(dx) :][:, : image.shape[1], : image.shape[2]]
            for image, (dy, dx) in zip(prepared, parameters.clamp(-4, 4).tolist(), strict=True)
        ]
        return torch.stack(moved)


class SampledKernel(Blur):
    name = "sampled"

    def prepared(self, images):
        return images

    def apply(self, prepared, parameters):
        places = torch.arange(-4, 5).float()
        made = []
        for image, variance in zip(prepared, parameters[:, 0].tolist(), strict=True):
            kernel = torch.exp(-places.square() / (2 * max(variance, 1e-6)))
            kernel /= kernel.sum()
            both = (kernel[:, None] * kernel)[None, None].expand(image.shape[0], 1, 9, 9)
            made.append(functional.conv2d(functional.pad(image[None], (4,) * 4, "reflect"), both, groups=len(image))[0])
        return torch.stack(made)


@pytest.mark.parametrize(("phi", "scale"), [(Clipped(), 0.3), (Padded(), 2.0), (SampledKernel(), 0.3)])
def test_what_does_not_compose_is_refused(phi, scale):
    with pytest.raises(ConfigurationError, match="void"):
        check_resolvable(phi, (3, 32, 32), scale)


def test_blur_is_a_blur():
    dot = torch.zeros(1, 1, 33, 33)
    dot[0, 0, 16, 16] = 1
    for variance in (0.3, 2.0, 6.0):
        made = Blur()(dot, torch.tensor([[variance]]))[0, 0].double()
        places = torch.arange(33).double() - 16
        assert made.min() > -1e-6
        assert float(made.sum()) == pytest.approx(1, abs=1e-5)
        assert float((made.sum(1) * places.square()).sum()) == pytest.approx(variance, rel=2e-3)
    assert torch.allclose(cosines(7, torch.device("cpu")) @ cosines(7, torch.device("cpu")).T, torch.eye(7), atol=1e-6)


def test_room_is_where_values_stay_in_range():
    images = torch.rand(5, 3, 8, 8, generator=torch.Generator().manual_seed(0)) * 0.5 + 0.2
    for name in ("brightness", "contrast+brightness"):
        phi, room = TRANSFORMATIONS[name], TRANSFORMATIONS[name].room(images).float()
        for sign in (-1.0, 1.0):
            changes = sign * room[:, None]
            if name != "brightness":
                changes = torch.cat([(1 + room).log()[:, None], changes], 1)
            made = phi(images, changes)
            assert made.min() > -1e-5
            assert made.max() < 1 + 1e-5
    assert Translation().room(images).isinf().all()


# Classifiers that read the parameter off an image, and change their mind at a value of it.


def brightness_at(t):
    return lambda x: _two(t - (x.mean((1, 2, 3)) - 0.5))


def contrast_at(t):
    return lambda x: _two(t - x.flatten(1).std(1).div(STANDARD).log())


def shift_at(t):
    places = torch.arange(SIDE)
    return lambda x: _two(t + 0.5 - ((x[:, 0].sum(2) * places).sum(1) - SIDE // 2))


def blur_at(t):
    rows = cosines(SIDE, torch.device("cpu"))
    fall = math.cos(math.pi / SIDE) - math.cos(3 * math.pi / SIDE)

    def scores(x):
        found = (rows @ x.mean((1, 3))[:, :, None])[:, :, 0]
        variance = (WAVES - (found[:, 3] / found[:, 1]).clamp(min=1e-12).log()) / fall
        return _two(t - variance)

    return scores


def _two(side):
    return torch.stack([side, torch.zeros_like(side)], 1)


GREY = torch.full((1, 1, SIDE, SIDE), 0.5)
CHECKED = GREY + 0.2 * torch.tensor([1.0, -1.0]).repeat(SIDE // 2)
STANDARD = float(CHECKED.flatten(1).std(1))
DOT = functional.pad(torch.ones(1, 1, 1, 1), (SIDE // 2, SIDE // 2 - 1, SIDE // 2, SIDE // 2 - 1))
_RAMP = (cosines(SIDE, torch.device("cpu"))[1] + cosines(SIDE, torch.device("cpu"))[3]) * 0.4
WAVY = 0.5 + _RAMP[None, None, :, None].expand(1, 1, SIDE, SIDE)
WAVES = 0.0
"""The logarithm of the ratio of the two waves of `WAVY`."""


def _chance(name, t, scale):
    """Return the probability of the class, and the range within which it is the smoothed classifier's."""
    if name == "blur":
        return 1 - math.exp(-t / scale), t - scale * math.log(2)
    if name == "translation":
        return float(norm.cdf((t + 0.5) / scale)), t + 0.5  # shifts are rounded
    return float(norm.cdf(t / scale)), t


CASES: dict[str, tuple[Any, torch.Tensor, tuple[float, ...]]] = {
    "brightness": (brightness_at, GREY, (0.01, 0.05, 0.1, 0.2)),
    "contrast+brightness": (contrast_at, CHECKED, (0.02, 0.1, 0.2, 0.4)),
    "blur": (blur_at, WAVY, (1.6, 2.5, 5.0)),
    "translation": (shift_at, DOT, (0.0, 1.0, 2.0)),
}


def violations(name, t, runs, n, rule="fixed"):
    """Certify one image so often, each time with other noise: how often more than its true range is claimed."""
    at, image, _ = CASES[name]
    scale = SCALES[name]
    p, truth = _chance(name, t, scale)
    smoothed = Smoothed(at(t), scale, against=name, batch_size=2048)
    found = smoothed.certify(image.expand(runs, -1, -1, -1), keys=range(runs), n0=10, n=n, alpha=0.05, rule=rule)
    share = sum(each.hits for each in found if each.guess == 0) / max(1, sum(e.samples for e in found if e.guess == 0))
    claimed = np.array([each.radius if each.prediction == 0 else 0.0 for each in found])
    if name == "contrast+brightness":
        claimed = np.log1p(claimed)
    return int((claimed > truth + 1e-9).sum()), share, p, claimed


@pytest.mark.parametrize("name", CASES)
def test_claims_stay_within_the_true_range(name):
    t = CASES[name][2][2]
    wrong, share, p, claimed = violations(name, t, 200, 200)
    assert share == pytest.approx(p, abs=0.01)  # the noise is what the law says
    assert binomtest(wrong, 200, 0.05, alternative="greater").pvalue > 1e-4
    if name != "contrast+brightness":  # of which this classifier is not the worst
        assert claimed.max() > 0.6 * float(law_of(name).reach(p, SCALES[name]))


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["fixed", "sequential"])
@pytest.mark.parametrize("n", [100, 400])
@pytest.mark.parametrize("name", CASES)
def test_coverage_by_simulation(name, n, rule):
    for t in CASES[name][2]:
        wrong, share, p, _ = violations(name, t, 2000, n, rule)
        assert share == pytest.approx(p, abs=0.005)
        assert binomtest(wrong, 2000, 0.05, alternative="greater").pvalue > 1e-4, t


def test_certify_against_a_transformation(tmp_path):
    options: dict[str, Any] = {"n0": 20, "n": 100, "alpha": 0.01, "images": 6, "out": tmp_path}
    found = certify("demo", "demo", against="brightness", **options)
    assert found.accuracy(0.05).value > 0.5
    content = found.to_json()
    assert content["terms"]["against"] == "brightness"
    assert "between -`radius` and `radius` (brightness), without clipping" in content["guarantee"]
    assert any("clipping" in each for each in content["not_guaranteed"])
    assert content["numbers"]["unclipped_at"]["0.05"] <= content["numbers"]["certified_accuracy_at"]["0.05"]
    assert certify("demo", "demo", against="brightness", **options) == found  # resumed
    (batch,) = shiftproof.load_data("demo").subset([0]).batches(1)
    assert int(Smoothed(shiftproof.load_model("demo"), 1.0, against="translation").predict(batch.inputs, n=40)) >= -1


def test_the_rule_radius_asks_for_a_range():
    found = certify(brightness_at(0.2), GREY, against="brightness", rule="radius", radius=0.1, alpha=0.01)
    assert found.radii.tolist() == [0.1]
    assert certify(brightness_at(0.05), GREY, against="brightness", rule="radius", radius=0.1).radii.tolist() == [0]
