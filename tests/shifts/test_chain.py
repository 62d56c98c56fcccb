"""Chains of shifts."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
import torch
from PIL import Image

from shiftproof.errors import ConfigurationError
from shiftproof.shifts import ImageShift, corruption, names
from shiftproof.shifts.augment.policies import RandAugment
from shiftproof.shifts.chain import ImageChain
from shiftproof.shifts.operations.operation import Operation, operation, operation_set
from tests.shifts.batches import assert_same_bits_in_any_batch, random_images
from tests.shifts.test_enhance import Pixels, to_levels, with_pillow

NOISE = corruption("gaussian_noise", 2)


@pytest.mark.parametrize(
    "steps",
    [
        (NOISE, operation("contrast", 0.8), NOISE),
        (RandAugment(), RandAugment()),
        (ImageChain([NOISE, operation("flip")]), NOISE),
    ],
    ids=["twice", "policies", "nested"],
)
def test_same_bits_in_any_batch(steps: tuple[ImageShift, ...]) -> None:
    assert_same_bits_in_any_batch(ImageChain(steps), random_images(9, 3, 16, 16))


def test_label_and_severity() -> None:
    chain = ImageChain([corruption("gaussian_noise", 3), operation("contrast", 0.8), corruption("shot_noise", 1.5)])
    assert chain.label == "gaussian_noise@3 + contrast=0.8 + shot_noise@1.5"
    assert chain.severity == 3
    assert ImageChain([]).label == "identity"


def test_deterministic_steps_are_applied_in_turn() -> None:
    images = random_images(4, 3, 20, 20)
    steps = [operation("rotate", 11), operation("equalize"), operation("sharpness", 1.7)]
    expected = images
    for step in steps:
        expected = step(expected, range(4))
    assert torch.equal(ImageChain(steps)(images, range(4)), expected)


def test_any_corruption_can_follow_any_other() -> None:
    """Some return images in another order of memory than they were given."""
    images = random_images(2, 3, 16, 16)
    for first, second in itertools.product(names("common"), repeat=2):
        chain = ImageChain([corruption(first, 2), corruption(second, 2)])
        assert chain(images, range(2)).shape == images.shape, chain.label


def test_tuples_of_a_published_set_equal_pillow() -> None:
    """What worst-case search reports can be reproduced image by image."""
    data = pytest.importorskip("skimage.data")
    picture: Pixels = data.astronaut()[:128:4, 100:228:4]
    generator = np.random.default_rng(0)
    space = operation_set("mnist")
    for _ in range(20):
        steps: list[Operation] = [space[index] for index in generator.integers(0, len(space), 5)]
        expected = picture
        for step in steps:
            expected = with_pillow(step.name, expected, step.level or 0.0)
        result = ImageChain(steps)(to_levels(picture) / 255, [0])[0] * 255
        assert np.array_equal(result.round().permute(1, 2, 0).numpy(), np.asarray(Image.fromarray(expected)))


def test_a_shift_that_occurs_twice_draws_twice() -> None:
    images = torch.full((1, 1, 64, 64), 0.5)
    once = ImageChain([NOISE])(images, [7]) - 0.5
    twice = ImageChain([NOISE, NOISE])(images, [7]) - 0.5
    second = twice - once
    assert abs(torch.corrcoef(torch.stack([once.flatten(), second.flatten()]))[0, 1]) < 0.06
    assert float(twice.var()) == pytest.approx(2 * float(once.var()), rel=0.1)


def test_a_step_does_not_depend_on_those_after_it() -> None:
    images = random_images(3, 3, 16, 16)
    before = ImageChain([NOISE, operation("flip")])(images, range(3))
    assert torch.equal(ImageChain([NOISE])(images, range(3)).flip(3), before)


def test_seeds_differ() -> None:
    images = torch.full((1, 1, 16, 16), 0.5)
    results = [ImageChain([NOISE])(images, [0], seed=seed) for seed in range(3)]
    assert all(not torch.equal(a, b) for a, b in itertools.combinations(results, 2))


def test_steps_at_severity_zero_change_nothing() -> None:
    images = random_images(3, 3, 16, 16)
    idle = corruption("gaussian_noise", 0)
    assert torch.equal(ImageChain([idle, idle])(images, range(3)), images)
    assert torch.equal(ImageChain([])(images, range(3)), images)
    assert torch.equal(ImageChain([operation("invert"), idle])(images, range(3)), operation("invert")(images, range(3)))


def test_chains_are_values() -> None:
    chain = ImageChain([NOISE, operation("flip")])
    assert chain == ImageChain((NOISE, operation("flip")))
    assert len({chain, ImageChain([NOISE, operation("flip")]), ImageChain([NOISE])}) == 2
    assert pickle.loads(pickle.dumps(chain)) == chain


def test_steps_must_be_shifts() -> None:
    with pytest.raises(ConfigurationError, match="A chain is made of shifts"):
        ImageChain(["fog@3"])  # type: ignore[list-item]
