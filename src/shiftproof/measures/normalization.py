"""How far a shift moves the statistics of batch normalisation (Schneider et al. 2020).

Statistics of a network are one `LayerStatistics` per batch norm; `shiftproof.models` collects them. A layer's channels
are taken as independent Gaussians, as in the paper's appendices A and D. From the distances between source and target
statistics follow the prior to adapt with (`prior_bounds`), the error to expect (`error_line`) and a map of the shifts
(`shift_maps`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shiftproof.errors import DataError

Array: TypeAlias = NDArray[np.float64]
Distance: TypeAlias = Literal["wasserstein", "normalized_wasserstein", "jeffreys"]

EPS = 1e-5
"""Added to variances that are divided by, as batch norms do, so that a channel that is always zero decides nothing."""


@dataclass(frozen=True, eq=False)
class LayerStatistics:
    """The mean and biased variance of each channel entering a batch norm, [C] each.

    `images` is the number of images they were computed over; None if unknown.

    Args:
        name: The layer.
        mean: Mean of each channel, [C].
        var: Biased variance of each channel, [C].
        images: Number of images; None if unknown.

    >>> LayerStatistics("bn1", np.zeros(3), np.ones(3)).images is None
    True
    """

    name: str
    mean: Array
    var: Array
    images: int | None = None

    def __post_init__(self) -> None:
        usable = self.mean.shape == self.var.shape and self.mean.ndim == 1
        if not usable or not np.isfinite([self.mean, self.var]).all() or (self.var < 0).any():
            raise DataError(
                f"The statistics of layer {self.name!r} cannot be used.",
                expected="a finite mean and a variance of 0 or more for each channel",
                got=f"means of shape {self.mean.shape}, variances of shape {self.var.shape}, or values out of range",
            )


Statistics: TypeAlias = Sequence[LayerStatistics]
"""The statistics of a network, one per batch norm."""


def squared_wasserstein(source: LayerStatistics, target: LayerStatistics) -> float:
    """Return the squared 2-Wasserstein distance of two layers' Gaussians, summed over channels (equation 4).

    >>> source = LayerStatistics("bn", mean=np.array([0.0]), var=np.array([1.0]))
    >>> target = LayerStatistics("bn", mean=np.array([3.0]), var=np.array([25.0]))
    >>> squared_wasserstein(source, target)
    25.0
    """
    return float(np.sum((source.mean - target.mean) ** 2 + (np.sqrt(source.var) - np.sqrt(target.var)) ** 2))


def normalized_squared_wasserstein(source: LayerStatistics, target: LayerStatistics, *, eps: float = EPS) -> float:
    """Return the squared 2-Wasserstein distance in units of the source's standard deviations (equations 5 to 7).

    It is not symmetric. `eps` is added to both variances; 0 is the paper's definition.
    """
    return squared_wasserstein(in_units_of(source, source, eps), in_units_of(source, target, eps))


def jeffreys_divergence(source: LayerStatistics, target: LayerStatistics, *, eps: float = EPS) -> float:
    """Return the mean of the two Kullback-Leibler divergences, summed over channels (equations 8 to 10).

    `eps` is added to both variances; 0 is the paper's definition.
    """
    one, other = positive_variances(source, eps), positive_variances(target, eps)
    gap = (source.mean - target.mean) ** 2
    # other / one + one / other - 2, written without the cancellation
    return float(np.sum((one - other) ** 2 / (one * other) + gap * (1 / one + 1 / other)) / 4)


DISTANCES: Mapping[Distance, Callable[[LayerStatistics, LayerStatistics], float]] = {
    "wasserstein": lambda source, target: math.sqrt(squared_wasserstein(source, target)),
    "normalized_wasserstein": lambda source, target: math.sqrt(normalized_squared_wasserstein(source, target)),
    "jeffreys": jeffreys_divergence,
}
"""Name -> distance between two layers; Wasserstein distances are the roots, which grow as the shift does."""


def layer_distances(
    source: Statistics, target: Statistics, distance: Distance = "normalized_wasserstein"
) -> dict[str, float]:
    """Return the distance between source and target by layer.

    Args:
        source: Statistics on the source, layer by layer.
        target: Statistics on the target.
        distance: Which distance between normal distributions.
    """
    return {one.name: DISTANCES[distance](one, other) for one, other in pairs(source, target)}


def mean_distance(source: Statistics, target: Statistics, distance: Distance = "normalized_wasserstein") -> float:
    """Return the distance between source and target averaged over layers.

    Args:
        source: Statistics on the source, layer by layer.
        target: Statistics on the target.
        distance: Which distance between normal distributions.
    """
    return float(np.mean(list(layer_distances(source, target, distance).values())))


def pairs(source: Statistics, target: Statistics) -> list[tuple[LayerStatistics, LayerStatistics]]:
    """Return each layer of the target with the source's of the same name; the source may have more."""
    by_name = {layer.name: layer for layer in source}
    strange = [one.name for one in target if one.name not in by_name or by_name[one.name].mean.shape != one.mean.shape]
    if strange or not target:
        raise DataError(
            "These are not statistics of one network.",
            expected="a layer or more, all of them in the source too, with as many channels",
            got=", ".join(strange) or "no layer",
        )
    return [(by_name[layer.name], layer) for layer in target]


def in_units_of(source: LayerStatistics, layer: LayerStatistics, eps: float) -> LayerStatistics:
    """Return a layer's statistics in units of the source's standard deviations."""
    unit = positive_variances(source, eps)
    return LayerStatistics(layer.name, layer.mean / np.sqrt(unit), (layer.var + eps) / unit, layer.images)


def positive_variances(layer: LayerStatistics, eps: float) -> Array:
    """Return variances that can be divided by."""
    var: Array = layer.var + eps
    if (var == 0).any():
        raise DataError(
            f"Layer {layer.name!r} has channels without variance.",
            expected="eps above 0 where a variance is 0",
            got=f"{int((var == 0).sum())} channels of variance 0 and eps={eps:g}",
        )
    return var
