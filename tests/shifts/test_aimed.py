"""Augmentations that can be aimed: casts of a colour, waves around a frequency."""

import pytest
import torch

from shiftproof.shifts import as_image_shift
from shiftproof.shifts.augment.casting import turned


@pytest.fixture
def images():
    return torch.full((64, 3, 32, 32), 128 / 255)


def test_a_cast_adds_its_colour_to_a_share_of_images(images):
    aimed = as_image_shift("colour_cast[gain=0,bias=0,turn=0,red=0.2,green=-0.1,blue=-0.1]")
    added = (aimed(images, torch.arange(64)) - images).mean((2, 3))
    cast = added.abs().amax(1) > 0
    assert 16 < int(cast.sum()) < 48
    torch.testing.assert_close(
        added[cast], torch.tensor([0.2, -0.1, -0.1]).expand(int(cast.sum()), 3), atol=2e-3, rtol=0
    )
    grey = as_image_shift("colour_cast[gain=0,bias=0,turn=0,share=1,red=0.2]")
    assert torch.equal(grey(images[:, :1], torch.arange(64)), images[:, :1])


def test_gains_and_biases_are_within_their_limits(images):
    moved = as_image_shift("colour_cast[gain=0,bias=0.1,turn=0,share=1]")(images, torch.arange(64)) - images
    assert 0.05 < moved.abs().max() <= 0.1 + 1 / 255
    stretched = as_image_shift("colour_cast[gain=0.2,bias=0,turn=0,share=1]")(images, torch.arange(64)) - images
    assert 0.05 < stretched.abs().max() <= 0.1 + 1 / 255
    assert len(moved[:, 0, 0, 0].unique()) > 10


def test_turning_a_hue_keeps_grey_and_a_third_of_a_circle_moves_colours_on():
    colours = torch.eye(3)[:, :, None, None]
    third = turned(colours, torch.full((3,), 2 * torch.pi / 3))
    torch.testing.assert_close(third, colours.roll(1, 1), atol=1e-6, rtol=0)
    grey = torch.full((1, 3, 1, 1), 0.3)
    torch.testing.assert_close(turned(grey, torch.tensor([1.0])), grey)


def test_waves_are_around_the_frequency_they_are_aimed_at(images):
    shift = as_image_shift("random_wave[down=0.25,across=-0.125,spread=0.03,height=0.2,least=1,share=1,grey=1]")
    added = shift(images, torch.arange(64)) - images
    assert torch.equal(added[:, 0], added[:, 1])
    assert added.abs().amax((1, 2, 3)).min() > 0.15
    place = torch.fft.rfft2(added[:, 0]).abs().flatten(1).argmax(1)
    down, across = torch.fft.fftfreq(32)[place // 17], torch.fft.rfftfreq(32)[place % 17]
    # The half spectrum has a wave and its opposite as one.
    assert (down + 0.25).abs().max() < 0.07
    assert (across - 0.125).abs().max() < 0.07
