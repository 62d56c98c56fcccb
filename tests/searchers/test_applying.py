"""Tuples applied step by step: equal to chains, equal to Pillow, and no step twice that memory can hold."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps

from shiftproof.data import load_images
from shiftproof.searchers import make_space
from shiftproof.searchers.applying import Applier
from shiftproof.searchers.evaluator import hold
from shiftproof.searchers.uniform import draw_tuples
from shiftproof.shifts.levels import from_levels
from tests.searchers.models import pictures


def with_pillow(array, steps):
    """Apply operations to one image, H x W x 3, as the paper's pipeline does."""
    image = Image.fromarray(array)
    for step in steps:
        if step.name.endswith("_shift"):
            bands = list(image.split())
            place = ("red_shift", "green_shift", "blue_shift").index(step.name)
            bands[place] = bands[place].point([min(max(value + int(step.level), 0), 255) for value in range(256)])
            image = Image.merge("RGB", bands)
        elif step.name == "grayscale":
            image = ImageOps.grayscale(image).convert("RGB")
        elif step.name in ("autocontrast", "solarize"):
            image = getattr(ImageOps, step.name)(image, step.level)
        else:
            image = getattr(ImageEnhance, step.name.capitalize())(image).enhance(step.level)
    return np.asarray(image)


@pytest.mark.parametrize("name", ["mnist", "cifar", "faces"])
def test_tuples_equal_pillow_image_by_image(name):
    space, pixels = make_space(name), hold(load_images("demo").take(12))
    applier = Applier(pixels.images, pixels.keys)
    arrays = pixels.images.permute(0, 2, 3, 1).numpy()
    for genes in draw_tuples(space, 5, range(25)):
        steps = [space.steps[gene] for gene in genes]
        ours = applier.levels(steps, 0, 12).permute(0, 2, 3, 1).numpy()
        theirs = np.stack([with_pillow(array, steps) for array in arrays])
        assert np.array_equal(ours, theirs), space.label(genes)


@pytest.mark.parametrize("name", ["cifar", "geometric", "corruptions"])
@pytest.mark.parametrize("memory", [0, 10_000, 2**26])
def test_any_memory_and_any_parts_give_the_images_of_the_chain(name, memory):
    space, data = make_space(name), pictures(10)
    pixels = hold(data)
    applier = Applier(pixels.images, pixels.keys, seed=4, memory=memory)
    tuples = draw_tuples(space, 3, range(6))
    tuples += [(*genes[:2], other[2]) for genes, other in pairwise(tuples)]
    for genes in sorted(tuples):
        whole = space.chain(genes)(from_levels(pixels.images), pixels.keys, seed=4)
        steps = [space.steps[gene] for gene in genes]
        parts = [applier(steps, start, min(start + 4, 10)) for start in range(0, 10, 4)]
        assert torch.equal(torch.cat(parts), whole), space.label(genes)
        assert sum(kept.numel() for kept in applier._kept.values()) <= memory


def test_shared_first_steps_are_applied_once():
    space, pixels = make_space("cifar"), hold(pictures(6))
    steps = space.steps
    with_memory, without = (Applier(pixels.images, pixels.keys, memory=memory) for memory in (2**20, 0))
    for applier in (with_memory, without):
        for last in range(10):
            applier([steps[3], steps[50], steps[last]], 0, 6)
    assert with_memory.applied == 2 + 10
    assert without.applied == 30


def test_no_steps_are_the_images_themselves():
    pixels = hold(pictures(5))
    assert torch.equal(Applier(pixels.images, pixels.keys)([], 1, 4), from_levels(pixels.images[1:4]))
