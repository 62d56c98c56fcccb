"""How well measures rank networks, with intervals: Kendall's tau of networks drawn anew with replacement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from shiftproof.runs import Row


def standing(
    rows: Sequence[Row],
    tests: Iterable[str],
    measures: Sequence[str],
    reference: str,
    *,
    draws: int = 1000,
    seed: int = 0,
) -> dict[str, dict[str, float]]:
    """Return the mean tau of networks of one group over test domains, by measure, with 95% intervals over networks.

    The same networks are drawn for all measures and domains. `ahead` is how far a measure is ahead of the reference.
    """
    counts = drawn(len(rows), draws, np.random.default_rng(seed))
    found = {name: list[NDArray[np.float64]]() for name in measures}
    for test in tests:
        seen = [cast("Mapping[str, Any]", row["domains"])[test] for row in rows]
        truth = [one["accuracy"] for one in seen]
        for name in measures:
            found[name].append(weighted_taus(truth, [one["measures"][name] for one in seen], counts))
    means = {name: mean_of_known(np.array(taus)) for name, taus in found.items()}
    return {
        name: {**interval("mean", taus), **interval("ahead", taus - means[reference])} for name, taus in means.items()
    }


def drawn(networks: int, draws: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return how often each network is taken, [1 + draws, networks]: once each, then drawn with replacement."""
    return np.vstack([np.ones(networks), rng.multinomial(networks, [1 / networks] * networks, draws)])


def weighted_taus(one: Sequence[float], other: Sequence[float], counts: NDArray[Any]) -> NDArray[np.float64]:
    """Return Kendall's tau-b of two lists, each place taken as often as a row of counts says; nan where all is tied."""
    signs = [np.sign(np.subtract.outer(values, values)) for values in (np.asarray(one), np.asarray(other))]
    both, first, second = (
        np.einsum("di,ij,dj->d", counts, products, counts, optimize=True)
        for products in (signs[0] * signs[1], signs[0] ** 2, signs[1] ** 2)
    )
    with np.errstate(invalid="ignore"):
        found: NDArray[np.float64] = both / np.sqrt(first * second)
    return found


def mean_of_known(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the means over rows of what is not nan."""
    known = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        means: NDArray[np.float64] = np.where(known, values, 0.0).sum(0) / known.sum(0)
    return means


def interval(name: str, values: NDArray[np.float64]) -> dict[str, float]:
    """Return the first value, which is that of the networks as they are, and the middle 95% of the others.

    Nothing where there are too few networks for either.
    """
    known = values[1:][~np.isnan(values[1:])]
    if np.isnan(values[0]) or not len(known):
        return {}
    low, high = np.quantile(known, [0.025, 0.975])
    return {name: float(values[0]), f"{name} low": float(low), f"{name} high": float(high)}
