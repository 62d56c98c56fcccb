"""Structural similarity against scikit-image."""

import numpy as np
import pytest
import torch

from shiftproof.measures.similarity import level_similarity, structural_similarity

skimage = pytest.importorskip("skimage.metrics", reason="scikit-image is the reference")


@pytest.mark.parametrize("shape", [(6, 3, 32, 32), (4, 1, 28, 28), (3, 3, 7, 40), (2, 3, 96, 65)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_scikit_image(shape, dtype):
    rng = np.random.default_rng(0)
    images = rng.random(shape)
    noise = rng.normal(size=shape) * np.linspace(0, 0.3, shape[0]).reshape(-1, 1, 1, 1)
    others = (0.8 * images + 0.1 + noise).clip(0, 1)
    images[0] = 0.5  # a flat image, whose variance is a difference of equal numbers
    found = structural_similarity(torch.tensor(images, dtype=dtype), torch.tensor(others, dtype=dtype))
    wanted = [
        skimage.structural_similarity(x.transpose(1, 2, 0), y.transpose(1, 2, 0), channel_axis=2, data_range=1.0)
        for x, y in zip(images, others, strict=True)
    ]
    assert np.abs(found.numpy() - wanted).max() < (1e-5 if dtype == torch.float32 else 1e-12)


@pytest.mark.parametrize("shape", [(6, 3, 32, 32), (3, 1, 7, 40), (2, 3, 230, 224)])
def test_of_levels_is_the_same(shape):
    rng = np.random.default_rng(1)
    levels = rng.integers(0, 256, shape).astype(np.float32)
    others = (levels + rng.normal(size=shape) * 40).round().clip(0, 255).astype(np.float32)
    levels[0], others[0], others[1] = 255.0, 254.0, levels[1]
    before, after = torch.tensor(levels), torch.tensor(others)
    wanted = structural_similarity(before.double() / 255, after.double() / 255)
    assert torch.allclose(level_similarity(before, after), wanted, atol=1e-6, rtol=0)


def test_equal_images_are_as_similar_as_can_be():
    images = torch.rand(3, 3, 16, 16)
    assert torch.allclose(structural_similarity(images, images), torch.ones(3, dtype=torch.float64))


def test_a_negative_is_not_similar():
    images = torch.rand(2, 3, 16, 16)
    assert bool((structural_similarity(images, 1 - images) < 0).all())


@pytest.mark.parametrize("shape", [(2, 3, 6, 30), (2, 3, 30, 6)])
def test_too_small(shape):
    with pytest.raises(ValueError, match="at least 7"):
        structural_similarity(torch.zeros(shape), torch.zeros(shape))


def test_shapes_must_agree():
    with pytest.raises(ValueError, match="one shape"):
        structural_similarity(torch.zeros(2, 3, 9, 9), torch.zeros(2, 1, 9, 9))
