"""Training on chains of transformations, uniform ones or those a network is found weak to (Volpi & Murino 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, Literal

from annotated_types import Ge
from torch import Tensor, nn

from shiftproof.data import ImageSet
from shiftproof.keyed import Keyed
from shiftproof.options import Count, Options, Positive
from shiftproof.searchers import Direct, Space, make_space
from shiftproof.searchers import searcher as find_searcher
from shiftproof.searchers.evaluator import Evaluator, hold
from shiftproof.searchers.fitness import Classification
from shiftproof.searchers.space import Genes
from shiftproof.searchers.uniform import draw_tuples
from shiftproof.shifts import ImageChain
from shiftproof.training.learning_layers import evaluating


class Tuples(Options):
    """Which tuples of `length` operations a network is trained on, one or more per batch, and how they are found.

    Without a `searcher`, every batch gets a tuple drawn uniformly from the space (rda). With one, training begins with
    the identity alone; every `every` epochs (fractions are allowed) `images` of the training set are searched for a
    tuple with `budget` evaluations, which joins the set, until there are `most` (algorithm 3).

    The paper has one tuple per batch. Batch normalisation takes much of it out again, with the statistics of the batch;
    with several `per_batch`, each for an equal part of it, it cannot.
    """

    searcher: Annotated[Literal["random", "evolution"] | None, "What finds tuples; None: they are drawn."] = None
    space: Annotated[str, "The space of operations."] = "cifar"
    length: Annotated[Count, "Operations of a tuple."] = 5
    every: Annotated[Positive, "Epochs between two searches."] = 5.0
    images: Annotated[Count, "Training images that a search looks at."] = 2000
    budget: Annotated[Count, "Evaluations of a search."] = 100
    most: Annotated[int, Ge(0), "How many tuples are found at most."] = 100
    per_batch: Annotated[Count, "Tuples of a batch, each for an equal part of it."] = 1

    def search_steps(self, steps: int, steps_per_epoch: int) -> list[int]:
        """Return the steps before which a search is made, within a run of so many steps.

        >>> Tuples("random", every=0.5, most=3).search_steps(100, 10)
        [5, 10, 15]
        """
        if self.searcher is None:
            return []
        gap = max(1, round(self.every * steps_per_epoch))
        return list(range(gap, steps, gap))[: self.most]

    def at(self, steps: range, found: Sequence[Genes], *, seed: int) -> list[Genes]:
        """Return the tuples of steps, `per_batch` each: uniform over the space, or over the identity and the found."""
        numbers = range(steps.start * self.per_batch, steps.stop * self.per_batch)
        if self.searcher is None:
            return draw_tuples(_space(self.space), self.length, numbers, seed=seed, stream="rda")
        which = Keyed(seed, list(numbers)).fork("train/tuple").integers(0, len(found) + 1)
        return [() if place == 0 else found[place - 1] for place in which.tolist()]

    def chain(self, genes: Genes) -> ImageChain:
        """Return a tuple as a shift."""
        return _space(self.space).chain(genes)


@cache
def _space(name: str) -> Space:
    return make_space(name)


class TupleSearch:
    """Looks for the tuple that a network is weakest to now, on a fixed part of the training set."""

    def __init__(self, tuples: Tuples, data: ImageSet, *, seed: int, device: str, batch_size: int) -> None:
        self.tuples, self.seed, self.batch_size = tuples, seed, batch_size
        self.space = _space(tuples.space)
        taken = data.take(tuples.images, seed=seed).in_memory()
        if taken.labels is None:
            raise ValueError("a search needs labels")
        self.labels: Tensor = taken.labels
        self.pixels = hold(taken, device)

    def __call__(self, network: nn.Module, number: int) -> Genes:
        """Return the worst tuple that a search finds; its random numbers depend on the seed and its number."""
        with evaluating(network):
            fitness = Classification(network, self.labels)
            evaluator = Evaluator(self.space, self.pixels, fitness, batch_size=self.batch_size, seed=self.seed)
            run: Any = find_searcher(str(self.tuples.searcher), images=len(self.pixels))
            seed = 1_000_003 * self.seed + number
            trace = run(self.space, Direct(evaluator), length=self.tuples.length, budget=self.tuples.budget, seed=seed)
        genes: Genes = trace.worst_tuples(1)[0].genes
        return genes
