"""How far a shift moves the statistics of batch normalisation, and what follows (Schneider et al. 2020).

Statistics of a network are one `LayerStatistics` per batch norm; `shiftproof.models` collects them. A layer's channels
are taken as independent Gaussians, as in the paper's appendices A and D. From the distances between source and target
statistics follow the prior to adapt with (`optimal_prior`), the error to expect (`ErrorLine`) and a map of the shifts
(`shift_map`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shiftproof.errors import ConfigurationError, DataError

Array: TypeAlias = NDArray[np.float64]
Distance: TypeAlias = Literal["wasserstein", "normalized_wasserstein", "jeffreys"]
Bound: TypeAlias = Literal["lower", "upper"]

EPS = 1e-5
"""Added to variances that are divided by, as batch norms do, so that a channel that is always zero decides nothing."""


@dataclass(frozen=True, eq=False)
class LayerStatistics:
    """The mean and biased variance of each channel entering a batch norm, [C] each.

    `images` is the number of images they were taken over, None where nobody knows it.
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
                came=f"means of shape {self.mean.shape}, variances of shape {self.var.shape}, or values out of range",
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
    return squared_wasserstein(_in_units_of(source, source, eps), _in_units_of(source, target, eps))


def jeffreys_divergence(source: LayerStatistics, target: LayerStatistics, *, eps: float = EPS) -> float:
    """Return the mean of the two Kullback-Leibler divergences, summed over channels (equations 8 to 10).

    `eps` is added to both variances; 0 is the paper's definition.
    """
    one, other = _positive(source, eps), _positive(target, eps)
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
    """Return the distance between source and target by layer."""
    return {one.name: DISTANCES[distance](one, other) for one, other in _pairs(source, target)}


def mean_distance(source: Statistics, target: Statistics, distance: Distance = "normalized_wasserstein") -> float:
    """Return the distance between source and target averaged over layers."""
    return float(np.mean(list(layer_distances(source, target, distance).values())))


@dataclass(frozen=True, eq=False)
class Bounds:
    """Bounds on an expected squared Wasserstein distance by channel, [C] each; a layer's are their sums."""

    lower: Array
    upper: Array

    def sum(self) -> tuple[float, float]:
        """Return the bounds for the whole layer (section D.4)."""
        return float(self.lower.sum()), float(self.upper.sum())


def expected_distance_bounds(
    source: LayerStatistics, target: LayerStatistics, *, prior: float, n: float, confidence: float = 0.95
) -> Bounds:
    """Return bounds L and U on E[W^2] between the target and its estimate from a prior and n samples (Proposition 1).

    The estimate is N / (N + n) of the source statistics and n / (N + n) of the biased statistics of n samples of the
    target, N being the `prior`, 0 to infinity. L always holds (Jensen). U takes the sample variance to lie above its
    (1 - confidence) / 2 quantile; it is loose for a few samples without a prior.
    """
    _check_samples(prior, n, confidence)
    share = _share(prior, n)
    return Bounds(
        _bound(source, target, share, n, "lower", confidence), _bound(source, target, share, n, "upper", confidence)
    )


def optimal_prior(
    source: Statistics,
    *targets: Statistics,
    n: float,
    bound: Bound = "upper",
    normalized: bool = False,
    confidence: float = 0.95,
    eps: float = EPS,
) -> float:
    """Return the prior N in [0, inf] that makes a bound of Proposition 1 least, for batches of n images.

    The bound is summed over all channels and layers, and over targets where there are several, such as hold-out
    corruptions; `normalized` takes each channel in units of the source's variance (section D.6). The upper bound is
    the safer one: for few samples it asks for more prior. The lower bound is convex in the share N / (N + n), so its
    minimum is the only one; that of the upper bound is the least of a grid, refined.

    As in the paper, n counts images, though a batch norm averages over the pixels of each too. Statistics of a few
    images of the target suffice, `collect_statistics(model, [batch])`; exact ones ask for larger priors.
    """
    if not targets:
        raise ConfigurationError("A prior needs a target.", expected="statistics of one shift or more", came="none")
    _check_samples(0, n, confidence)
    pairs = [pair for target in targets for pair in _pairs(source, target)]
    weights = [1 / _positive(one, eps) if normalized else np.ones_like(one.var) for one, _ in pairs]

    def objective(share: float) -> float:
        bounds = (_bound(one, other, share, n, bound, confidence) for one, other in pairs)
        return math.fsum(float(weight @ values) for weight, values in zip(weights, bounds, strict=True))

    share = _least(objective)
    return math.inf if share == 1 else n * share / (1 - share)


@dataclass(frozen=True)
class ErrorLine:
    """A line from distance to error: `error = slope * distance + intercept` (section C.5).

    `fit` it on shifts whose errors are known, such as the hold-out corruption of a category, and `predict` the errors
    of others. `r_squared` is the share of the variance of the known errors that the line explains.

    >>> line = ErrorLine.fit([0.0, 1.0, 2.0], [0.1, 0.3, 0.5])
    >>> round(float(line.predict(3.0)), 6)
    0.7
    """

    slope: float
    intercept: float
    r_squared: float

    @classmethod
    def fit(cls, distances: ArrayLike, errors: ArrayLike) -> ErrorLine:
        """Return the least-squares line through distances and errors, [S] each, two of the distances apart."""
        x, y = np.asarray(distances, float), np.asarray(errors, float)
        if x.ndim != 1 or x.shape != y.shape or not np.isfinite([x, y]).all() or len(np.unique(x)) < 2:
            raise DataError(
                "No line can be fitted to these distances and errors.",
                expected="as many finite errors as distances, of two different distances at least",
                came=f"{x.size} distances and {y.size} errors",
            )
        around = x - x.mean()
        slope = float(around @ y / (around @ around))
        line = cls(slope, float(y.mean() - slope * x.mean()), math.nan)
        return cls(line.slope, line.intercept, line.score(x, y))

    def predict(self, distances: ArrayLike) -> Array:
        """Return the errors expected at distances of any shape; far from those fitted they can leave [0, 1]."""
        return self.slope * np.asarray(distances, float) + self.intercept

    def score(self, distances: ArrayLike, errors: ArrayLike) -> float:
        """Return R^2 of the line on these shifts: 1 is perfect, 0 no better than their mean error, less is worse."""
        errors = np.asarray(errors, float)
        missed = float(np.sum((errors - self.predict(distances)) ** 2))
        spread = float(np.sum((errors - errors.mean()) ** 2))
        if spread == 0:
            return 1.0 if math.isclose(missed, 0, abs_tol=1e-20) else 0.0
        return 1 - missed / spread


@dataclass(frozen=True, eq=False)
class ShiftMap:
    """Shifts as points in the plane: near points have similar statistics. The source is at the origin.

    `points` are [S, 2], in the order of `names`; `share` is how much of the squared distances the plane shows, 0 to 1.
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
    """
    if not shifts:
        raise DataError("There are no shifts to map.", expected="statistics by shift", came="none")
    everything = [source, *shifts.values()]
    if distance == "normalized_wasserstein":
        distance = "wasserstein"
        everything = [[_in_units_of(one, other, EPS) for one, other in _pairs(source, each)] for each in everything]
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


def _bound(
    source: LayerStatistics, target: LayerStatistics, share: float, n: float, bound: Bound, confidence: float
) -> Array:
    """Return L or U of Proposition 1 by channel for the source's share N / (N + n)."""
    rest = 1 - share
    mixed = share * source.var + rest * (n - 1) / n * target.var  # the expected variance of the estimate
    lower = (
        (np.sqrt(target.var) - np.sqrt(mixed)) ** 2
        + (share * (target.mean - source.mean)) ** 2
        + rest**2 / n * target.var
    )
    if bound == "lower" or n == 1:  # the variance of one sample is always 0: nothing is left to bound
        return lower
    from scipy.special import gammaincinv

    quantile = 2 * gammaincinv((n - 1) / 2, (1 - confidence) / 2)  # of chi-square with n - 1 degrees of freedom
    least = share * source.var + rest * quantile / n * target.var
    ratio = np.divide(target.var, least, out=np.zeros_like(least), where=least > 0)
    return lower + rest**2 * (n - 1) / (2 * n**2) * target.var * ratio**1.5


def _least(objective: Callable[[float], float]) -> float:
    """Return where in [0, 1] a function is least: every valley of a grid is refined between its neighbours."""
    from scipy.optimize import minimize_scalar

    grid = np.linspace(0, 1, 65)
    values = np.array([objective(share) for share in grid])
    around = np.pad(values, 1, constant_values=math.inf)
    valleys = [int(place) for place in np.flatnonzero((values <= around[:-2]) & (values <= around[2:]))]
    found = [(float(values[valley]), float(grid[valley])) for valley in valleys]
    for valley in valleys:
        limits = (grid[max(valley - 1, 0)], grid[min(valley + 1, len(grid) - 1)])
        refined = minimize_scalar(objective, bounds=limits, method="bounded", options={"xatol": 1e-6})
        found.append((float(refined.fun), float(refined.x)))
    return min(found)[1]


def _share(prior: float, n: float) -> float:
    return 1.0 if math.isinf(prior) else prior / (prior + n)


def _pairs(source: Statistics, target: Statistics) -> list[tuple[LayerStatistics, LayerStatistics]]:
    """Return each layer of the target with the source's of the same name; the source may have more."""
    by_name = {layer.name: layer for layer in source}
    strange = [one.name for one in target if one.name not in by_name or by_name[one.name].mean.shape != one.mean.shape]
    if strange or not target:
        raise DataError(
            "These are not statistics of one network.",
            expected="a layer or more, all of them in the source too, with as many channels",
            came=", ".join(strange) or "no layer",
        )
    return [(by_name[layer.name], layer) for layer in target]


def _in_units_of(source: LayerStatistics, layer: LayerStatistics, eps: float) -> LayerStatistics:
    """Return a layer's statistics in units of the source's standard deviations."""
    unit = _positive(source, eps)
    return LayerStatistics(layer.name, layer.mean / np.sqrt(unit), (layer.var + eps) / unit, layer.images)


def _positive(layer: LayerStatistics, eps: float) -> Array:
    """Return variances that can be divided by."""
    var: Array = layer.var + eps
    if (var == 0).any():
        raise DataError(
            f"Layer {layer.name!r} has channels without variance.",
            expected="eps above 0 where a variance is 0",
            came=f"{int((var == 0).sum())} channels of variance 0 and eps={eps:g}",
        )
    return var


def _check_samples(prior: float, n: float, confidence: float) -> None:
    if not (prior >= 0 and 1 <= n < math.inf and 0 < confidence < 1):
        raise ConfigurationError(
            "These numbers of samples have no bounds.",
            expected="a prior of 0 or more, n of 1 or more, a confidence between 0 and 1",
            came=f"prior={prior:g}, n={n:g}, confidence={confidence:g}",
        )
