"""Every searcher by name: a function from a space and a fitness to a trace."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, get_type_hints

from shiftproof.errors import ConfigurationError
from shiftproof.options import read_as
from shiftproof.registry import Registry
from shiftproof.searchers.search_trace import SearchTrace

_OWN: Mapping[str, str] = {
    "random": "shiftproof.searchers.uniform:random_search",
    "evolution": "shiftproof.searchers.evolving:evolution",
    "climbing": "shiftproof.searchers.stepwise:climbing",
    "racing": "shiftproof.searchers.halving:racing",
    "optuna": "shiftproof.searchers.libraries:optuna_search",
    "cma": "shiftproof.searchers.libraries:cma_search",
}
_GIVEN = frozenset({"space", "evaluate", "length", "budget", "seed", "images"})


@dataclass(frozen=True)
class SearcherFacts:
    """What tables say of a searcher."""

    does: str
    paper: str


_FACTS: Mapping[str, SearcherFacts] = {
    "random": SearcherFacts(
        "uniform random chains; the distribution of fitness and its 0.1% quantile", "Volpi & Murino 2019, alg. 1"
    ),
    "evolution": SearcherFacts(
        "selection, crossover, mutation in P (K + 1) evaluations; variants ranked, paper, release",
        "Volpi & Murino 2019, alg. 2",
    ),
    "climbing": SearcherFacts("chains of one operation at its strongest, then one change at a time to the worst", ""),
    "racing": SearcherFacts(
        "successive halving: random chains on few images, the lowest third on three times as many",
        "Jamieson & Talwalkar 2016",
    ),
    "optuna": SearcherFacts(
        "optuna's tree-structured Parzen estimator or NSGA-II (extra: search)", "Akiba et al. 2019"
    ),
    "cma": SearcherFacts("covariance matrix adaptation over one real number per step (extra: search)", "Hansen 2016"),
}


def _is_searcher(found: object) -> bool:
    return inspect.isfunction(found) and {"length", "budget", "seed"} <= inspect.signature(found).parameters.keys()


SEARCHERS: Registry[Callable[..., SearchTrace]] = Registry(
    "searcher",
    "shiftproof.searchers",
    _OWN,
    _is_searcher,
    "a function (space, evaluate, *, length, budget, seed, ...) -> Trace",
)
"""Name -> function; others add theirs."""


def facts(name: str) -> SearcherFacts:
    """Return what tables say of a searcher; of somebody else's, the first line of its docstring."""
    if name in _FACTS:
        return _FACTS[name]
    return SearcherFacts((inspect.getdoc(SEARCHERS.load(name)) or "").partition("\n")[0], "")


def searcher(name: str, *, images: int, **options: Any) -> Callable[..., SearchTrace]:
    """Return a searcher with its own options set; `images` is how many there are to race on.

    Options that come as text are read as the function annotates them.

    Args:
        name: One of `searchers.SEARCHERS`.
        images: Number of images.
        options: Options of the searcher.
    """
    function = SEARCHERS.load(name)
    taken = inspect.signature(function).parameters
    for option in options:
        if option not in taken or option in _GIVEN:
            own = sorted(set(taken) - _GIVEN)
            raise ConfigurationError(
                f"The searcher {name!r} has no option {option!r}.", expected=", ".join(own) or "no options of its own"
            )
    hints = get_type_hints(function) if options else {}
    read = {
        option: read_as(hints.get(option, str), option, value, name) if isinstance(value, str) else value
        for option, value in options.items()
    }
    return partial(function, **read, **({"images": images} if "images" in taken else {}))
