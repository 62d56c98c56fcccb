"""The shell: a linear classifier whose true radius is known, keyed counts, and what is refused."""

import shutil
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import binomtest
from torch import nn

import shiftproof
from shiftproof.adapters import adapt
from shiftproof.certificates import ABSTAIN, Fixed, Smoothed, lower_bound, radius
from shiftproof.certificates.sampling import Sampler, sample_keys
from shiftproof.errors import ConfigurationError, DataError, ModelError
from shiftproof.keyed import Keyed

SHAPE = (1, 4, 4)
SIGMA = 0.25


class Linear(nn.Module):
    """Two classes on the sides of a plane; `distance` is how far an image is from it."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, 16))

    def forward(self, images):
        side = (images.flatten(1) - 0.5) @ self.weight
        return torch.stack([-side, side], 1)

    def distance(self, images):
        return ((images.flatten(1) - 0.5) @ self.weight / self.weight.norm()).detach()


def at_distances(distances):
    """Images so far on the positive side of the plane."""
    direction = Linear().weight.detach() / Linear().weight.detach().norm()
    return 0.5 + torch.tensor(distances)[:, None, None, None] * direction.view(SHAPE)


@pytest.fixture(scope="module")
def linear():
    return Linear().eval()


@pytest.mark.parametrize("rule", ["fixed", "sequential"])
def test_a_linear_classifiers_radius_nears_its_distance_from_below(linear, rule):
    images = at_distances([0.05, 0.1, 0.2, 0.4, 0.6] * 4)
    truth = linear.distance(images)
    coarse, fine = (
        Smoothed(linear, SIGMA, batch_size=1000).certify(images, keys=range(20), n=n, rule=rule) for n in (1000, 40_000)
    )
    for found in (coarse, fine):
        assert all(each.radius <= distance for each, distance in zip(found, truth, strict=True))
        assert {each.prediction for each in found} <= {1, ABSTAIN}
    loss = [
        np.mean([distance - each.radius for each, distance in zip(found, truth, strict=True)])
        for found in (coarse, fine)
    ]
    assert loss[1] < loss[0]
    assert loss[1] < 0.1 * SIGMA


def test_a_linear_classifier_is_asked_for_a_radius(linear):
    images = at_distances([0.1, 0.2, 0.3, 0.4])
    found = Smoothed(linear, SIGMA).certify(images, rule="radius", radius=0.25, n=20_000)
    assert [each.radius for each in found] == [0, 0, 0.25, 0.25]
    assert [each.prediction for each in found] == [ABSTAIN, ABSTAIN, 1, 1]
    assert all(each.samples < 5000 for each in found)


def test_radii_are_the_closed_form_of_the_counts(linear):
    for each in Smoothed(linear, SIGMA).certify(at_distances([0.1, 0.3]), n=2000, alpha=0.01, rule="fixed"):
        assert each.radius == radius(lower_bound(each.hits, 2000, 0.01), SIGMA)
        assert each.samples == 2000


def test_counts_are_those_of_a_plain_loop(linear):
    """The noise of sample j of an image is a function of (seed, key, j): draw it one sample at a time and count."""
    images = at_distances([0.02, 0.1])
    (first, second) = Smoothed(linear, SIGMA, seed=3).certify(
        images, keys=[5, 9], n0=10, n=200, rule=Fixed(sigma=SIGMA, n=200)
    )
    for image, key, found in zip(images, (5, 9), (first, second), strict=True):
        hits = 0
        for sample in range(10, 210):
            mixed = sample_keys(np.array([key], np.uint64), np.array([sample])).view(np.int64)
            noise = Keyed(3, torch.from_numpy(mixed), path="smoothing").normal(std=SIGMA, shape=SHAPE)
            hits += int(linear(image + noise).argmax()) == found.guess
        assert found.hits == hits


def test_samples_of_an_image_have_independent_standard_noise(linear):
    keys = sample_keys(np.zeros(4000, np.uint64), np.arange(4000))
    assert len(np.unique(keys)) == 4000
    noise = Keyed(0, torch.from_numpy(keys.view(np.int64)), path="smoothing").normal(shape=(3, 16, 16)).flatten(1)
    assert noise.mean().item() == pytest.approx(0, abs=5e-3)
    assert noise.std().item() == pytest.approx(1, abs=5e-3)
    assert (noise[:-1] * noise[1:]).mean().item() == pytest.approx(0, abs=5e-3)


@pytest.mark.parametrize("batch_size", [1, 7, 64, 1000])
def test_batch_size_order_and_company_do_not_change_certificates(linear, batch_size):
    images = at_distances([0.0, 0.05, 0.1, 0.2, 0.3, 0.5])
    keys = torch.arange(6) * 7
    options: dict[str, Any] = {"n0": 20, "n": 300, "rule": "sequential"}
    whole = Smoothed(linear, SIGMA).certify(images, keys=keys, **options)
    smoothed = Smoothed(linear, SIGMA, batch_size=batch_size)
    assert smoothed.certify(images, keys=keys, **options) == whole
    assert smoothed.certify(images.flip(0), keys=keys.flip(0), **options) == whole[::-1]
    alone = [smoothed.certify(images[[i]], keys=keys[[i]], **options)[0] for i in range(6)]
    assert alone == whole


def test_batch_size_does_not_change_the_counts_of_a_network():
    model = shiftproof.load_model("demo")
    (batch,) = shiftproof.load_data("demo").take(3).batches(3)
    found = [
        Smoothed(model, 0.05, batch_size=size).certify(batch.inputs, keys=batch.keys, n0=20, n=60) for size in (16, 48)
    ]
    assert found[0] == found[1]
    assert len({each.hits for each in found[0]}) > 1


def test_every_batch_has_the_same_shape(linear):
    shapes = set()

    def model(images):
        shapes.add(tuple(images.shape))
        return linear(images)

    sampler = Sampler(
        model,
        at_distances([0.1, 0.2, 0.3]),
        torch.arange(3),
        sigma=SIGMA,
        seed=0,
        batch_size=32,
        device=torch.device("cpu"),
    )
    for image in range(3):
        sampler.ask(image, 0, 41)
    while sampler.waiting:
        sampler.run()
    assert shapes == {(32, *SHAPE)}
    assert sampler.take([0, 1, 2]).sum(1).tolist() == [41, 41, 41]
    assert sampler.take([0, 1, 2]).sum() == 0
    assert sampler.batches == 4


def test_labels_spare_the_samples_of_wrong_guesses(linear):
    images = at_distances([0.5, 0.5])
    right, skipped = Smoothed(linear, SIGMA).certify(images, [1, 0], n=1000)
    assert right.prediction == 1
    assert not right.skipped
    assert (skipped.skipped, skipped.samples, skipped.radius, skipped.guess) == (True, 0, 0.0, 1)


def test_predict_settles_what_is_clear_and_abstains_from_the_rest(linear):
    images = at_distances([0.5, -0.5, 0.0])
    predicted = Smoothed(linear, SIGMA).predict(images, keys=[1, 2, 3], n=200, seed=0)
    assert predicted.tolist() == [1, 0, ABSTAIN]


def test_served_noise_cannot_be_foreseen(linear):
    """One image that lies on the edge: with noise that is known, it would be answered alike every time."""
    smoothed = Smoothed(linear, SIGMA)
    image = at_distances([0.05])
    answers = [int(smoothed.predict(image, n=100, alpha=0.05)) for _ in range(40)]
    assert 1 in answers
    assert ABSTAIN in answers
    again = {int(smoothed.predict(image, n=100, alpha=0.05, seed=7)) for _ in range(5)}
    assert len(again) == 1


def test_an_attacker_who_knows_the_code_finds_nothing_worse_than_chance(linear):
    """He tries images within the certified distance at home, under the seed he guesses, and keeps the wrong ones."""
    direction = linear.weight.detach() / linear.weight.norm().detach()
    across = torch.randn(4000, 16, generator=torch.Generator().manual_seed(0))
    across -= (across @ direction)[:, None] * direction  # along the plane: all images are equally far from it
    tried = at_distances([0.002]) + 0.02 * across.view(-1, *SHAPE)
    smoothed = Smoothed(linear, SIGMA, batch_size=4096)
    guessed = [smoothed.predict(tried, n=200, alpha=0.05, seed=0) for _ in range(2)]
    kept = tried[guessed[0] == 0]
    assert torch.equal(guessed[0], guessed[1])
    assert len(kept) > 40  # under a seed that is known the attack works: each of these is wrong every time
    served = torch.stack([smoothed.predict(kept, n=200, alpha=0.05) for _ in range(20)])
    wrong = int((served == 0).sum())
    assert binomtest(wrong, served.numel(), 0.05, alternative="greater").pvalue > 1e-6
    assert (served == 0).float().mean(0).max() < 0.5  # and no single image is


def test_predict_is_wrong_as_seldom_as_it_says(linear):
    images = at_distances([0.005]).expand(2000, -1, -1, -1)
    predicted = Smoothed(linear, SIGMA, batch_size=4096).predict(images, keys=range(2000), n=60, alpha=0.1, seed=0)
    assert (predicted == 0).float().mean() < 0.1
    assert (predicted == ABSTAIN).float().mean() > 0.5


def test_reduced_precision_certifies_a_copy(linear):
    smoothed = Smoothed(linear, SIGMA, dtype="bfloat16")
    found = smoothed.certify(at_distances([0.4]), n=500)
    assert found[0].prediction == 1
    assert linear.weight.dtype == torch.float32
    assert smoothed.dtype == torch.bfloat16


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the compiler's own
@pytest.mark.skipif(shutil.which("g++") is None, reason="compiling for a CPU needs a C++ compiler")
def test_a_compiled_model_gives_the_same_certificates(linear):
    images = at_distances([0.1, 0.3])
    compiled = Smoothed(linear, SIGMA, compile=True).certify(images, keys=[0, 1], n=500)
    plain = Smoothed(linear, SIGMA).certify(images, keys=[0, 1], n=500)
    assert [each.hits for each in compiled] == pytest.approx([each.hits for each in plain], abs=1)


def test_half_precision_models_are_taken_as_they_are():
    model = Linear().to(torch.bfloat16).eval()
    assert Smoothed(model, SIGMA).certify(at_distances([0.4]), n=500)[0].prediction == 1


class Noisy(nn.Module):
    def forward(self, images):
        return torch.randn(len(images), 3)


class Growing:
    """Learns from every call, and says nothing about it."""

    def __init__(self):
        self.calls = 0

    def __call__(self, images):
        self.calls += 1
        return images.flatten(1)[:, :3] * self.calls


def relative(images):
    return images.flatten(1)[:, :3] - images.flatten(1)[:, :3].mean(0)


def sometimes_nan(images):
    """NaN where a value leaves [0, 1], as a logarithm gives."""
    return torch.stack([images.flatten(1).log().mean(1), images.flatten(1).mean(1)], 1)


def network():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Dropout(0.5), nn.Flatten(), nn.Linear(8 * 36, 3))


def dropout_on():
    made = network().eval()
    made[2].train()
    return made


REFUSED = {
    "adapts": (lambda: adapt(network().eval(), "bn"), "adapts"),
    "adapts inside": (lambda: nn.Sequential(adapt(network().eval(), "tent")).eval(), "adapts"),
    "training mode": (network, "training mode"),
    "dropout on": (dropout_on, "training mode"),
    "traced with dropout on": (lambda: torch.fx.symbolic_trace(dropout_on()), "training mode"),
    "stochastic": (lambda: Noisy().eval(), "stochastic"),
    "learns unseen": (Growing, "stochastic"),
    "batch statistics": (lambda: relative, "rest of the batch"),
    "nan under noise": (lambda: sometimes_nan, "not finite"),
    "wrong shape": (lambda: lambda images: images, "shape"),
    "no tensor": (lambda: lambda images: "cat", "tensor"),
    "fails": (lambda: lambda images: images @ torch.ones(99, 99), "failed"),
}


@pytest.mark.parametrize(("make", "says"), REFUSED.values(), ids=REFUSED.keys())
def test_models_that_cannot_be_certified_are_refused(make, says):
    images = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0)) * 0.9 + 0.05
    with pytest.raises(ModelError, match=says):
        Smoothed(make(), SIGMA).certify(images, n=100)


def test_a_model_switched_to_training_later_is_refused():
    made = network().eval()
    smoothed = Smoothed(made, SIGMA)
    images = torch.rand(2, 3, 8, 8)
    smoothed.certify(images, n=100)
    before = made[1].running_mean.clone()
    made.train()
    for act in (smoothed.certify, smoothed.predict):
        with pytest.raises(ModelError, match="training mode"):
            act(images, n=100)
    assert torch.equal(made[1].running_mean, before)


@pytest.mark.parametrize("scaled", [lambda x: (x - 0.5) / 0.25, lambda x: x * 255], ids=["normalised", "0 to 255"])
def test_images_on_another_scale_are_refused(linear, scaled):
    images = scaled(torch.rand(2, *SHAPE, generator=torch.Generator().manual_seed(0)))
    for act in (Smoothed(linear, SIGMA).certify, Smoothed(linear, SIGMA).predict):
        with pytest.raises(DataError, match="Normalize"):
            act(images, n=100)


def test_options_beside_a_rule_are_refused(linear):
    rule = Fixed(sigma=SIGMA, n=200)
    with pytest.raises(ConfigurationError, match="cannot be combined"):
        Smoothed(linear, SIGMA).certify(at_distances([0.1]), n=500, rule=rule)


def test_an_adapter_is_refused_before_it_learns():
    adapter = adapt(network().eval(), "tent")
    with pytest.raises(ModelError, match="freeze"):
        Smoothed(adapter, SIGMA)
    assert adapter.steps == 0


def test_bad_numbers_are_refused(linear):
    images = at_distances([0.1])
    options: dict[str, Any]
    for options in ({"n0": 0}, {"n0": 2000}, {"n": 5}, {"alpha": 2.0}, {"rule": "fixd"}):
        with pytest.raises(ConfigurationError):
            Smoothed(linear, SIGMA).certify(images, **({"n": 1000} | options))
    for options in ({"sigma": 0.0}, {"sigma": -1.0}, {"batch_size": 0}, {"dtype": "int8"}):
        with pytest.raises(ConfigurationError):
            Smoothed(linear, **({"sigma": SIGMA} | options))
    with pytest.raises(ConfigurationError, match="PyTorch module"):
        Smoothed(relative, SIGMA, dtype="bfloat16")
    with pytest.raises(ConfigurationError, match="different noise"):
        Smoothed(linear, SIGMA).certify(images, rule=Fixed(sigma=0.5))
    for bad in (torch.rand(4, 4), torch.zeros(1, *SHAPE, dtype=torch.uint8)):
        with pytest.raises(DataError):
            Smoothed(linear, SIGMA).certify(bad)
    with pytest.raises(DataError, match="label"):
        Smoothed(linear, SIGMA).certify(images, [0, 1], n=100)
    with pytest.raises(DataError, match="key"):
        Smoothed(linear, SIGMA).certify(images, keys=[0, 1], n=100)


def test_no_images_no_certificates(linear):
    assert Smoothed(linear, SIGMA).certify(at_distances([0.1])[:0], n=100) == []
    assert Smoothed(linear, SIGMA).predict(at_distances([0.1])[:0]).shape == (0,)
