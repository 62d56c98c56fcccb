"""What images and texts have in common, and what a label may be."""

import inspect
from typing import Any

import numpy as np
import pytest
import torch

from shiftproof.data import Dataset, ImageSet, TextSet, load_data
from shiftproof.data.images.arrays import from_arrays


def images(count: int = 12) -> ImageSet:
    pixels = np.random.default_rng(0).integers(0, 256, (count, 8, 8, 3), dtype=np.uint8)
    return from_arrays(pixels, np.arange(count) % 3)


def texts(count: int = 12) -> Dataset:
    return load_data(([f"text {number}" for number in range(count)], [f"class {n % 3}" for n in range(count)]))


def test_images_and_texts_are_siblings():
    assert not issubclass(TextSet, ImageSet)
    assert not issubclass(ImageSet, TextSet)
    assert (images().noun, texts().noun) == (("image", "images"), ("text", "texts"))


@pytest.mark.parametrize("make", [images, texts])
def test_neither_refuses_what_a_set_can_do(make):
    data = make()
    for name, member in inspect.getmembers(Dataset):
        if not name.startswith("_") and (isinstance(member, property) or name == "fingerprint"):
            getattr(data, name)
    assert sorted(data.draw(5).tolist()) == sorted(set(data.draw(5).tolist()))
    assert data.in_memory().fingerprint == data.fingerprint
    assert torch.equal(torch.cat([batch.keys for batch in data.batches(5)]), data.keys)
    assert [len(batch) for batch in data.take(7).batches(5)] == [5, 2]


def test_labels_may_be_maps():
    whole, (height, width), ignored = images(), (8, 8), 255
    maps = torch.arange(12)[:, None, None].expand(12, height, width).clone()
    maps[:, 0, 0] = ignored
    data = whole.renumbered(maps, ["road", "sky"])
    taken = data.take(5, seed=1)
    assert taken.labels is not None
    for batch in taken.in_memory().batches(2):
        assert batch.labels is not None
        assert batch.labels.shape[1:] == (height, width)
        assert bool((batch.labels[:, 0, 0] == ignored).all())
    assert taken.labels[:, 1, 1].tolist() == data.draw(5, seed=1).tolist()  # every map stays with its image
    assert data.fingerprint != whole.fingerprint


def test_equal_images_with_other_maps_are_told_apart_in_any_order():
    pixels = np.zeros((2, 8, 8, 3), np.uint8)
    maps = torch.stack([torch.zeros(8, 8, dtype=torch.int64), torch.ones(8, 8, dtype=torch.int64)])
    labels: list[Any] = []
    for order in ([0, 1], [1, 0]):
        data = ImageSet(from_arrays(pixels).source, name="maps", labels=maps[order])
        labels.append(next(data.take().batches(2)).labels)
    assert labels[0].equal(labels[1])
