import math
from typing import Any

import numpy as np
import pytest
import torch

from shiftproof import load_data, load_model
from shiftproof.errors import ConfigurationError, DataError, ModelError
from shiftproof.estimators import NEIGHBORHOODS, neighborhood_invariance
from shiftproof.estimators.evidence import input_keys
from shiftproof.estimators.neighborhoods import neighborhood, view_keys
from shiftproof.models import BlackBox
from shiftproof.shifts import parse
from tests.estimators.networks import Brightness, constant, images, random_classes


def test_a_constant_classifier_is_wholly_invariant():
    found = neighborhood_invariance(constant, images(20))
    assert found.value == 1.0
    assert found.interval == (1.0, 1.0)
    assert found.negative_entropy.tolist() == [0.0] * 20
    assert found.entropy_difference == pytest.approx(0.0, abs=1e-9)
    assert not found.warnings


@pytest.mark.parametrize(("classes", "n"), [(2, 4), (5, 10)])
def test_a_random_classifier_has_the_expected_share_of_its_most_common_answer(classes, n):
    found = neighborhood_invariance(random_classes(classes), images(600), "gaussian_noise@3", n=n)
    draws = np.random.default_rng(0).multinomial(n + 1, np.full(classes, 1 / classes), 200_000)
    expected = draws.max(1) / (n + 1)
    assert found.value == pytest.approx(expected.mean(), abs=4 * expected.std() / math.sqrt(600))
    assert found.per_input.min() >= 1 / classes


def test_two_classes_have_a_closed_form():
    found = neighborhood_invariance(random_classes(2), images(800), "gaussian_noise@3", n=2)
    # Of three fair answers all agree with probability 1/4, two of them otherwise.
    assert found.value == pytest.approx(1 / 4 + 3 / 4 * 2 / 3, abs=4 * 0.145 / math.sqrt(800))


def test_views_do_not_depend_on_the_batch_or_the_order():
    model, set_ = load_model("demo"), images(12, side=32)
    whole = neighborhood_invariance(model, set_, n=4)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    turned = neighborhood_invariance(model, set_[order], n=4, batch_size=5)
    np.testing.assert_array_equal(whole.per_input[order], turned.per_input)
    assert not np.array_equal(whole.per_input, neighborhood_invariance(model, set_, n=4, seed=1).per_input)


def test_keys_decide_the_views():
    model, set_ = Brightness(), images(8)
    keys = input_keys(set_)
    given = neighborhood_invariance(model, set_, "brightness", keys=keys)
    np.testing.assert_array_equal(given.per_input, neighborhood_invariance(model, set_, "brightness").per_input)
    assert len(set(view_keys(torch.arange(100), 10).tolist())) == 1000


def test_a_black_box_is_enough():
    model = Brightness()
    box = BlackBox(lambda x: model(x).detach().numpy())
    np.testing.assert_array_equal(
        neighborhood_invariance(box, images(6)).per_input, neighborhood_invariance(model, images(6)).per_input
    )


def test_texts_take_the_same_path():
    def shorter(texts, keys, n, seed):
        return [text[view % 2 :] for view in range(n) for text in texts]

    def starts_with_a(texts):
        return torch.tensor([[0.0, 1.0] if text.startswith("a") else [1.0, 0.0] for text in texts])

    found = neighborhood_invariance(starts_with_a, ["aa", "ab"], shorter, n=3)
    assert found.per_input.tolist() == [1.0, 0.75]


@pytest.mark.parametrize("name", NEIGHBORHOODS)
def test_every_neighborhood_makes_views_that_differ(name):
    set_ = images(3, side=32)
    views = neighborhood(name)(set_, torch.arange(3), 8, 0)
    assert views.shape == (24, 3, 32, 32)
    assert len({view.numpy().tobytes() for view in views}) > 12


def test_large_images_get_three_operations_of_randaugment():
    made: Any = neighborhood("randaugment")
    assert made.shift(32) == parse("rand_augment[n=1,magnitude=15,spread=uniform]")
    assert made.shift(224) == parse("rand_augment[n=3,magnitude=15,spread=uniform]")


def test_a_neighborhood_that_destroys_labels_is_told():
    def grey(inputs, keys, n, seed):
        return torch.full((n * len(inputs), *inputs.shape[1:]), 0.5)

    found = neighborhood_invariance(Brightness(), images(200), grey, n=2)
    assert found.entropy_difference > 0.1
    assert "destroy labels" in found.warnings[0]
    kept = neighborhood_invariance(load_model("demo"), load_data("demo").take(40), n=2)
    assert not kept.warnings


def test_bad_inputs_are_told():
    with pytest.raises(DataError, match="set of inputs is empty"):
        neighborhood_invariance(constant, images(0))
    with pytest.raises(DataError, match="Unsupported inputs"):
        neighborhood_invariance(constant, np.zeros((3, 3, 8, 8)))
    with pytest.raises(DataError, match="needs a key"):
        neighborhood_invariance(constant, images(3), keys=torch.arange(2))
    with pytest.raises(ConfigurationError, match="no neighbourhood named 'randaugmnt'"):
        neighborhood_invariance(constant, images(3), "randaugmnt")
    with pytest.raises(ConfigurationError, match="number of views"):
        neighborhood_invariance(constant, images(3), lambda inputs, keys, n, seed: inputs)
    with pytest.raises(ConfigurationError, match="views must be positive"):
        neighborhood_invariance(constant, images(3), n=0)
    with pytest.raises(ModelError, match="wrong shape"):
        neighborhood_invariance(lambda x: x.mean((1, 2, 3)), images(3))
