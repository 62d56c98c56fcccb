"""Random framing: translate, erase, flip and crop."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.stats import kstest

from shiftproof.keyed import Keyed
from shiftproof.shifts.augment.framing import FlipCrop, RandomErase, RandomTranslate
from shiftproof.shifts.base import Shift
from shiftproof.shifts.image_shift import Shape
from shiftproof.shifts.levels import to_levels
from tests.shifts.batches import assert_same_bits_in_any_batch, random_images
from tests.shifts.test_enhance import to_pixels


@pytest.mark.parametrize("shift", [RandomTranslate(), RandomErase(), FlipCrop()], ids=str)
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 8, 30)])
def test_same_bits_in_any_batch(shift: Shift, shape: tuple[int, int, int]) -> None:
    assert_same_bits_in_any_batch(shift, random_images(9, *shape))


def test_translation_is_uniform_and_within_its_limit() -> None:
    shift = RandomTranslate(limit=0.25)
    keys = torch.arange(2000)
    # A single bright pixel in the middle tells where the image went.
    images = torch.zeros(2000, 1, 33, 33)
    images[:, :, 16, 16] = 1.0
    place = shift(images, keys).flatten(1).argmax(1)
    down, right = place // 33 - 16, place % 33 - 16
    for moved in (down, right):
        assert moved.abs().max() == 8
        assert abs(moved.double().mean()) < 0.4
    assert abs(torch.corrcoef(torch.stack([down, right]).double())[0, 1]) < 0.1


def test_erased_areas_and_shapes() -> None:
    shift = RandomErase()
    rectangles = shift.draw(Keyed(0, range(3000)), Shape(3, 100, 100))
    area = (rectangles.height * rectangles.width).double() / 1e4
    ratio = rectangles.height.double() / rectangles.width.double()
    # Rounding to whole pixels moves area and ratio a little past their bounds.
    assert 0.018 < area.min() < 0.03
    assert 0.31 < area.max() < 0.335
    assert kstest(area.numpy(), "uniform", (0.02, 0.31)).pvalue > 0.001
    assert 0.3 < ratio.min() < 0.4
    assert 2.9 < ratio.max() < 3.7
    result = shift(torch.ones(100, 1, 100, 100), torch.arange(100))
    seen = shift.draw(Keyed(0, range(100)).fork(shift.name), Shape(1, 100, 100))
    assert torch.equal((result == 0).sum((1, 2, 3)), seen.height * seen.width)
    first = (result[0, 0] == 0).nonzero()
    assert first.min(0).values.tolist() == [seen.top[0], seen.left[0]]


def test_erase_leaves_alone_what_no_rectangle_fits() -> None:
    """Slim images: a third of the area at ratio 1/3 to 10/3 is taller than 8 pixels of 8 x 400."""
    images = random_images(50, 1, 8, 400)
    result = RandomErase(smallest=0.33, largest=0.33)(images, torch.arange(50))
    assert torch.equal(result, images)


def test_crops_equal_pillow() -> None:
    images, keys = random_images(20, 3, 40, 52), torch.arange(20)
    shift = FlipCrop()
    mirrored, crop = shift.draw(Keyed(3, keys).fork(shift.name), Shape(3, 40, 52))
    result = to_levels(shift(images, keys, seed=3))
    assert 3 < int(mirrored.sum()) < 17
    for index in range(20):
        top, left, height, width = (int(each[index]) for each in crop)
        assert 0 <= top <= top + height <= 40
        assert 0 <= left <= left + width <= 52
        # Cropping first keeps pixels outside the rectangle out of its border; ours samples the whole image there.
        image = Image.fromarray(to_pixels(to_levels(images)[index]).astype(np.uint8))
        matrix = (width / 52, 0, left, 0, height / 40, top)
        if mirrored[index]:
            matrix = (-width / 52, 0, left + width, 0, height / 40, top)
        expected = image.transform((52, 40), Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)
        difference = np.abs(to_pixels(result[index]).astype(int) - np.asarray(expected).astype(int))
        assert difference.max() <= 1


def test_crop_areas() -> None:
    mirrored, crop = FlipCrop(flip=0.25).draw(Keyed(0, range(3000)), Shape(3, 224, 224))
    area = (crop.height * crop.width).double() / 224**2
    assert 0.078 < area.min() < 0.1
    assert area.max() <= 1
    assert area.median() == pytest.approx(0.5, abs=0.06)
    assert float(mirrored.double().mean()) == pytest.approx(0.25, abs=0.03)


def test_crop_takes_the_whole_image_where_nothing_fits() -> None:
    images = random_images(50, 1, 8, 400)
    assert torch.equal(FlipCrop(flip=0.0, smallest=0.5)(images, torch.arange(50)), images)
