"""Names, options, presets and facts of the methods, and the models that are refused."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any, cast

import pytest
import torch
from torch import nn

from shiftproof.adapters import METHODS, adapt, choose_preset, facts, method
from shiftproof.adapters.method import PRESETS
from shiftproof.errors import ConfigurationError, ModelError, ShiftproofError
from tests.adapters.networks import Flat, convolutional, stream


def options(name: str, preset: str | None = None, variant: str = "paper", **given: object) -> Any:
    return method(name).options(preset, variant, given)


@pytest.mark.parametrize("name", METHODS)
def test_facts_are_complete(name: str) -> None:
    chosen = method(name)
    assert chosen.name == name
    assert chosen.paper
    assert set(chosen.presets) <= set(PRESETS)
    known = chosen.defaults.to_dict().keys()
    for changes in (*chosen.presets.values(), chosen.release):
        assert set(changes) <= known
    for preset in PRESETS:
        for variant in ("paper", "release"):
            assert chosen.options(preset, variant, {}).to_dict().keys() == known
    if chosen.release:
        assert chosen.departures, "what the release does differently is to be said"


def test_rows_for_the_listing() -> None:
    rows = {row.name: row for row in facts()}
    assert list(rows) == list(METHODS)
    assert rows["rdumb"].paper == "Press et al. 2023"
    assert "reset=every(1000)" in rows["rdumb"].defaults
    assert "reset=guard" in rows["guard"].defaults
    assert rows["source"].needs == "outputs alone"
    assert rows["t3a"].needs.startswith("features")
    assert "gradients" in rows["tent"].needs
    assert all(isinstance(cell, str) for row in rows.values() for cell in row)


def test_presets_and_given_options() -> None:
    cotta = partial(options, "cotta")
    assert cotta().confidence == 0.1
    assert cotta("cifar").confidence == 0.92
    hundred = cotta("cifar100", restore=0.5)
    assert (hundred.confidence, hundred.optimizer, hundred.restore) == (0.72, "adam", 0.5)
    assert cotta(variant="release").average == "logits"
    assert options("tent", "imagenet").lr == 2.5e-4


@pytest.mark.parametrize("name", ["tent", "eta", "eata", "rdumb", "guard", "roid", "cmf", "deyo"])
def test_rates_are_the_published_ones(name: str) -> None:
    for preset, expected in (("imagenet", ("sgd", 2.5e-4)), ("cifar", ("adam", 1e-3)), ("cifar100", ("adam", 1e-3))):
        chosen = options(name, preset)
        assert (chosen.optimizer, chosen.lr) == expected
    assert options("sar", "cifar").lr == 1e-3


@pytest.mark.parametrize(
    ("norm", "classes", "expected"),
    [
        (nn.BatchNorm2d(3), 2, "cifar"),
        (nn.BatchNorm2d(3), 10, "cifar"),
        (nn.BatchNorm2d(3), 101, "cifar100"),
        (nn.BatchNorm2d(3), 1000, "imagenet"),
        (nn.BatchNorm2d(3), 21_841, "imagenet"),
        (nn.LayerNorm(3), 10, "cifar_vit"),
        (nn.LayerNorm(3), 200, "cifar_vit"),
        (nn.LayerNorm(3), 1000, "imagenet_vit"),
        (nn.GroupNorm(1, 3), 1000, "imagenet"),
        (nn.Sequential(nn.BatchNorm2d(3), nn.LayerNorm(3)), 10, "cifar"),
    ],
)
def test_presets_go_by_classes_and_normalisation(norm: nn.Module, classes: int, expected: str) -> None:
    assert choose_preset(nn.Sequential(norm), classes) == expected


def test_costs_are_facts_of_the_methods() -> None:
    assert method("bn").cost == method("source").cost == 1
    assert method("tent").cost == method("rdumb").cost == 3
    assert method("tent").cost < method("guard").cost < method("sar").cost < method("cotta").cost


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ({"name": "tentt"}, "did you mean  tent"),
        ({"name": "tent", "learning_rate": 1}, "There is no option of 'tent' named 'learning_rate'"),
        ({"name": "eta", "similarty": 1}, "did you mean  similarity"),
        ({"name": "tent", "preset": "cifar10"}, "cifar"),
        ({"name": "tent", "variant": "papre"}, "did you mean  paper"),
        ({"name": "tent", "optimizer": "adagrad"}, "There is no optimizer named 'adagrad'"),
        ({"name": "tent", "amp": "float8"}, "None or bfloat16"),
        ({"name": "tent", "window": -1}, "A window is a number of images"),
        ({"name": "rotta", "window": 8}, "takes no window"),
        ({"name": "bn", "prior": -1}, "a number of images, 0 or more"),
        ({"name": "bn", "statistics": "emma"}, "There are no such statistics"),
        ({"name": "bn", "statistics": "ema", "window": 4}, "cannot be combined"),
        ({"name": "eata", "fisher": "sauce"}, "stream, or images"),
        ({"name": "cotta", "views": 0}, "a whole number, 1 or more"),
        ({"name": "cotta", "average": "mean"}, "probabilities or logits"),
        ({"name": "memo", "prior": "auto"}, "not for views of one"),
        ({"name": "cotta", "augment": "augmixx"}, "did you mean  augmix"),
    ],
)
def test_mistakes_are_answered_with_what_is_near(arguments: dict[str, object], answer: str) -> None:
    with pytest.raises(ConfigurationError, match=answer):
        adapt(convolutional(), **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", sorted(METHODS))
def test_no_option_takes_nonsense(name: str) -> None:
    for option in options(name).to_dict():
        with pytest.raises(ShiftproofError):
            adapt(convolutional(), name, **cast("dict[str, Any]", {option: object()}))


def test_models_without_norm_layers() -> None:
    plain = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), Flat(), nn.Linear(4, 5))
    with pytest.raises(ModelError, match="no normalisation layers") as caught:
        adapt(plain, "tent")
    for name in ("source", "cotta", "memo", "lame", "t3a"):
        assert name in caught.value.facts["fix"]
    for name in ("source", "lame", "t3a"):
        assert adapt(plain, name)(stream(1)[0]).shape == (8, 5)
    cotta = adapt(plain, "cotta", views=2)
    cotta(stream(1)[0])
    assert cotta.updates == 1


def test_norm_layers_that_cannot_learn() -> None:
    model = convolutional(lambda channels: nn.BatchNorm2d(channels, affine=False))
    with pytest.raises(ModelError, match="has nothing to train"):
        adapt(model, "tent")
    assert adapt(model, "bn")(stream(1)[0]).shape == (8, 5)


def test_models_without_a_linear_layer() -> None:
    with pytest.raises(ModelError, match="no linear layer"):
        adapt(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), Flat()), "t3a")


def test_programs_and_black_boxes() -> None:
    images = stream(1)[0]
    model = convolutional()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`torch.jit")  # old programs are still around
        traced = torch.jit.trace(model, images)
    exported = torch.export.export(model, (images,)).module()
    for program in (traced, exported):
        for name in ("tent", "cotta", "t3a"):
            with pytest.raises(ModelError, match="cannot adapt a compiled program"):
                adapt(program, name)
        torch.testing.assert_close(adapt(program, "source")(images), model(images))
    with pytest.raises(ModelError, match="needs a PyTorch module"):
        adapt(lambda images: images, "bn")  # type: ignore[arg-type]


def test_slr_freezes_the_last_stage_wherever_it_is() -> None:
    plain, wrapped = convolutional(), nn.Sequential(nn.Identity(), convolutional())
    assert list(adapt(plain, "slr").trained) == ["1.weight", "1.bias"]
    assert list(adapt(wrapped, "slr").trained) == ["1.1.weight", "1.1.bias"]
    assert len(adapt(plain, "slr", freeze_last=False).trained) == 4
    one = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), Flat(), nn.Linear(4, 5))
    assert len(adapt(one, "slr").trained) == 2
