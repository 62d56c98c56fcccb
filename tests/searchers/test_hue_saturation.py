"""Semantic adversarial examples, against a plain loop over images and pixels."""

import colorsys

import numpy as np
import pytest
import torch

from shiftproof.errors import ConfigurationError, DataError
from shiftproof.keyed import Keyed
from shiftproof.searchers import semantic_examples
from shiftproof.searchers.hue_saturation import shift_hue_saturation
from tests.searchers.models import Greenness, pictures


def plain(image, hue, saturation):
    """Return an image, bytes [3, H, W], with the hues and saturations of its pixels shifted, one after the other."""
    made = np.empty_like(image)
    for place in np.ndindex(image.shape[1:]):
        h, s, v = colorsys.rgb_to_hsv(*(image[(slice(None), *place)] / 255.0))
        shifted = colorsys.hsv_to_rgb((h + hue) % 1.0, min(max(s + saturation, 0.0), 1.0), v)
        made[(slice(None), *place)] = [int(255.0 * channel + 1e-3) for channel in shifted]
    return made


def test_pixels_are_shifted_as_colorsys_does():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (6, 3, 4, 4), dtype=np.uint8)
    images[:, :, 0, 0] = 77  # grey
    images[:, :, 0, 1] = 0
    images[:, 0, 0, 2] = images[:, 1, 0, 2]  # two channels alike
    hue, saturation = rng.random(6), rng.uniform(-1, 1, 6)
    found = shift_hue_saturation(torch.from_numpy(images).float() / 255, *map(torch.from_numpy, (hue, saturation)))
    expected = np.stack([plain(*each) for each in zip(images, hue, saturation, strict=True)])
    assert np.abs((found.numpy() * 255).round() - expected).max() <= 1  # a number on the edge of a level
    assert ((found.numpy() * 255).round() == expected).mean() > 0.99
    same = shift_hue_saturation(torch.from_numpy(images).float() / 255, torch.zeros(6), torch.zeros(6))
    assert torch.equal((same * 255).round().byte(), torch.from_numpy(images))


def test_images_are_tried_one_by_one_until_they_are_wrong():
    data, trials, seed = pictures(24), 12, 3
    found = semantic_examples(Greenness(), data, trials=trials, seed=seed, device="cpu", batch_size=7)
    (batch,) = data.batches(24)
    assert batch.labels is not None
    draws = Keyed(seed, batch.keys).fork("search/hue_saturation").uniform(shape=(trials, 2)).numpy().astype(float)

    def wrong(image, label):
        return int(Greenness()(image[None]).argmax(1)) != label

    expected = []
    for image, label, drawn in zip(batch.inputs, batch.labels.tolist(), draws, strict=True):
        tried = [image]
        for trial, (hue, uniform) in enumerate(drawn):
            saturation = (2 * uniform - 1) * trial / trials
            tried.append(shift_hue_saturation(image[None], torch.tensor([hue]), torch.tensor([saturation]))[0])
        expected.append(next((number for number, one in enumerate(tried) if wrong(one, label)), -1))
    order = np.argsort(semantic_order(data, seed))
    assert found.trials[order].tolist() == expected
    assert found.clean.right == 24 - expected.count(0)
    assert found.accuracy.right == expected.count(-1)
    assert found.accuracy.right < found.clean.right  # there is something to find
    others = semantic_examples(Greenness(), data, trials=trials, seed=seed, device="cpu", batch_size=24)
    assert others.trials.tolist() == found.trials.tolist()


def semantic_order(data, seed):
    """Return the places of images in the order that a subject has them."""
    from shiftproof.subjects import Subject

    return Subject.of(Greenness(), data, seed=seed, device="cpu").places.numpy()


def test_what_has_no_hue_or_no_label_is_refused():
    with pytest.raises(DataError, match="colour"):
        shift_hue_saturation(torch.zeros(1, 1, 2, 2), torch.zeros(1), torch.zeros(1))
    with pytest.raises(ConfigurationError, match="budget"):
        semantic_examples(Greenness(), pictures(4), trials=0)
    images = np.zeros((4, 8, 8, 3), np.uint8)
    with pytest.raises(DataError, match="labels"):
        semantic_examples(Greenness(), images, trials=2)
