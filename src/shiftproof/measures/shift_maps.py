"""A map of shifts: near points move the statistics of batch normalisation alike (Schneider et al. 2020, figure 10)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from shiftproof.errors import DataError
from shiftproof.measures.normalization import EPS, Array, Distance, Statistics, in_units_of, mean_distance, pairs


@dataclass(frozen=True, eq=False)
class ShiftMap:
    """Shifts as points in the plane: near points have similar statistics. The source is at the origin.

    `points` are [S, 2], in the order of `names`; `share` is how much of the squared distances the plane shows, 0 to 1.

    Args:
        names: The shifts.
        points: Their places, [S, 2].
        share: How much of the squared distances the plane shows, from 0 to 1.
    """

    names: tuple[str, ...]
    points: Array
    share: float


def shift_map(
    source: Statistics, shifts: Mapping[str, Statistics], distance: Distance = "normalized_wasserstein"
) -> ShiftMap:
    """Return a map of shifts by name from the distances between their statistics, averaged over layers (figure 10).

    The paper embeds with t-SNE; this is classical scaling: deterministic, and true to large distances too. The
    normalised distance between two shifts is in units of the source's standard deviations.

    Args:
        source: Statistics on the source, layer by layer.
        shifts: Statistics under each shift.
        distance: Which distance between normal distributions.
    """
    if not shifts:
        raise DataError("There are no shifts to map.", expected="statistics by shift", got="none")
    everything = [source, *shifts.values()]
    if distance == "normalized_wasserstein":
        distance = "wasserstein"
        everything = [[in_units_of(one, other, EPS) for one, other in pairs(source, each)] for each in everything]
    distances = np.zeros((len(everything), len(everything)))
    for i, one in enumerate(everything):
        for j in range(i):
            distances[i, j] = distances[j, i] = mean_distance(everything[j], one, distance)
    points, share = classical_scaling(distances)
    return ShiftMap(tuple(shifts), points[1:] - points[0], share)


def classical_scaling(distances: Array, dimensions: int = 2) -> tuple[Array, float]:
    """Return points whose distances are close to those given, [S, S], and the share of them shown (Torgerson 1952).

    The points, [S, dimensions], are centred, on principal axes; each axis points to its largest coordinate.
    """
    centred = np.asarray(distances, float) ** 2
    centred = centred - centred.mean(0)
    scalar_products = -(centred - centred.mean(1, keepdims=True)) / 2
    values, vectors = np.linalg.eigh((scalar_products + scalar_products.T) / 2)
    # Distances that are not Euclidean have negative values too: no real axis shows them.
    values, vectors = np.maximum(values[::-1], 0), vectors[:, ::-1]
    points = np.zeros((len(values), dimensions))
    shown = min(dimensions, len(values))
    points[:, :shown] = vectors[:, :shown] * np.sqrt(values[:shown])
    largest = np.abs(points).argmax(0)
    points *= np.where(points[largest, np.arange(dimensions)] < 0, -1.0, 1.0)
    return points, float(values[:shown].sum() / values.sum()) if values.any() else 1.0
