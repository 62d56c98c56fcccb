"""Rotation and scaling: the bound between points of a grid is one, and no image of a certified range changes class."""

from typing import Any

import numpy as np
import pytest
import torch

import shiftproof
from shiftproof.certificates import ABSTAIN, Smoothed, certify
from shiftproof.certificates.covering import certify_covered, cover, warped
from shiftproof.certificates.rules import Grid, make_rule, rule_of
from shiftproof.errors import ConfigurationError

RANGES = {"rotation": 4.0, "scaling": 0.08}


def some_images(count=3, side=16):
    (batch,) = shiftproof.load_data("demo").subset(range(count)).batches(count)
    return torch.nn.functional.interpolate(batch.inputs, size=(side, side), mode="area")


class Halves(torch.nn.Module):
    """Is the image's middle brighter than a level? A linear classifier: smoothed with Gaussian noise it is the same."""

    def __init__(self, side, level):
        super().__init__()
        weight = torch.zeros(3, side, side)
        weight[:, side // 4 : -side // 4, side // 8 : side // 2] = 1
        weight[:, side // 4 : -side // 4, side // 2 : -side // 8] = -1
        self.weight = torch.nn.Parameter(weight / weight.norm(), requires_grad=False)
        self.level = level

    def forward(self, images):
        side = (images * self.weight).sum((1, 2, 3)) - self.level
        return torch.stack([-side, side], 1)


@pytest.mark.parametrize("against", RANGES)
def test_the_bound_is_one_and_not_far_from_the_truth(against):
    noise = torch.rand(1, 11, 14, generator=torch.Generator().manual_seed(0))
    for image in (*some_images(2), noise):
        made = cover(image, against, RANGES[against], 0.25)
        truth = 0.0
        for low, high in zip(made.points[:-1:3], made.points[1::3], strict=False):
            inside = warped(image, against, torch.linspace(low, high, 41, dtype=torch.float64)).flatten(1)
            away = torch.minimum((inside - inside[:1]).norm(dim=1), (inside - inside[-1:]).norm(dim=1))
            truth = max(truth, float(away.max()))
        assert truth <= made.distance <= 2.5 * truth + 0.01


def test_nothing_moves_in_the_middle_of_a_range():
    (image,) = some_images(1)
    for against in RANGES:
        assert torch.equal(warped(image, against, torch.zeros(1))[0], image)
    quarter = warped(image, "rotation", torch.tensor([90.0]))[0]
    assert min(float((quarter - torch.rot90(image, k, (1, 2))).abs().max()) for k in (1, 3)) < 1e-4


def changes_within(images, against, limit, level, sigma=0.25, **options):
    """Certify ranges of images, then look at a dense grid within each: [(range, whether a class changes)]."""
    side = images.shape[-1]
    model = Halves(side, level).eval()
    smoothed = Smoothed(model, sigma, batch_size=512)
    rule = make_rule("sequential", sigma=sigma, n=2000, alpha=0.05, radius=limit, against=against, **options)
    assert isinstance(rule, Grid)
    found = []
    for key, image in enumerate(images):
        made = certify_covered(smoothed, image, key, None, rule, n0=20)
        dense = torch.linspace(-made.radius, made.radius, 101, dtype=torch.float64)
        classes = model(warped(image, against, dense)).argmax(1)
        found.append((made, bool((classes != made.prediction).any()) and made.radius > 0))
    return found


@pytest.mark.parametrize("against", RANGES)
def test_no_class_changes_within_a_certified_range(against):
    found = changes_within(some_images(4), against, RANGES[against] / 4, 0.0)
    assert not any(changed for _, changed in found)
    assert any(made.radius > 0 for made, _ in found)


@pytest.mark.slow
@pytest.mark.parametrize("against", RANGES)
def test_no_class_changes_within_two_hundred_certified_ranges(against):
    images = some_images(400, 12)
    found = changes_within(images, against, RANGES[against], 0.0)
    certified = [changed for made, changed in found if made.radius > 0]
    assert len(certified) >= 200
    assert sum(certified) == 0  # alpha is .05 for each; the union over points leaves much of it unused


def test_a_range_ends_where_the_class_does():
    """The classifier's level is one that the image crosses when it is turned: the range stays this side of it."""
    (image,) = some_images(1)
    angles = torch.linspace(-20, 20, 401, dtype=torch.float64)
    values = (warped(image, "rotation", angles) * Halves(16, 0.0).weight).sum((1, 2, 3))
    upright = float(values[200])
    away = (values - upright).abs()
    level = upright + (0.6 * float(away.max()) if values[int(away.argmax())] > upright else -0.6 * float(away.max()))
    crossed = ((values > level) != (upright > level)).nonzero()[:, 0]
    truth = float(angles[crossed].abs().min())
    ((made, changed),) = changes_within(image[None], "rotation", 20.0, level, sigma=0.1)
    assert not changed
    assert made.radius < truth + 0.1
    options: dict[str, Any] = {"sigma": 0.1, "n": 2000, "radius": 20.0, "against": "rotation"}
    whole = make_rule("radius", **options)
    smoothed = Smoothed(Halves(16, level).eval(), 0.1, batch_size=512)
    nothing = certify_covered(smoothed, image, 0, None, whole, n0=20)  # type: ignore[arg-type]
    assert (nothing.radius, nothing.prediction) == (0.0, ABSTAIN)


def test_the_verb_covers_ranges_and_resumes(tmp_path):
    images = some_images(3)
    options: dict[str, Any] = {"against": "rotation", "radius": 1.0, "n": 1000, "alpha": 0.01, "n0": 20}
    found = certify(Halves(16, 0.0).eval(), images, out=tmp_path, **options)
    assert set(np.round(found.radii, 6)) <= {0.0, 1.0} or found.radii.max() <= 1.0
    assert "turned about its centre" in found.guarantee()
    assert certify(Halves(16, 0.0).eval(), images, out=tmp_path, **options) == found
    assert rule_of(found.terms.rule) == make_rule(
        "sequential", sigma=0.25, n=1000, alpha=0.01, radius=1.0, against="rotation"
    )
    with pytest.raises(ConfigurationError, match="range"):
        certify("demo", "demo", against="scaling", radius=1.5)
