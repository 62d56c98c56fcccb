"""A searcher: change one step at a time of the worst chain of transformations so far."""

from __future__ import annotations

import numpy as np

from shiftproof.searchers import SearchTrace, Space
from shiftproof.searchers.search_trace import Evaluate
from shiftproof.searchers.space import Genes


def climb(space: Space, evaluate: Evaluate, *, length: int, budget: int, seed: int = 0, tries: int = 4) -> SearchTrace:
    """Try `tries` neighbours of the worst chain at a time, and go on from the worst of them."""
    trace, rng = SearchTrace(space, length, "climb", seed), np.random.default_rng(seed)
    chains: list[Genes] = [tuple(rng.integers(len(space), size=length).tolist())]
    while budget > 0:
        scores = evaluate(chains[:budget])
        trace.add(chains[:budget], scores)
        budget -= len(scores)
        worst = np.array(trace.worst_tuples(1)[0].genes)
        steps = rng.integers(length, size=tries)[:, None] == np.arange(length)
        chains = [tuple(row) for row in np.where(steps, rng.integers(len(space), size=(tries, 1)), worst).tolist()]
    return trace
