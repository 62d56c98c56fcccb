"""What the section on the worst case measures: chains searched on some images, and measured on others.

The images of an audit are cut in three: chains are searched on the first, the worst of them are compared on the second,
and the one that is reported is measured on the third, which had no part in choosing it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from shiftproof.audits.sections.base import FORWARD, Measurement, Scope, Unit, Work
from shiftproof.audits.sections.measuring import check_labels, picture
from shiftproof.data import as_images
from shiftproof.measures.similarity import level_similarity
from shiftproof.models import has_batch_norm
from shiftproof.runs import Json, Row
from shiftproof.shifts.levels import from_levels
from shiftproof.subjects import Subject

if TYPE_CHECKING:
    from shiftproof.searchers import Evaluator, Score, SearchTrace, Space
    from shiftproof.searchers.space import Genes

Bools = NDArray[np.bool_]

SIMILARITY = 0.8
"""A chain counts as leaving images recognisable from this mean structural similarity on."""
EXAMPLES = 4
CHOICE = 32
"""Examples are chosen among the first so many images, of which no more are asked than it takes."""
COMPARED = 5
"""Chains of a space that are compared on images they were not searched on."""
BATCHES_AHEAD = 2
"""Batches of chains that a GPU is given at a time: one to compute while the next is made ready."""
FIRST_SHARE, KEPT, MARGIN = 0.4, 5, 0.15
"""Chains are tried on this share of the images first; the others follow where they may be among so many worst."""


class SearchedParts(NamedTuple):
    """How many images chains are searched on, then compared on, then measured on, in the order of the images."""

    searched: int
    compared: int
    measured: int

    @classmethod
    def of(cls, scope: Scope, searched: int, compared: int, measured: int) -> SearchedParts:
        """Cut the images of an audit; of few, into thirds."""
        third = max(1, scope.images // 3)
        first, second = (min(scope.scaled(size, 16), third) for size in (searched, compared))
        return cls(first, second, max(1, min(scope.scaled(measured, 48), scope.images - first - second)))

    @property
    def known(self) -> int:
        """How many images have a part in choosing a chain."""
        return self.searched + self.compared

    @property
    def all(self) -> int:
        """How many there are."""
        return self.known + self.measured


@dataclass(frozen=True)
class SearchedSpace(Measurement):
    """Chains of a space that climbing finds, over several seeds, and the worst of them on other images.

    With a `similarity` only chains count that leave images at least as similar on average; without, all of the space.
    """

    kind = "worst_case.search"
    space: Space
    length: int
    similarity: float | None
    parts: SearchedParts
    budget: int
    runs: int
    seed: int

    def measure(self, subject: Subject) -> Row:
        """Return what was tried, the worst chains on other images, and pictures of the worst."""
        evaluator = _evaluator(self.space, subject, self.parts.all, self.similarity, self.seed)
        traces = [self._search(evaluator, run) for run in range(self.runs)]
        row: dict[str, Json] = {
            "runs": {str(number): _trials(trace) for number, trace in enumerate(traces, 1)},
            "batch_norm": has_batch_norm(subject.model),
        }
        chains = _worst(traces)
        if not chains:
            return row
        compared = self.parts.searched, self.parts.known, self.similarity
        right, kept = zip(*(_under(evaluator, genes, *compared) for genes in chains), strict=True)
        firsts = [trace.best(admissible=True) for trace in traces]
        spread = [float(right[chains.index(best.genes)].mean()) for best in firsts if best is not None]
        searched = {trial.genes: trial.score.objective for trace in traces for _, trial in trace.full()}
        right_before = [
            float(searched[genes] * self.parts.searched + some.sum()) for genes, some in zip(chains, right, strict=True)
        ]
        chosen = chains[int(np.argmin(right_before))]
        final, _ = _under(evaluator, chosen, self.parts.known, self.parts.all, None)
        surviving = np.logical_and.reduce([some | ~there for some, there in zip(right, kept, strict=True)])
        return {
            **row,
            "spread": spread,
            "compared": len(chains),
            "surviving": np.packbits(surviving).tobytes().hex(),
            "chain": self.space.words(chosen),
            "label": self.space.label(chosen),
            "searched": searched[chosen],
            "before": min(right_before) / self.parts.known,
            "similarity": _similarity(evaluator, chosen, self.parts.searched),
            "right": int(final.sum()),
            "images": len(final),
            "pictures": _pictures(evaluator, chosen),
        }

    def _search(self, evaluator: Evaluator, run: int) -> SearchTrace:
        from shiftproof.searchers import climbing

        raced, seed = RacedChains(evaluator, self.parts.searched), self.seed + 1000 * run
        return climbing(self.space, raced, length=self.length, budget=self.budget, seed=seed)

    def work(self) -> Work:
        """Count images under a chain: in the search, in the comparison, measured, and those of pictures."""
        searched = self.budget * self.runs * self.parts.searched
        images = searched + COMPARED * self.parts.compared + self.parts.measured
        return [(chain_unit(self.space, self.length), images), (FORWARD, images + CHOICE)]


class RacedChains:
    """Scores of chains for a search: on some of the images first, on all of them where a chain may be among the worst.

    A chain that is let go has its score on the first images, which is above those of the chains that are kept.
    """

    def __init__(self, evaluator: Evaluator, images: int) -> None:
        self.evaluator, self.images = evaluator, images
        self.first = max(1, round(FIRST_SHARE * images))
        self._scores: dict[Genes, Score] = {}
        self._whole: list[float] = []

    def __call__(self, tuples: Sequence[Genes], _: int | None = None, /) -> list[Score]:
        """Return the scores of chains; those that share first steps follow each other."""
        new, batches = sorted(set(tuples) - self._scores.keys()), 1 if self.evaluator.on_cpu else BATCHES_AHEAD
        together = max(1, batches * self.evaluator.fit.size // self.first)
        for place in range(0, len(new), together):
            self._score(new[place : place + together])
        return [self._scores[genes] for genes in tuples]

    def _score(self, chains: Sequence[Genes]) -> None:
        """Score chains that are asked together; the other images of some are seen in vain, to be seen together."""
        begun = self._measured(chains, 0, self.first)
        found = {genes: self.evaluator.score([row], self.first) for genes, row in begun.items()}
        worst = [genes for genes in chains if found[genes].objective <= self._limit and self.first < self.images]
        ended = self._measured(worst, self.first, self.images)
        for genes in chains:  # one after the other: what is worst is known better after each
            if genes in ended and found[genes].objective <= self._limit:
                found[genes] = self.evaluator.score([begun[genes], ended[genes]], self.images)
                self._whole.append(found[genes].objective)
        self._scores |= found

    def _measured(self, chains: Sequence[Genes], start: int, stop: int) -> dict[Genes, Row]:
        evaluator = self.evaluator
        rows = evaluator.measure_all([evaluator.task(genes, start, stop) for genes in chains])
        return dict(zip(chains, rows, strict=True))

    @property
    def _limit(self) -> float:
        """The score on the first images from which on a chain is not among the worst."""
        kept = sorted(self._whole)[KEPT - 1] if len(self._whole) >= KEPT else 1.0
        return kept + MARGIN


@dataclass(frozen=True)
class RandomTuples(Measurement):
    """Chains drawn at random, those of a range of numbers."""

    kind = "worst_case.random"
    space: Space
    length: int
    images: int
    first: int
    last: int
    seed: int

    def measure(self, subject: Subject) -> Row:
        """Return the accuracy and similarity of every chain, and the accuracy of the images as they are."""
        from shiftproof.searchers import Direct
        from shiftproof.searchers.search_trace import SearchTrace
        from shiftproof.searchers.uniform import draw_tuples

        evaluate = Direct(_evaluator(self.space, subject, self.images, SIMILARITY, self.seed))
        (clean,) = evaluate([()])
        drawn = draw_tuples(self.space, self.length, range(self.first, self.last), seed=self.seed)
        trace = SearchTrace(self.space, self.length, "random", self.seed)
        trace.add(drawn, evaluate(drawn))
        return {"clean": clean.fitness, "trials": _trials(trace)}

    def work(self) -> Work:
        """Count images under a chain, and the clean ones."""
        images = (self.last - self.first + 1) * self.images
        return [(chain_unit(self.space, self.length), images), (FORWARD, images)]


def chain_unit(space: Space, length: int) -> Unit:
    """Return what an image under a chain of a space costs, with its similarity to the original."""
    return Unit("tuple", space.name, length)


def _evaluator(space: Space, subject: Subject, images: int, similarity: float | None, seed: int) -> Evaluator:
    """Return what evaluates chains on the first images of a subject."""
    from shiftproof.searchers import Constraint, Evaluator
    from shiftproof.searchers.evaluator import hold
    from shiftproof.searchers.fitness import Classification

    data = as_images(subject.data).subset(range(min(images, len(subject.data))))
    fitness = Classification(subject.fast_model, check_labels(data.labels, np.iinfo(np.int64).max))
    pixels = hold(data, subject.device)
    return Evaluator(space, pixels, fitness, Constraint(similarity), batch_size=subject.batch_size, seed=seed)


def _worst(traces: Sequence[SearchTrace]) -> list[Genes]:
    """Return the worst admissible chains: each run's own first, then the next of all of them."""
    ranked = [trace.worst_tuples(COMPARED, admissible=True) for trace in traces]
    firsts = [some[0] for some in ranked if some]
    others = sorted((trial for some in ranked for trial in some[1:]), key=lambda trial: trial.score.objective)
    return list(dict.fromkeys(trial.genes for trial in (*firsts, *others)))[: max(COMPARED, len(firsts))]


def _under(evaluator: Evaluator, genes: Genes, start: int, stop: int, similarity: float | None) -> tuple[Bools, Bools]:
    """Return which images are right under a chain, and which of them it leaves as similar as asked, each [n]."""
    right, kept = [], []
    steps = [evaluator.space.steps[gene] for gene in genes]
    stop = min(stop, len(evaluator.pixels))
    for first in range(start, stop, evaluator.fit.size):
        last = min(first + evaluator.fit.size, stop)
        levels = evaluator.applier.levels(steps, first, last)
        images = from_levels(levels)
        right += evaluator.fitness.tally(images, slice(first, last))[1] or []
        known = [True] * (last - first)
        if similarity is not None:
            known = (level_similarity(evaluator.pixels.images[first:last].float(), levels) >= similarity).tolist()
        kept += known
    return np.array(right, bool), np.array(kept, bool)


def _similarity(evaluator: Evaluator, genes: Genes, images: int) -> float:
    """Return the mean similarity of the first images to what a chain makes of them."""
    steps = [evaluator.space.steps[gene] for gene in genes]
    after = evaluator.applier.levels(steps, 0, min(images, CHOICE))
    return round(float(level_similarity(evaluator.pixels.images[: len(after)].float(), after).mean()), 4)


def _trials(trace: SearchTrace) -> Json:
    """Return what was tried as JSON: chains in words, accuracies, similarities, and whether they count."""
    return {
        "words": [trace.space.words(trial.genes) for trial in trace.trials],
        "fitness": [trial.score.fitness for trial in trace.trials],
        "similarity": [
            None if trial.score.similarity is None else round(trial.score.similarity, 4) for trial in trace.trials
        ],
        "admissible": [trial.score.admissible for trial in trace.trials],
    }


def _pictures(evaluator: Evaluator, genes: Genes) -> list[Json]:
    """Return images before and after a chain, first those that it turned from right to wrong; a few are asked of."""
    steps = [evaluator.space.steps[gene] for gene in genes]
    asked: list[tuple[bool, bool, Tensor, Tensor]] = []
    while len(asked) < min(CHOICE, len(evaluator.pixels)) and sum(was and not now for was, now, *_ in asked) < EXAMPLES:
        here = slice(len(asked), min(len(asked) + 2 * EXAMPLES, CHOICE, len(evaluator.pixels)))
        before, after = (evaluator.applier(some, here.start, here.stop) for some in ((), steps))
        was, now = (evaluator.fitness.tally(images, here)[1] or [] for images in (before, after))
        asked += zip(was, now, before, after, strict=True)
    asked.sort(key=lambda each: not (each[0] and not each[1]))
    return [
        {"before": picture(before), "after": picture(after), "was_right": was, "right": now}
        for was, now, before, after in asked[:EXAMPLES]
    ]
