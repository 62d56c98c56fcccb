from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from shiftproof.errors import DataError
from shiftproof.measures import LayerStatistics, shift_map
from shiftproof.measures.shift_maps import classical_scaling
from tests.measures.layers import RNG, layer, random_layer


def test_scaling_finds_points_in_the_plane_again():
    points = RNG.normal(size=(9, 2)) * [3, 1] + 5
    distances = cdist(points, points)
    found, share = classical_scaling(distances)
    np.testing.assert_allclose(cdist(found, found), distances, atol=1e-9)
    assert share == pytest.approx(1)
    np.testing.assert_allclose(found.mean(0), 0, atol=1e-9)
    assert (found[np.abs(found).argmax(0), [0, 1]] > 0).all()
    flat, part = classical_scaling(distances, dimensions=1)
    np.testing.assert_allclose(flat[:, 0], found[:, 0], atol=1e-9)
    assert part == pytest.approx(found[:, 0].var() / found.var(0).sum())


def test_scaling_of_what_no_plane_holds():
    simplex = 1.0 - np.eye(4)  # a tetrahedron: three axes alike
    points, share = classical_scaling(simplex)
    assert points.shape == (4, 2)
    assert share == pytest.approx(2 / 3)
    np.testing.assert_array_equal(classical_scaling(np.zeros((1, 1)))[0], np.zeros((1, 2)))
    np.testing.assert_array_equal(classical_scaling(np.zeros((3, 3)))[0], np.zeros((3, 2)))


def test_the_map_of_one_channel_is_the_plane_of_mean_and_deviation():
    source = [layer(1, 4)]
    shifts = {"darker": [layer(-3, 4)], "noisier": [layer(1, 36)], "both": [layer(-3, 36)]}
    found = shift_map(source, shifts)
    assert found.names == ("darker", "noisier", "both")
    expected = np.array([[0, 0], [-2, 0], [0, 2], [-2, 2]])  # in deviations of the source
    here = np.vstack([np.zeros(2), found.points])
    np.testing.assert_allclose(cdist(here, here), cdist(expected, expected), atol=1e-4)
    assert found.share == pytest.approx(1)


@pytest.mark.parametrize("distance", ["wasserstein", "normalized_wasserstein", "jeffreys"])
def test_near_shifts_are_near_on_the_map(distance):
    source = [random_layer(16, "a"), random_layer(8, "b"), random_layer(4, "never reached")]

    def moved(by: float, towards: int) -> list[LayerStatistics]:
        rng = np.random.default_rng(towards)
        return [layer(x.mean + by * rng.normal(size=x.mean.shape), x.var, x.name) for x in source[:2]]

    found = shift_map(source, {"fog": moved(1, 1), "haze": moved(1.2, 1), "blur": moved(1, 2)}, distance)
    fog, haze, blur = found.points
    assert np.linalg.norm(fog - haze) < 0.5 * min(np.linalg.norm(fog - blur), np.linalg.norm(fog))
    assert 0.5 < found.share <= 1
    with pytest.raises(DataError, match="no shifts"):
        shift_map(source, {})
