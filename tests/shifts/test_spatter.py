"""The steps of spatter against scipy and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import ndimage
from torch import Tensor

from shiftproof.keyed import Keyed
from shiftproof.shifts.corruptions.spatter import MUD, WATER, Spatter, chamfer_distance, equalize, outlines, relief
from shiftproof.shifts.image_shift import Shape
from shiftproof.shifts.tables import Parameters

WET = Parameters(loc=0.65, scale=0.3, sigma=2.0, threshold=0.68, strength=0.5, mud=0.0)
DIRTY = Parameters(loc=0.65, scale=0.3, sigma=1.0, threshold=0.65, strength=1.5, mud=1.0)


def drop(height: int = 30, width: int = 40) -> Tensor:
    """One round drop of uint8 level 200, [1, H, W]."""
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    return (((y - 14) ** 2 + (x - 18) ** 2 <= 81) * 200).to(torch.uint8)[None]


class TestChamferDistance:
    def test_steps_add_up(self) -> None:
        marks = torch.zeros(1, 21, 21, dtype=torch.bool)
        marks[0, 10, 10] = True
        distance = chamfer_distance(marks)[0].double() / 512
        for (y, x), expected in {
            (10, 10): 0.0,
            (10, 13): 3.0,
            (6, 10): 4.0,
            (12, 12): 2.8,
            (11, 12): 2.1969,
            (8, 9): 2.1969,
            (13, 15): 2 * 2.1969 + 1.4,
            (4, 17): 5 * 1.4 + 2.1969,
        }.items():
            assert float(distance[y, x]) == pytest.approx(expected, abs=0.02)

    def test_is_within_a_few_percent_of_the_euclidean_distance(self) -> None:
        marks = torch.from_numpy(np.random.default_rng(0).random((3, 50, 70)) < 0.01)
        distance = chamfer_distance(marks).double() / 512
        exact = np.stack([ndimage.distance_transform_edt(~plane) for plane in marks.numpy()]).clip(max=20)
        np.testing.assert_allclose(distance.numpy(), exact, rtol=0.03, atol=0.01)

    def test_reaches_along_the_long_side_of_a_narrow_image_and_stops_at_twenty(self) -> None:
        marks = torch.zeros(1, 8, 40, dtype=torch.bool)
        marks[0, 0, 0] = True
        line = chamfer_distance(marks)[0, 0].double() / 512
        assert line[:20].tolist() == list(range(20))
        assert line[20:].unique().tolist() == [20.0]


class TestOutlines:
    def test_a_drop_has_one_closed_thin_outline(self) -> None:
        levels = drop()
        edges = outlines(levels)[0].numpy()
        inside = levels[0].numpy() > 0
        border = ndimage.binary_dilation(inside, iterations=2) & ~ndimage.binary_erosion(inside, iterations=2)
        assert not (edges & ~border).any()
        assert ndimage.label(edges, structure=np.ones((3, 3)))[1] == 1
        assert ndimage.binary_fill_holes(edges).sum() > edges.sum() + 150
        # Thin: no 2 x 2 block of edge pixels on the straight parts, where the outline runs along an axis.
        assert edges[14].sum() == 2
        assert edges[:, 18].sum() == 2

    def test_faint_edges_count_only_beside_strong_ones(self) -> None:
        faint = torch.zeros(1, 20, 20, dtype=torch.uint8)
        faint[:, :, 10:] = 25  # Sobel strength 100
        assert not outlines(faint).any()
        faint[:, :10, 10:] = 60
        assert outlines(faint)[0, 9:12].any(dim=1).all()
        assert not outlines(faint)[0, 14:].any()


def test_equalize_spreads_levels_by_rank() -> None:
    levels = torch.tensor([[[3, 3, 3, 3], [5, 5, 7, 7]], [[0, 0, 0, 0], [0, 0, 0, 20]]], dtype=torch.uint8)
    assert equalize(levels)[0].tolist() == [[0, 0, 0, 0], [128, 128, 255, 255]]
    assert equalize(levels)[1].unique().tolist() == [0, 255]


def test_relief_is_lit_inside_the_drop_alone() -> None:
    light = relief(drop())[0]
    assert light.max() == 1.0
    assert not light[drop()[0] == 0].any()
    # Light comes from the lower right: distance grows towards it on the upper left side of the drop.
    assert light[7:14, 11:18].mean() > 2 * light[15:22, 19:26].mean()
    assert not relief(torch.zeros(2, 12, 9, dtype=torch.uint8)).any()


class TestSpatter:
    def test_water_adds_its_colour_and_mud_covers(self) -> None:
        rng = Keyed(0, range(4))
        images = torch.full((4, 3, 64, 64), 0.2)
        wet = Spatter().apply(images, Spatter().sample(rng, Shape(3, 64, 64), WET), WET)
        added = wet - images
        assert added.min() >= 0
        assert torch.allclose(added[:, 0] / WATER[0], added[:, 1] / WATER[1], atol=1e-5)
        assert added[:, 1].amax(dim=(1, 2)).tolist() == pytest.approx([0.5 * WATER[1]] * 4)
        muddy = Spatter().apply(images, Spatter().sample(rng, Shape(3, 64, 64), DIRTY), DIRTY)
        changed = (muddy != images).any(dim=1)
        assert 0.05 < changed.float().mean() < 0.6
        share = ((images - muddy) / (images - torch.tensor(MUD).view(1, 3, 1, 1)))[:, 2][changed]
        assert share.min() > 0.79
        assert share.max() < 1.01

    def test_one_channel_gets_the_luma_of_the_colour(self) -> None:
        field = Spatter().sample(Keyed(0, range(2)), Shape(1, 40, 40), WET)
        colour = Spatter().apply(torch.zeros(2, 3, 40, 40), field, WET)
        grey = Spatter().apply(torch.zeros(2, 1, 40, 40), field, WET)
        weights = torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)
        torch.testing.assert_close(grey, (colour * weights).sum(dim=1, keepdim=True))
