"""Searchers of other libraries on the same spaces: optuna's samplers and cma's evolution strategy.

Both ask for tuples and are told their fitness; whatever they draw follows from the seed, so a search that is run again
asks the same questions, and those answered before cost nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Literal, TypeAlias

import numpy as np

from shiftproof.errors import ConfigurationError
from shiftproof.searchers.search_trace import Evaluate, SearchTrace
from shiftproof.searchers.space import Genes, Space

Sampler: TypeAlias = Literal["tpe", "nsgaii"]
SAMPLERS: Mapping[str, str] = {"tpe": "TPESampler", "nsgaii": "NSGAIISampler"}
_INSTALL = "pip install 'shiftproof[search]'"
_LARGEST_SEED = 2**32 - 1


def optuna_search(
    space: Space,
    evaluate: Evaluate,
    *,
    length: int,
    budget: int,
    seed: int = 0,
    sampler: Sampler = "tpe",
    batch: int = 10,
) -> SearchTrace:
    """Search with optuna: each place of the tuple is a choice of operation and, given that, of a level.

    `sampler` is `tpe` (a tree-structured Parzen estimator) or `nsgaii` (a genetic algorithm). Tuples are asked for
    `batch` at a time.
    """
    if sampler not in SAMPLERS:
        raise ConfigurationError(f"There is no sampler {sampler!r}.", expected=", ".join(SAMPLERS), got=str(sampler))
    optuna = _needed("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    maker = getattr(optuna.samplers, SAMPLERS[sampler])
    study = optuna.create_study(sampler=maker(seed=seed & _LARGEST_SEED), direction="minimize")
    starts = np.cumsum([0, *space.counts])

    def genes(trial: Any) -> Genes:
        chosen = []
        for place in range(length):
            which = trial.suggest_categorical(f"operation{place}", list(range(len(space.counts))))
            level = trial.suggest_int(f"level{place}.{which}", 0, space.counts[which] - 1)
            chosen.append(int(starts[which]) + level)
        return tuple(chosen)

    trace = SearchTrace(space, length, f"optuna-{sampler}", seed)
    while len(trace) < budget:
        asked = [study.ask() for _ in range(min(batch, budget - len(trace)))]
        tuples = [genes(trial) for trial in asked]
        scores = evaluate(tuples)
        trace.add(tuples, scores)
        for trial, score in zip(asked, scores, strict=True):
            study.tell(trial, score.objective)
    return trace


def cma_search(space: Space, evaluate: Evaluate, *, length: int, budget: int, seed: int = 0) -> SearchTrace:
    """Search with the covariance matrix adaptation evolution strategy, over one real number in [0, 1] per place.

    The numbers are cut into as many intervals as the space has steps, in its order, so that near numbers are mostly the
    same operation at near levels. When a run converges, the next starts elsewhere.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of packages for plots that it does not need
        cma = _needed("cma")
    trace = SearchTrace(space, length, "cma", seed)
    # One dimension more where there is one place: the strategy needs two.
    dimensions = max(2, length)
    restart = 0
    while len(trace) < budget:
        options = {"bounds": [0.0, 1.0], "seed": 1 + (seed * 1009 + restart) % _LARGEST_SEED, "verbose": -9}
        start = np.random.default_rng([seed & _LARGEST_SEED, restart]).uniform(0.2, 0.8, dimensions)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            strategy = cma.CMAEvolutionStrategy(start, 0.3, options)
        while not strategy.stop() and len(trace) < budget:
            asked = strategy.ask()
            points = np.clip(np.array(asked)[:, :length], 0.0, np.nextafter(1.0, 0.0))
            tuples: list[Genes] = [tuple(row) for row in np.floor(points * len(space)).astype(int).tolist()]
            tuples = tuples[: budget - len(trace)]
            scores = evaluate(tuples)
            trace.add(tuples, scores)
            if len(tuples) == len(asked):
                strategy.tell(asked, [score.objective for score in scores])
        restart += 1
    return trace


def _needed(package: str) -> Any:
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"The searcher needs the package {package}.",
            fix=f"{_INSTALL}, or one of the searchers random, evolution, racing",
        ) from error
