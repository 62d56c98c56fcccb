"""The prior to adapt with: bounds on the distance of estimated statistics (Schneider et al. 2020, Proposition 1)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from shiftproof.errors import ConfigurationError
from shiftproof.measures.normalization import EPS, Array, LayerStatistics, Statistics, pairs, positive_variances

Bound: TypeAlias = Literal["lower", "upper"]


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

    Args:
        source: Statistics of a layer on the source.
        target: Statistics of that layer on the target.
        prior: Images that the source statistics count for, N.
        n: Images in a batch.
        confidence: That of the upper bound.
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

    Args:
        source: Statistics on the source, layer by layer.
        targets: Statistics on targets.
        n: Images in a batch.
        bound: `upper` or `lower`.
        normalized: Whether channels are in units of the source's variance.
        confidence: That of the upper bound.
        eps: Added to variances before they are divided by.
    """
    if not targets:
        raise ConfigurationError("A prior needs a target.", expected="statistics of one shift or more", got="none")
    _check_samples(0, n, confidence)
    met = [pair for target in targets for pair in pairs(source, target)]
    weights = [1 / positive_variances(one, eps) if normalized else np.ones_like(one.var) for one, _ in met]

    def objective(share: float) -> float:
        bounds = (_bound(one, other, share, n, bound, confidence) for one, other in met)
        return math.fsum(float(weight @ values) for weight, values in zip(weights, bounds, strict=True))

    share = _least(objective)
    return math.inf if share == 1 else n * share / (1 - share)


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


def _check_samples(prior: float, n: float, confidence: float) -> None:
    if not (prior >= 0 and 1 <= n < math.inf and 0 < confidence < 1):
        raise ConfigurationError(
            "Invalid settings for the bounds.",
            expected="a prior of 0 or more, n of 1 or more, a confidence between 0 and 1",
            got=f"prior={prior:g}, n={n:g}, confidence={confidence:g}",
        )
