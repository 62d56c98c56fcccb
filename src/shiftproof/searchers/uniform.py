"""Random search (Volpi & Murino 2019, algorithm 1): its density of fitness is a result, not only its minimum."""

from __future__ import annotations

from shiftproof.keyed import Keyed
from shiftproof.searchers.search_trace import Evaluate, SearchTrace
from shiftproof.searchers.space import Drawing, Genes, Space

BATCH = 50
"""Tuples asked for at a time: enough to share what their first steps have in common."""


def random_search(
    space: Space, evaluate: Evaluate, *, length: int, budget: int, seed: int = 0, draw: Drawing = "step"
) -> SearchTrace:
    """Random search: evaluate `budget` chains drawn uniformly; chain i depends only on the seed and i.

    Args:
        space: The transformations and their levels.
        evaluate: Function from chains to scores.
        length: Transformations in a chain.
        budget: Number of chains.
        seed: The seed of the search.
        draw: How chains are drawn.
    """
    trace = SearchTrace(space, length, "random", seed)
    drawn = draw_tuples(space, length, range(budget), seed=seed, draw=draw)
    for start in range(0, budget, BATCH):
        tuples = drawn[start : start + BATCH]
        trace.add(tuples, evaluate(tuples))
    return trace


def draw_tuples(
    space: Space, length: int, numbers: range, *, seed: int = 0, draw: Drawing = "step", stream: str = "random"
) -> list[Genes]:
    """Return the tuples of some numbers from the endless list that a seed stands for."""
    rng = Keyed(seed, list(numbers)).fork(f"search/{stream}")
    return [tuple(row) for row in space.draw(rng, length, draw).tolist()]
