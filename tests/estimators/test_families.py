"""Families of shifts to calibrate on: what is in them, and that their shifts keep every shift's promises."""

import pytest
import torch

from shiftproof import load_data, shifts
from shiftproof.estimators import families
from shiftproof.estimators import rearrangements as changes
from shiftproof.estimators.families import IMAGES, TEXTS, family_of, shifts_of

OURS = [one for some in IMAGES.values() for one in some if not isinstance(one, str)]


def batch():
    return next(iter(load_data("demo").take(6).batches(6)))


@pytest.mark.parametrize("shift", OURS, ids=str)
def test_rearrangements_are_the_same_bits_in_any_batch(shift):
    given = batch()
    whole = shift(given.inputs, given.keys, seed=1)
    assert torch.equal(shift(given.inputs[2:4], given.keys[2:4], seed=1), whole[2:4])
    assert not torch.equal(whole, given.inputs)
    assert (whole.shape, whole.dtype) == (given.inputs.shape, torch.float32)
    odd = torch.rand(2, 1, 33, 37)
    assert shift(odd, torch.arange(2)).shape == odd.shape


def test_every_family_has_four_shifts_or_more_of_its_own_and_none_that_audits_test():
    for table in (IMAGES, TEXTS):
        assert all(len(some) >= 4 for some in table.values())
    assert len(IMAGES) == 10  # and class mixes
    common = set(shifts.names("common"))
    for shift in shifts_of(load_data("demo")):
        assert shift.name not in common
    for family, some in IMAGES.items():
        assert {family_of(shifts.parse(one) if isinstance(one, str) else one) for one in some} == {family}


@pytest.mark.parametrize(
    ("text", "family"), [("fog@3", "weather"), ("typos@2", "typing"), ("contrast=2", "contrast"), ("ripple@2", "warp")]
)
def test_other_shifts_have_the_family_of_their_category(text, family):
    assert family_of(shifts.parse(text)) == family


def test_rearrangements_do_what_they_say():
    images = torch.rand(3, 3, 16, 16).mul(255).round().div(255)
    keys = torch.arange(3)
    assert torch.equal(changes.ChannelOrder()(images, keys), images[:, [2, 1, 0]])
    left = changes.Occlusion(part="left", share=0.5)(images, keys)
    assert not left[..., :8].any()
    assert torch.equal(left[..., 8:], images[..., 8:])
    centre = changes.Occlusion(part="centre", share=0.25)(images, keys)
    assert (centre == 0).all(1).sum((1, 2)).tolist() == [64, 64, 64]
    mixed = changes.ShuffledPatches(a_side=4)(images, keys)
    assert torch.equal(mixed.flatten(2).sort().values, images.flatten(2).sort().values)
    tiled = changes.Tiles(a_side=2)(images, keys)
    assert torch.equal(tiled[..., :8, :8], tiled[..., 8:, 8:])
    blocks = changes.LowResolution(factor=4.0)(images, keys)
    assert torch.equal(blocks[..., ::4, ::4].repeat_interleave(4, 2).repeat_interleave(4, 3), blocks)


def test_families_of_texts_suit_texts():
    assert {one.acts_on for one in shifts_of(load_data((["a b", "c d"], [0, 1])))} == {"texts"}
    assert families.CLASS_MIX not in TEXTS
