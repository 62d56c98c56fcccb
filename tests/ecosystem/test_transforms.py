"""Shifts as steps of torchvision's v2 pipelines: samples keep their form, their types and their targets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

pytest.importorskip("torchvision", reason="the packages of tests/ecosystem/requirements.txt: make ecosystem")

from torchvision import tv_tensors
from torchvision.transforms import v2

from shiftproof import shifts
from shiftproof.errors import ConfigurationError
from shiftproof.shifts import Transform, corrupt

PIXELS = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (3, 24, 32), dtype=np.uint8))
LABELS = torch.from_numpy(np.random.default_rng(1).integers(0, 9, (24, 32), dtype=np.int64))


def boxes() -> tv_tensors.BoundingBoxes:
    return tv_tensors.BoundingBoxes([[1, 2, 10, 12]], format="XYXY", canvas_size=(24, 32))


def sample() -> dict[str, Any]:
    return {"image": tv_tensors.Image(PIXELS), "mask": tv_tensors.Mask(LABELS), "name": "cat", "label": 3}


def test_images_stay_images() -> None:
    image = tv_tensors.Image(PIXELS)
    for made in (corrupt(image, "fog@3"), Transform("fog@3")(image), v2.Compose([Transform("fog@3")])(image)):
        assert type(made) is tv_tensors.Image
        assert torch.equal(made, corrupt(PIXELS, "fog@3"))
    assert type(corrupt(image, "fog@0")) is tv_tensors.Image
    floats = corrupt(v2.functional.to_dtype(image, torch.float64, scale=True), "contrast@3")
    assert (type(floats), floats.dtype) == (tv_tensors.Image, torch.float64)
    assert type(corrupt(PIXELS, "fog@3")) is torch.Tensor
    video = tv_tensors.Video(torch.stack([PIXELS, PIXELS]))
    assert type(Transform("fog@3")((video, 1))[0]) is tv_tensors.Video


def test_compose_keeps_targets() -> None:
    pipeline = v2.Compose([Transform("fog@3"), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])
    image, label = pipeline(Image.fromarray(PIXELS.permute(1, 2, 0).numpy()), 7)
    assert label == 7
    assert type(image) is tv_tensors.Image
    assert torch.equal((image * 255).round().to(torch.uint8), corrupt(PIXELS, "fog@3"))
    chosen, label = v2.RandomApply([Transform("fog@3")], p=1.0)(PIXELS, 7)
    assert (torch.equal(chosen, corrupt(PIXELS, "fog@3")), label) == (True, 7)


def test_masks_move_with_shifts_that_move_and_stay_with_others() -> None:
    for text in ("fog@3", "elastic_transform@3", "rotate=20", "rand_augment"):
        made = v2.Compose([Transform(text, seed=4)])(sample())
        assert {key: type(value) for key, value in made.items()} == {
            **{"image": tv_tensors.Image, "mask": tv_tensors.Mask, "name": str, "label": int}
        }
        assert torch.equal(made["image"], corrupt(PIXELS, text, seed=4))
        shift = shifts.as_image_shift(text)
        keys = shifts.corrupting.image_keys(PIXELS)
        expected = shifts.move_labels(shift, LABELS[None], keys, seed=4)[0]
        assert torch.equal(made["mask"], expected)
        assert torch.equal(expected, LABELS) == (text == "fog@3")
    assert torch.equal(Transform("flip")(sample())["mask"], LABELS.flip(1))


def test_stacks_and_batches_of_masks() -> None:
    image = tv_tensors.Image(PIXELS)
    objects = tv_tensors.Mask(torch.stack([LABELS == 1, LABELS == 2]))
    _, moved = Transform("translate_x=0.25")(image, objects)
    assert moved.dtype == torch.bool
    assert torch.equal(moved[:, :, 8:], objects[:, :, :-8])
    assert not moved[:, :, :8].any()
    both = tv_tensors.Image(torch.stack([PIXELS, PIXELS.flip(2)]))
    masks = tv_tensors.Mask(torch.stack([LABELS, LABELS.flip(1)]))
    made, labels = Transform("ripple@5", ignore=9)(both, masks)
    for row in range(2):
        alone, label = Transform("ripple@5", ignore=9)(both[row], tv_tensors.Mask(masks[row]))
        assert torch.equal(made[row], alone)
        assert torch.equal(labels[row], label)


def test_boxes_stay_with_shifts_that_leave_content_and_are_refused_by_others() -> None:
    _, target = v2.Compose([Transform("fog@3")])(tv_tensors.Image(PIXELS), {"boxes": boxes(), "labels": [1]})
    assert type(target["boxes"]) is tv_tensors.BoundingBoxes
    assert torch.equal(target["boxes"], boxes())
    for text in ("rotate=5", "elastic_transform@1", "fog@3 + flip", "augmix"):
        with pytest.raises(ConfigurationError, match=r"(?s)moves the content.*BoundingBoxes"):
            Transform(text)(tv_tensors.Image(PIXELS), {"boxes": boxes(), "labels": [1]})


def test_a_data_set_with_a_pipeline_gives_the_same_in_any_worker() -> None:
    samples = [(tv_tensors.Image(PIXELS.roll(i, 2)), tv_tensors.Mask(LABELS.roll(i, 1))) for i in range(4)]
    pipeline = v2.Compose([Transform("rotate=9"), Transform("gaussian_noise@2"), v2.ToDtype(torch.float32, scale=True)])

    class Set(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return len(samples)

        def __getitem__(self, index: int) -> Any:
            return pipeline(*samples[index])

    alone, two = (list(torch.utils.data.DataLoader(Set(), 2, num_workers=workers)) for workers in (0, 2))
    for (image, mask), (other, moved) in zip(alone, two, strict=True):
        assert torch.equal(image, other)
        assert torch.equal(mask, moved)
