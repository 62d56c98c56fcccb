"""Evolution-based search (Volpi & Murino 2019, algorithm 2): selection, one-point crossover, mutation.

The paper selects with weights 1 / f and lets parents die. Where a model keeps most of its accuracy under most tuples,
f is near 1 for all of them, the weights are nearly equal, and what is left is drift: random search then finds worse
tuples with the same budget. So beside the variants `paper` and `release` there is `ranked`, the default: the same
crossover and mutation, with parents drawn by rank from the best tuples seen so far, and no tuple tried twice.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shiftproof.errors import ConfigurationError
from shiftproof.keyed import Keyed
from shiftproof.searchers.search_trace import Evaluate, SearchTrace
from shiftproof.searchers.space import Drawing, Genes, Space
from shiftproof.searchers.uniform import draw_tuples

Variant: TypeAlias = Literal["ranked", "paper", "release"]
Population: TypeAlias = NDArray[np.int64]

POPULATION = 10
MUTATION = 0.1
ATTEMPTS = 20
LEAST = 1e-3
"""A fitness below this is taken for it in the weights 1 / f: a tuple that breaks the model on every image has f = 0."""


def evolution(
    space: Space,
    evaluate: Evaluate,
    *,
    length: int,
    budget: int,
    seed: int = 0,
    population: int = POPULATION,
    mutation: float = MUTATION,
    variant: Variant = "ranked",
) -> SearchTrace:
    """Evolutionary search: a population of P chains over K generations, P (K + 1) evaluations within the budget.

    Each generation selects P / 2 pairs of parents, crosses each at one point into two children, and mutates every gene
    with probability `mutation`.

    * `paper`: (operation, level) pairs are drawn uniformly, parents from the last generation with weights 1 / f, cuts
      after gene 1 to N. The best tuple ever seen is in the trace and nowhere else.
    * `release`: operations are drawn first and then levels, weights are 1 - f, and the cut may precede the first gene.
    * `ranked`: parents are the P best tuples so far, with weights falling linearly from the best to the last, and a
      child that was tried before gets fresh genes until it is new.

    Args:
        space: The transformations and their levels.
        evaluate: Function from chains to scores.
        length: Transformations in a chain.
        budget: The most evaluations.
        seed: The seed of the search.
        population: Chains in a generation.
        mutation: The probability that a gene is drawn anew.
        variant: `paper`, `release` or `ranked`.
    """
    _check(budget, population, mutation, variant)
    trace = SearchTrace(space, length, "evolution", seed)
    tuples = draw_tuples(space, length, range(population), seed=seed, draw=_drawing(variant), stream="evolution")
    parents: dict[Genes, float] = {}
    for generation in range(1, budget // population + 1):
        scores = evaluate(tuples)
        trace.add(tuples, scores)
        rng = Keyed(seed, [generation]).fork("search/evolution/generation")
        fitness = [score.objective for score in scores]
        if variant != "ranked":
            tuples = next_generation(space, tuples, fitness, rng, mutation=mutation, variant=variant)
            continue
        parents |= zip(tuples, fitness, strict=True)
        best = sorted(parents, key=lambda genes: parents[genes])  # stable: the older of equals first
        best = (best * population)[:population]  # over again, where a small space has fewer
        children = next_generation(
            space, best, [parents[genes] for genes in best], rng, mutation=mutation, variant=variant
        )
        tuples = renew(space, children, parents, rng.fork("renewal"))
    return trace


def next_generation(
    space: Space, tuples: list[Genes], fitness: ArrayLike, rng: Keyed, *, mutation: float, variant: Variant
) -> list[Genes]:
    """Return the children of a population; `rng` stands for the generation, with a single key."""
    now = np.array(tuples, dtype=np.int64)
    count, length = now.shape
    weights = selection_weights(fitness, variant)
    first, second = (select(weights, rng.uniform(shape=(count // 2,)).numpy()[0]) for _ in range(2))
    low, high = (0, length) if variant == "release" else (1, length + 1)
    cuts = rng.integers(low, high, (count // 2,)).numpy()[0]
    children = cross(now[first], now[second], cuts)
    changes = rng.uniform(shape=(count, length)).numpy()[0] < mutation
    fresh = space.draw(rng.fork("mutation"), count * length, _drawing(variant))
    return [tuple(row) for row in np.where(changes, fresh.reshape(count, length), children).tolist()]


def renew(space: Space, tuples: list[Genes], known: Container[Genes], rng: Keyed) -> list[Genes]:
    """Give tuples that are known, or come twice, one fresh gene after another until they are new.

    In a space so small that this does not help, they stay as they are.
    """
    renewed: dict[Genes, None] = {}
    kept: list[Genes] = []
    for genes in tuples:
        child = genes
        for _ in range(ATTEMPTS):
            if child not in known and child not in renewed:
                break
            place, step = int(rng.integers(0, len(genes))), int(rng.integers(0, len(space)))
            child = (*child[:place], step, *child[place + 1 :])
        renewed[child] = None
        kept.append(child)
    return kept


def selection_weights(fitness: ArrayLike, variant: Variant = "paper") -> NDArray[np.float64]:
    """Return the chance of each individual to be selected, proportional to 1 / f; release: 1 - f; ranked: by rank.

    >>> selection_weights([0.2, 0.8]).tolist()
    [0.8, 0.2]
    """
    values = np.asarray(fitness, dtype=np.float64)
    if variant == "ranked":
        weights = len(values) - np.argsort(np.argsort(values, kind="stable")).astype(np.float64)
    else:
        weights = 1.0 / np.maximum(values, LEAST) if variant == "paper" else np.maximum(1.0 - values, 0.0)
    if not weights.any():  # nobody has done any harm
        weights = np.ones_like(weights)
    return np.asarray(weights / weights.sum())


def select(weights: NDArray[np.float64], uniform: NDArray[np.floating]) -> NDArray[np.intp]:
    """Return a place in the population for each uniform number, with replacement."""
    return np.minimum(np.searchsorted(np.cumsum(weights), uniform, side="right"), len(weights) - 1)


def cross(first: Population, second: Population, cuts: NDArray[np.int64]) -> Population:
    """Return both children of every pair, [2 * pairs, N]: the genes up to the cut of one parent, the rest of the other.

    >>> cross(np.array([[1, 2, 3]]), np.array([[4, 5, 6]]), np.array([2])).tolist()
    [[1, 2, 6], [4, 5, 3]]
    """
    head = np.arange(first.shape[1]) < cuts[:, None]
    return np.concatenate([np.where(head, first, second), np.where(head, second, first)])


def _check(budget: int, population: int, mutation: float, variant: str) -> None:
    if population < 2 or population % 2:
        raise ConfigurationError(
            "The population must be an even number.",
            expected="an even number of chains, 2 or more",
            got=str(population),
        )
    if budget < population:
        raise ConfigurationError(
            "The budget is smaller than one generation.",
            expected=f"{population} evaluations or more, the size of the population",
            got=str(budget),
        )
    if not 0.0 <= mutation <= 1.0:
        raise ConfigurationError("The mutation rate must be a probability.", expected="0 to 1", got=f"{mutation:g}")
    if variant not in get_args(Variant):
        raise ConfigurationError(
            f"There is no variant {variant!r} of evolution.", expected=", ".join(get_args(Variant)), got=variant
        )


def _drawing(variant: Variant) -> Drawing:
    return "operation" if variant == "release" else "step"
