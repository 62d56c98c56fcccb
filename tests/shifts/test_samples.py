"""A shift as a step of a pipeline of samples: images are corrupted, and what comes with them is kept."""

from __future__ import annotations

import pickle
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image

from shiftproof.errors import DataError
from shiftproof.shifts import Transform, corrupt

RNG = np.random.default_rng(0)
RGB = RNG.integers(0, 256, (24, 32, 3), dtype=np.uint8)
TENSOR = torch.from_numpy(RGB).permute(2, 0, 1)
FOG = Transform("fog@3", seed=2)


class Pair(NamedTuple):
    """A sample with names."""

    image: Any
    label: Any


def test_arguments_of_their_own_come_back_as_many() -> None:
    image, label, name = FOG(RGB, 3, "cat")
    assert np.array_equal(image, corrupt(RGB, "fog@3", seed=2))
    assert (label, name) == (3, "cat")


@pytest.mark.parametrize("kind", [RGB, TENSOR, Image.fromarray(RGB)], ids=["array", "tensor", "Pillow"])
def test_samples_of_every_form_keep_it(kind: Any) -> None:
    expected = np.asarray(corrupt(kind, "fog@3", seed=2))
    target = {"label": torch.tensor(3), "boxes": [1, 2, 3, 4]}
    for sample, find in (
        ((kind, target), lambda made: made[0]),
        ([kind, target], lambda made: made[0]),
        ({"image": kind, "target": target}, lambda made: made["image"]),
        (Pair(kind, target), lambda made: made.image),
        ({"target": target, "views": [(kind,)]}, lambda made: made["views"][0][0]),
    ):
        made = FOG(sample)
        assert type(made) is type(sample)
        assert np.array_equal(np.asarray(find(made)), expected)
        kept = made["target"] if isinstance(made, dict) else made[1]
        assert (kept["label"], kept["boxes"]) == (3, [1, 2, 3, 4])


def test_of_several_tensors_the_first_is_the_image() -> None:
    depth = torch.rand(24, 32)
    image, label, other = FOG(TENSOR, torch.tensor(3), depth)
    assert torch.equal(image, corrupt(TENSOR, "fog@3", seed=2))
    assert label == 3
    assert other is depth


def test_texts_have_targets_too() -> None:
    typos = Transform("typos@3")
    text, label = typos("a very long and tedious film", 0)
    assert text == typos("a very long and tedious film") != "a very long and tedious film"
    assert label == 0


def test_it_pickles() -> None:
    assert pickle.loads(pickle.dumps(FOG)) == FOG


def test_samples_that_cannot_be_read_are_refused() -> None:
    with pytest.raises(DataError, match="no image in this sample"):
        FOG(("cat", 3))
    both = (Image.fromarray(RGB), Image.new("L", (32, 24)))
    with pytest.raises(DataError, match=r"(?s)label map.*tv_tensors\.Mask.*wrap_dataset"):
        FOG(*both)
