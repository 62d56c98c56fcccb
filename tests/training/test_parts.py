"""Recipes, settings, schedules and averages."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from shiftproof.errors import ConfigurationError
from shiftproof.training import RECIPES, recipe
from shiftproof.training.objectives import Hierarchical, ThreeWay
from shiftproof.training.schedules import SCHEDULES, rate_at
from shiftproof.training.settings import TrainingSettings
from shiftproof.training.state import Average
from shiftproof.training.tuples import Tuples


def test_the_recipes_are_the_papers():
    assert set(RECIPES) == {
        *("erm", "gaussian", "gaussian+jsd", "smoothadv", "macer", "denoiser", "ada", "rda", "rsda", "esda"),
        *("autoaugment", "autoaugment+jsd", "augmix", "augmix+jsd", "augmix+hcr"),
        *("fouriermix", "fouriermix+jsd", "fouriermix+hcr"),
        *(f"{name}{loss}" for name in ("prime", "spectra", "mixed") for loss in ("", "+jsd", "+anchor")),
    }
    assert {name: each.passes for name, each in RECIPES.items() if each.passes > 1} == {
        **{"gaussian+jsd": 2, "smoothadv": 22, "macer": 16, "ada": 18, "autoaugment+jsd": 3, "augmix+jsd": 3},
        **{"augmix+hcr": 6, "fouriermix+jsd": 3, "fouriermix+hcr": 6},
        **{
            f"{name}+{loss}": passes
            for name in ("prime", "spectra", "mixed")
            for loss, passes in (("jsd", 3), ("anchor", 2))
        },
    }
    assert recipe("jsd") is RECIPES["gaussian+jsd"]
    assert RECIPES["fouriermix+hcr"].objective == Hierarchical(lam=40, eta=10)
    assert RECIPES["macer"].defaults == {"lr": 0.01, "batch_size": 64}


def test_large_images_are_trained_on_with_the_options_for_them():
    small, large = (recipe("fouriermix+hcr").fitting(side, ()).options() for side in (32, 224))
    assert (small["lam"], small["eta"], small["augment"]) == (40, 10, "fouriermix")
    assert (large["lam"], large["eta"], large["augment"]) == (5, 5, "fouriermix[preset=imagenet]")
    given = recipe("augmix+hcr", lam=20).fitting(224, ["lam"]).options()
    assert (given["lam"], given["eta"], given["augment"]) == (20, 5, "augmix")
    assert recipe("autoaugment+jsd").fitting(224, ()).options()["augment"] == "auto_augment[policy=imagenet]"
    for each in RECIPES.values():
        each.fitting(224, ())  # its options are ones it has
        assert each.fitting(64, ()) is each


def test_options_go_where_they_belong():
    assert recipe("esda", length="3", every=0.5).tuples == Tuples("evolution", length=3, every=0.5, budget=110)
    assert recipe("fouriermix+hcr", lam="20", augment="fouriermix[preset=imagenet]").options() == {
        **{"lam": 20.0, "eta": 10.0, "copies": 2, "direction": "to_mean"},
        "augment": "fouriermix[preset=imagenet]",
    }
    with pytest.raises(ConfigurationError, match="did you mean  weight"):
        recipe("augmix+jsd", wieght=3)
    with pytest.raises(ConfigurationError, match="no options of its own"):
        recipe("erm", lam=3)
    with pytest.raises(ConfigurationError, match="a number"):
        recipe("augmix+jsd", weight="much")
    with pytest.raises(ConfigurationError, match="to_mean or from_mean"):
        recipe("augmix+hcr", direction="up")
    with pytest.raises(ConfigurationError, match="two copies"):
        recipe("gaussian+jsd", copies=1)
    for value in (2.5, math.inf, math.nan, "2.5", None):
        with pytest.raises(ConfigurationError, match="a whole number"):
            recipe("rda", per_batch=value)
    assert recipe("rda", per_batch=2.0) == recipe("rda", per_batch=2)
    assert ThreeWay(weight=3).weight == 3


@pytest.mark.parametrize(
    ("name", "given_", "used"),
    [("erm", None, 0.0), ("gaussian", None, 0.25), ("augmix", 0, 0.0), ("augmix+hcr", 0.5, 0.5)],
)
def test_noise_goes_with_the_recipe(name, given_, used):
    assert recipe(name).sigma(given_) == used


@pytest.mark.parametrize(("name", "sigma"), [("erm", 0.25), ("rda", 0.1), ("gaussian", 0), ("augmix", -0.1)])
def test_noise_that_does_not_go_with_the_recipe(name, sigma):
    with pytest.raises(ConfigurationError, match=r"noise|sigma"):
        recipe(name).sigma(sigma)


@given(st.sampled_from(sorted(SCHEDULES)), st.integers(1, 500), st.integers(0, 50))
def test_schedules_begin_at_one_and_never_rise(schedule, steps, warmup):
    warmup = min(warmup, steps - 1)
    rates = [rate_at(step, steps, schedule=schedule, warmup=warmup) for step in range(steps)]
    assert rates[warmup] == 1.0
    assert all(later <= earlier for earlier, later in pairwise(rates[warmup:]))
    assert all(later >= earlier for earlier, later in pairwise(rates[:warmup]))
    assert min(rates) >= 0


def test_the_step_schedule_falls_after_100_and_150_of_200_epochs():
    rates = [rate_at(epoch, 200, schedule="step") for epoch in (99, 100, 149, 150, 199)]
    assert rates == pytest.approx([1, 0.1, 0.1, 0.01, 0.01])


def test_the_average_follows_its_formula():
    network = nn.BatchNorm1d(1)
    average = Average(network, 0.5)
    expected = 1.0
    for step, value in enumerate([3.0, -1.0, 5.0, 2.0, 2.0, 7.0, 1.0, 4.0, 4.0, 0.0]):
        network.weight.data.fill_(value)
        network(torch.zeros(2, 1))  # counts a batch
        average.update()
        decay = min(0.5, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * value
    assert average.values["weight"].item() == pytest.approx(expected)
    assert average.values["num_batches_tracked"] == 10
    other = Average(nn.BatchNorm1d(1), 0.5)
    other.load_state_dict(average.state_dict())
    assert torch.equal(other.values["weight"], average.values["weight"])
    assert other.steps == 10


@pytest.mark.parametrize(
    "wrong",
    [
        *({"epochs": 0}, {"batch_size": 0}, {"lr": 0.0}, {"ema": 1.0}, {"clip": 0.0}, {"warmup": 200.0}),
        *({"momentum": 1.0}, {"weight_decay": -1.0}, {"schedule": "linear"}, {"optimizer": "lion"}),
        *({"precision": "int8"}, {"checkpoint_every": -1}),
    ],
)
def test_settings_out_of_range(wrong):
    with pytest.raises(ConfigurationError):
        TrainingSettings(**wrong)
