"""PRIME's primitives are what their formulas say, and chains that go through them at once are those one by one."""

import math

import pytest
import torch
import torch.nn.functional as F

from shiftproof.keyed import Keyed
from shiftproof.shifts.augment.max_entropy import CURVES, TAPS, WAVES, Prime, curved, filtered, warped
from shiftproof.shifts.image_shift import Shape


@pytest.fixture
def images():
    levels = torch.randint(0, 256, (3, 3, 8, 10), generator=torch.Generator().manual_seed(0))
    return levels / 255


def numbers(count: int, scale: float):
    return scale * torch.randn(3, count, generator=torch.Generator().manual_seed(1))


def test_a_filter_is_the_identity_plus_taps_on_a_torus(images):
    taps = numbers(TAPS * TAPS, 0.2)
    kernels = taps.view(3, 1, TAPS, TAPS).clone()
    kernels[:, :, TAPS // 2, TAPS // 2] += 1
    padded = F.pad(images, [TAPS // 2] * 4, mode="circular")
    # A tap moves what it weighs down and to the right: a convolution, not a correlation.
    pairs = zip(padded, kernels.flip(2, 3), strict=True)
    expected = [F.conv2d(one[:, None], kernel[None])[:, 0] for one, kernel in pairs]
    torch.testing.assert_close(filtered(images, taps), torch.stack(expected), atol=1e-5, rtol=0)


def test_a_curve_adds_sines_to_values(images):
    curves = numbers(3 * CURVES, 0.15)
    expected = images.clone()
    for place, size in enumerate(curves.view(3, 3, CURVES).unbind(2), start=1):
        expected += size[:, :, None, None] / math.sqrt(place) * torch.sin(math.pi * place * images)
    torch.testing.assert_close(curved(images, curves), expected, atol=1e-5, rtol=0)


def test_a_warp_moves_pixels_by_sines(images):
    warps = numbers(2 * WAVES * WAVES, 0.03)
    y, x = ((torch.arange(side) + 0.5) / side for side in images.shape[2:])
    move = torch.zeros(3, 2, 8, 10)
    for row in range(1, WAVES + 1):
        for column in range(1, WAVES + 1):
            wave = torch.outer(torch.sin(math.pi * row * y), torch.sin(math.pi * column * x))
            size = warps.view(3, 2, WAVES, WAVES)[:, :, row - 1, column - 1] / math.hypot(row, column)
            move += size[:, :, None, None] * wave
    grid = torch.stack([(2 * x - 1).expand(8, 10), (2 * y - 1)[:, None].expand(8, 10)], dim=2)
    expected = F.grid_sample(
        images, grid + 2 * move.permute(0, 2, 3, 1), padding_mode="reflection", align_corners=False
    )
    torch.testing.assert_close(warped(images, warps), expected, atol=1e-5, rtol=0)


def test_chains_that_go_at_once_are_those_one_by_one(images):
    shift = Prime(width=3, depth=2)
    drawn = shift.draw(Keyed(0, torch.arange(3)), Shape(*images.shape[1:]))
    assert len(set(drawn.which.flatten().tolist())) > 2
    changes = {1: filtered, 2: curved, 3: warped}
    for place, image in enumerate(images):
        mixed = drawn.kept[place] * image
        for chain in range(3):
            view = image[None]
            for step in range(2):
                kind = int(drawn.which[place, chain, step])
                if kind:
                    view = changes[kind](view, drawn[kind][place, chain, step][None]).clamp(0, 1)
            mixed = mixed + drawn.weights[place, chain] * view[0]
        torch.testing.assert_close(shift.transform(images, drawn)[place], mixed, atol=1e-5, rtol=0)
