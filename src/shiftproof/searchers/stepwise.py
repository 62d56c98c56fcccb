"""Climbing: chains of one operation at its strongest first, then one change at a time to the worst of them.

Chains that hurt often repeat a step, or hold neighbours of one that does, which uniform tuples hardly ever do: with
some hundred evaluations evolution from these ends where its first tuples happened to lie, and two seeds differ by tens
of points.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

from shiftproof.errors import ConfigurationError
from shiftproof.keyed import Keyed
from shiftproof.searchers.search_trace import Evaluate, SearchTrace
from shiftproof.searchers.space import Genes, Space

AT_ONCE = 6
"""Chains evaluated between two looks at what is worst."""
PARENTS, DONORS = 4, 8
"""So many of the worst chains are changed, and lend their steps to others."""
FIRST_SHARE = 3
"""One in so many evaluations is of a chain of one operation."""
ANY, LEVEL, LENT = 0.4, 0.6, 0.9
"""Below the first a step is replaced by any, then by another level, then by one of another chain; else steps swap."""
ATTEMPTS = 500


def climbing(space: Space, evaluate: Evaluate, *, length: int, budget: int, seed: int = 0) -> SearchTrace:
    """Hill climbing: try chains of one operation at its end levels, then change one step of the worst at a time.

    Args:
        space: The transformations and their levels.
        evaluate: Function from chains to scores.
        length: Transformations in a chain.
        budget: The most evaluations; in a small space there may be fewer.
        seed: The seed of the search.
    """
    if budget < 1:
        raise ConfigurationError("The budget must be positive.", expected="1 evaluation or more", got=str(budget))
    trace = SearchTrace(space, length, "climbing", seed)
    known: dict[Genes, float] = {}
    tuples = first_chains(space, length, max(1, budget // FIRST_SHARE), seed)
    rounds = 0
    while tuples:
        scores = evaluate(tuples)
        trace.add(tuples, scores)
        known |= zip(tuples, (score.objective for score in scores), strict=True)
        rounds += 1
        rng = Keyed(seed, [rounds]).fork("search/climbing/round")
        tuples = _changed(space, known, min(AT_ONCE, budget - len(trace)), rng)
    return trace


def first_chains(space: Space, length: int, count: int, seed: int) -> list[Genes]:
    """Return up to `count` chains that repeat one operation at an end of its levels, in an order that the seed draws.

    >>> space = Space("mine", (("contrast", (0.6, 1.0, 1.4)), ("grayscale", ()), ("fog@", (1.0, 2.0))))
    >>> sorted(space.label(genes) for genes in first_chains(space, 1, 9, seed=0))
    ['contrast=0.6', 'contrast=1.4', 'fog@2', 'grayscale']
    """
    ends = []
    for (name, _), first, levels in zip(space.operations, _starts(space), space.counts, strict=True):
        last = first + levels - 1
        ends += [last] if name.endswith("@") or levels == 1 else [first, last]  # severities begin at no change
    order = Keyed(seed, range(len(ends))).fork("search/climbing/first").uniform().argsort().tolist()
    return [(ends[place],) * length for place in order[:count]]


def _changed(space: Space, known: dict[Genes, float], count: int, rng: Keyed) -> list[Genes]:
    """Return new chains, each one change away from one of the worst; fewer where a small space has no more."""
    ranked = sorted(known, key=lambda genes: known[genes])  # stable: the older of equals first
    made: dict[Genes, None] = {}
    for _ in range(ATTEMPTS):
        if len(made) >= count:
            break
        parent, place, how, what, lender = rng.uniform(shape=(5,))[0].tolist()
        genes = ranked[min(int(-math.log1p(-parent)), PARENTS - 1, len(ranked) - 1)]
        child = _change(space, genes, int(place * len(genes)), how, what, ranked[_of(lender, ranked[:DONORS])])
        if child not in known:
            made[child] = None
    return list(made)


def _change(space: Space, genes: Genes, place: int, how: float, what: float, lender: Genes) -> Genes:
    """Return a chain with one change at a place; `what` picks among the possibilities."""
    if how >= LENT:
        other = _of(what, genes)
        swapped = list(genes)
        swapped[place], swapped[other] = swapped[other], swapped[place]
        return tuple(swapped)
    step = lender[_of(what, lender)]
    levels = _levels(space, genes[place])
    if how < ANY or (how < LEVEL and len(levels) == 1):
        step = int(what * len(space))
    elif how < LEVEL:
        step = levels[_of(what, levels)]
    return (*genes[:place], step, *genes[place + 1 :])


def _of(unit: float, among: Sequence[object]) -> int:
    """Return the place that a number in [0, 1) picks."""
    return int(unit * len(among))


def _starts(space: Space) -> list[int]:
    """Return the first step of every operation."""
    return [0, *accumulate(space.counts)][:-1]


def _levels(space: Space, step: int) -> range:
    """Return the steps of the operation that a step is one of."""
    first = max(start for start in _starts(space) if start <= step)
    return range(first, first + space.counts[_starts(space).index(first)])
