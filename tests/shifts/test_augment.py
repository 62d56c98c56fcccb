"""RandAugment, AutoAugment and AugMix: what they draw and that they do what they drew."""

from __future__ import annotations

import pytest
import torch
from scipy.stats import beta, chisquare, kstest
from torch import Tensor

from shiftproof.keyed import Keyed
from shiftproof.shifts import tables
from shiftproof.shifts.augment.policies import AugMix, AutoAugment, RandAugment, menu
from shiftproof.shifts.base import Shift
from shiftproof.shifts.image_shift import Shape
from shiftproof.shifts.levels import to_levels
from shiftproof.shifts.operations.operation import operation
from tests.shifts.batches import assert_same_bits_in_any_batch, random_images

SHAPE = Shape(3, 32, 32)
MANY = Keyed(0, range(6000))


def one_at_a_time(image: Tensor, names: tuple[str, ...], which: Tensor, level: Tensor) -> Tensor:
    """Apply drawn operations to one image through the public shifts."""
    for each, at in zip(which.tolist(), level.tolist(), strict=True):
        if names[each] != "identity":
            takes = names[each] not in ("equalize", "invert")
            image = operation(names[each], at if takes else None)(image[None], [0])[0]
    return image


@pytest.mark.parametrize(
    "shift",
    [RandAugment(), RandAugment(3, 15, "uniform", "reflect"), AutoAugment(), AutoAugment("imagenet"), AugMix()],
    ids=str,
)
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 13, 9)])
def test_same_bits_in_any_batch(shift: Shift, shape: tuple[int, int, int]) -> None:
    assert_same_bits_in_any_batch(shift, random_images(15, *shape))


def test_rand_augment_draws_every_operation_equally_often() -> None:
    which, level = RandAugment(n=2, magnitude=9).draw(MANY.fork("a"), SHAPE)
    names = menu("magnitudes").names
    counts = torch.bincount(which.flatten(), minlength=len(names))
    assert counts[names.index("invert")] == 0
    assert chisquare(counts[counts > 0].numpy()).pvalue > 0.001
    assert int((counts > 0).sum()) == 14
    rotations = level[which == names.index("rotate")]
    assert set(rotations.tolist()) == {-9.0, 9.0}
    assert 0.4 < (rotations > 0).double().mean() < 0.6


def test_rand_augment_levels_are_the_published_ones() -> None:
    """Magnitude 15 of 30: half of every range."""
    which, level = RandAugment(n=3, magnitude=15).draw(MANY.fork("b"), SHAPE)
    names = menu("magnitudes").names
    expected = {
        "shear_x": 0.15,
        "translate_y": 75 / 331,
        "rotate": 15.0,
        "brightness": 1.45,
        "sharpness": 0.55,
        "posterize": 6.0,
        "solarize": 127.5,
        "autocontrast": 0.0,
    }
    for name, value in expected.items():
        drawn = level[which == names.index(name)]
        assert (drawn - value).abs().min() < 1e-12, name


def test_uniform_spread_reaches_from_nothing_to_the_magnitude() -> None:
    which, level = RandAugment(n=3, magnitude=15, spread="uniform").draw(MANY.fork("c"), SHAPE)
    degrees = level[which == menu("magnitudes").names.index("rotate")]
    assert kstest(degrees.numpy(), "uniform", (-15, 30)).pvalue > 0.001


def test_rand_augment_applies_what_it_drew() -> None:
    images, keys = random_images(40, 3, 16, 20), torch.arange(40)
    shift = RandAugment(n=3, magnitude=12)
    which, level = shift.draw(Keyed(5, keys).fork(shift.name), Shape(3, 16, 20))
    result = shift(images, keys, seed=5)
    for index, image in enumerate(images):
        alone = one_at_a_time(image, menu("magnitudes").names, which[index], level[index])
        assert torch.equal(result[index], alone)


@pytest.mark.parametrize("policy", ["cifar10", "imagenet"])
def test_auto_augment_follows_its_policy(policy: str) -> None:
    """Share of first operations by name, with their probabilities, over the 25 pairs."""
    pairs = tables.table("policies")["policies"][policy]
    assert len(pairs) == 25
    names = menu("magnitudes").names
    which, _ = AutoAugment(policy).draw(MANY.fork("d"), SHAPE)
    for step in (0, 1):
        expected = torch.zeros(len(names), dtype=torch.float64)
        for pair in pairs:
            name, chance, magnitude = pair[step]
            assert 0 <= magnitude <= 9
            expected[names.index(name)] += chance / 25
            expected[names.index("identity")] += (1 - chance) / 25
        counts = torch.bincount(which[:, step], minlength=len(names))
        used = expected > 0
        assert torch.equal(counts[~used], torch.zeros_like(counts[~used]))
        assert chisquare(counts[used].numpy(), (expected * len(which))[used].numpy()).pvalue > 0.001


def test_auto_augment_applies_what_it_drew() -> None:
    images, keys = random_images(40, 3, 16, 16), torch.arange(40)
    shift = AutoAugment(fill="black")
    which, level = shift.draw(Keyed(5, keys).fork(shift.name), Shape(3, 16, 16))
    result = shift(images, keys, seed=5)
    for index, image in enumerate(images):
        alone = one_at_a_time(image, menu("magnitudes").names, which[index], level[index])
        assert torch.equal(result[index], alone)


def test_augmix_weights_are_dirichlet_and_beta() -> None:
    drawn = AugMix().draw(MANY.fork("e"), SHAPE)
    assert torch.allclose(drawn.weights.sum(1) + drawn.kept, torch.ones(6000), atol=1e-6)
    assert kstest(drawn.kept.numpy(), "uniform").pvalue > 0.001
    share = drawn.weights / drawn.weights.sum(1, keepdim=True)
    for chain in range(3):  # the marginals of Dirichlet(1, 1, 1) are Beta(1, 2)
        assert kstest(share[:, chain].numpy(), beta(1, 2).cdf).pvalue > 0.001


def test_augmix_chains_have_one_to_three_operations() -> None:
    choice = menu("augmix")
    drawn = AugMix().draw(MANY.fork("f"), SHAPE)
    lengths = (drawn.which != choice.names.index("identity")).sum(2)
    assert chisquare(torch.bincount(lengths.flatten(), minlength=4)[1:].numpy()).pvalue > 0.001
    names = {name: drawn.level[drawn.which == place] for place, name in enumerate(choice.names)}
    assert set(names["posterize"].tolist()) == {3.0, 4.0}
    assert names["rotate"].abs().max() == 8.0
    assert torch.equal(names["rotate"], names["rotate"].round())
    assert 179.0 < names["solarize"].min() < 182.0
    assert names["shear_x"].abs().max() < 0.09
    assert names["translate_x"].abs().max() < 0.1


def test_augmix_mixes_what_it_drew() -> None:
    images, keys = random_images(12, 3, 16, 16), torch.arange(12)
    shift = AugMix(width=2)
    drawn = shift.draw(Keyed(5, keys).fork(shift.name), Shape(3, 16, 16))
    result = to_levels(shift(images, keys, seed=5))
    for index, image in enumerate(images):
        mixed = drawn.kept[index] * to_levels(image)
        for chain in range(2):
            alone = one_at_a_time(image, menu("augmix").names, drawn.which[index, chain], drawn.level[index, chain])
            mixed += drawn.weights[index, chain] * to_levels(alone)
        assert (result[index] - (mixed + 2**-12).floor()).abs().max() <= 1
        assert (result[index] != (mixed + 2**-12).floor()).float().mean() < 0.001
