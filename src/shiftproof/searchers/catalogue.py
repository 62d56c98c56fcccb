"""Every searcher by name: a function from a space and a fitness to a trace."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from shiftproof.errors import ConfigurationError
from shiftproof.registry import resolve, unknown
from shiftproof.searchers.trace import Trace

_TARGETS: Mapping[str, str] = {
    "random": "shiftproof.searchers.uniform:random_search",
    "evolution": "shiftproof.searchers.evolving:evolution",
    "racing": "shiftproof.searchers.halving:racing",
    "optuna": "shiftproof.searchers.libraries:optuna_search",
    "cma": "shiftproof.searchers.libraries:cma_search",
}
_GIVEN = frozenset({"space", "evaluate", "length", "budget", "seed", "images"})


@dataclass(frozen=True)
class Facts:
    """What tables say of a searcher."""

    does: str
    paper: str


SEARCHERS: Mapping[str, Facts] = {
    "random": Facts("uniform tuples; the density of fitness and its 0.1% quantile", "Volpi & Murino 2019, alg. 1"),
    "evolution": Facts(
        "selection, crossover, mutation in P (K + 1) evaluations; variants ranked, paper, release",
        "Volpi & Murino 2019, alg. 2",
    ),
    "racing": Facts(
        "random tuples on few images, the lowest third on three times as many", "Jamieson & Talwalkar 2016"
    ),
    "optuna": Facts("optuna's tree-structured Parzen estimator or NSGA-II (extra: search)", "Akiba et al. 2019"),
    "cma": Facts("covariance matrix adaptation over one real number per step (extra: search)", "Hansen 2016"),
}
"""Name -> what it does."""


def searcher(name: str, *, images: int, **options: Any) -> Callable[..., Trace]:
    """Return a searcher with its own options set; `images` is how many there are to race on."""
    if name not in SEARCHERS:
        raise unknown("searcher", name, SEARCHERS)
    function = resolve(_TARGETS, name, "searcher")
    taken = inspect.signature(function).parameters
    for option in options:
        if option not in taken or option in _GIVEN:
            own = sorted(set(taken) - _GIVEN)
            raise ConfigurationError(
                f"The searcher {name!r} has no option {option!r}.", expected=", ".join(own) or "no options of its own"
            )
    return partial(function, **options, **({"images": images} if "images" in taken else {}))
