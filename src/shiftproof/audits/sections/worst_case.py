"""The worst case: how far a chain of harmless-looking operations can bring the model down."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from shiftproof.audits.numbers import Number
from shiftproof.audits.sections.base import FORWARD, TUPLE, Measurement, Scope, Section, Work
from shiftproof.audits.sections.measuring import check_labels, picture, rows
from shiftproof.audits.sections.wording import interval, percent
from shiftproof.audits.sections.worst_case_figures import (
    RARE,
    SIMILARITY,
    Found,
    density,
    found_in,
    galleries,
    progress,
    rare_accuracy,
    worst_table,
)
from shiftproof.data import as_images
from shiftproof.measures import Accuracy
from shiftproof.models import has_batch_norm
from shiftproof.reports.view import Action, Figure, Level, Sentence, Table, Tile, View
from shiftproof.runs import Json, Result, Row
from shiftproof.subjects import Subject

if TYPE_CHECKING:
    from shiftproof.searchers import Direct, Evaluator, SearchTrace, Space

SPACE, LENGTH = "cifar", 5
STEP = 10
EXAMPLES = 4
CHOICE = 32
"""Examples are chosen among the first so many images."""

GOOD, WATCH = 0.10, 0.25
LEVEL_RULE = "points lost to the worst tuple found: good from 0 to 10, bad over 25"


@dataclass(frozen=True)
class SearchSize:
    """How many images tuples are judged on, how many random tuples there are, and how many runs of evolution."""

    images: int
    random: int
    evolution: int
    runs: int


SIZES = {
    "quick": SearchSize(images=100, random=60, evolution=70, runs=1),
    "standard": SearchSize(images=500, random=500, evolution=300, runs=3),
    "full": SearchSize(images=1000, random=1000, evolution=1000, runs=3),
}


class TriedTuples(Measurement):
    """Tuples of operations, tried on images."""

    space: Space
    length: int
    images: int
    seed: int

    @property
    @abstractmethod
    def tuples(self) -> int:
        """How many are tried."""

    @abstractmethod
    def search(self, evaluate: Direct) -> SearchTrace:
        """Try tuples."""

    def measure(self, subject: Subject) -> Row:
        """Return the accuracy and similarity of every tuple that is tried, and pictures of the worst."""
        from shiftproof.searchers import Constraint, Direct, Evaluator
        from shiftproof.searchers.evaluator import hold
        from shiftproof.searchers.fitness import Classification

        data = as_images(subject.data).take(self.images, seed=self.seed)
        fitness = Classification(subject.fast_model, check_labels(data.labels, np.iinfo(np.int64).max))
        pixels = hold(data, subject.device)
        evaluator = Evaluator(
            self.space, pixels, fitness, Constraint(SIMILARITY), batch_size=subject.batch_size, seed=self.seed
        )
        evaluate = Direct(evaluator)
        (clean,) = evaluate([()])
        trace = self.search(evaluate)
        row: dict[str, Json] = {
            "clean": clean.fitness,
            "trials": _trials(trace),
            "batch_norm": has_batch_norm(subject.model),
        }
        worst = trace.best(admissible=True)
        if worst is not None:
            row["pictures"] = _pictures(evaluator, [self.space.steps[gene].label for gene in worst.genes])
        return row

    def work(self) -> Work:
        """Count images under a tuple, the clean ones, and those that pictures are chosen from."""
        images = (self.tuples + 1) * self.images
        return [(TUPLE, images), (FORWARD, images + 2 * CHOICE)]


@dataclass(frozen=True)
class RandomTuples(TriedTuples):
    """Tuples drawn at random, those of a range of numbers."""

    kind = "worst_case.random"
    space: Space
    length: int
    images: int
    first: int
    last: int
    seed: int

    @property
    def tuples(self) -> int:
        """How many are tried."""
        return self.last - self.first

    def search(self, evaluate: Direct) -> SearchTrace:
        """Draw the tuples and try them."""
        from shiftproof.searchers.search_trace import SearchTrace
        from shiftproof.searchers.uniform import draw_tuples

        drawn = draw_tuples(self.space, self.length, range(self.first, self.last), seed=self.seed)
        trace = SearchTrace(self.space, self.length, "random", self.seed)
        trace.add(drawn, evaluate(drawn))
        return trace


@dataclass(frozen=True)
class EvolvedTuples(TriedTuples):
    """Tuples that one run of evolution finds."""

    kind = "worst_case.evolution"
    space: Space
    length: int
    images: int
    budget: int
    run: int
    seed: int

    @property
    def tuples(self) -> int:
        """How many are tried."""
        return self.budget

    def search(self, evaluate: Direct) -> SearchTrace:
        """Run evolution."""
        from shiftproof.searchers import evolution

        seed = self.seed + 1000 * self.run
        return evolution(self.space, evaluate, length=self.length, budget=self.budget, seed=seed)


class WorstCase(Section):
    """Accuracy under the worst of many tuples of operations."""

    name = "worst_case"
    title = "Worst-case transformations"
    question = "Which chain of small edits, that leaves images recognisable, hurts the model most?"
    numbers = (
        Number("worst_case_accuracy", "accuracy under the worst tuple found that keeps the content"),
        Number("worst_case_loss", "clean accuracy less that", None),
        Number(
            "worst_case_similarity", "how similar that tuple leaves the images, 1 being the same", None, "similarity"
        ),
        Number("worst_case_unconstrained_accuracy", "accuracy under the worst tuple found"),
        Number("worst_case_random_quantile", "the accuracy that 0.1% of random tuples do not reach, of 1,000 or more"),
    )

    def plan(self, scope: Scope) -> Iterator[TriedTuples]:
        """Plan random tuples a few at a time, and runs of evolution."""
        from shiftproof.searchers import make_space

        space = make_space(SPACE)
        size, seed = SIZES[scope.settings.budget], scope.settings.seed
        images = min(scope.scaled(size.images, 24), scope.images)
        tuples = scope.scaled(size.random, 20)
        for first in range(0, tuples, STEP):
            yield RandomTuples(space, LENGTH, images, first, min(first + STEP, tuples), seed)
        for run in range(size.runs):
            yield EvolvedTuples(space, LENGTH, images, scope.scaled(size.evolution, 24), run, seed)

    def view(self, results: Sequence[Result]) -> View:
        """Tell how low the model can be brought, by what, and how rare such a tuple is."""
        random = _join(rows(results, RandomTuples))
        runs = [(row, found_in(row)) for _, row in rows(results, EvolvedTuples)]
        everything = [*random, *(found for _, some in runs for found in some)]
        measured: list[tuple[TriedTuples, Row]] = [*rows(results, RandomTuples), *rows(results, EvolvedTuples)]
        if not everything:
            return View(self.name, self.title, self.question, notes=("No tuple was measured.",))
        images, row = measured[0][0].images, measured[0][1]
        clean = cast(float, row["clean"])
        same = Found("no change", clean, 1.0)  # a worst case is never above what is done to nothing
        lowest = min([*everything, same], key=lambda found: found.fitness)
        admissible = [found for found in everything if found.admissible]
        kept = min([*admissible, same], key=lambda found: found.fitness) if admissible else lowest
        lost = clean - kept.fitness
        level: Level = "plain" if lost < 0 else "good" if lost < GOOD else "watch" if lost < WATCH else "bad"
        # Evolution chose among all tuples by the answers to these images: only bounds that hold for all of them hold.
        tuples = measured[0][0].space.size(LENGTH)
        reach = interval(Accuracy(round(kept.fitness * images), images), among=tuples)
        numbers = {
            "worst_case_accuracy": kept.fitness,
            "worst_case_loss": lost,
            "worst_case_similarity": kept.similarity,
            "worst_case_unconstrained_accuracy": lowest.fitness,
        }
        blocks: list[Figure | Table] = [worst_table(everything)]
        if random:
            if (rare := rare_accuracy(random)) is not None:
                numbers["worst_case_random_quantile"] = rare
            blocks = [density(random, kept, clean), progress(random, [some for _, some in runs]), *blocks]
        return View(
            self.name,
            self.title,
            self.question,
            verdict=(_sentence(kept, clean, reach, level),),
            tiles=(Tile("Worst case", percent(kept.fitness), reach, level, LEVEL_RULE),),
            blocks=(*blocks, *galleries([row for _, row in measured], kept)),
            notes=_notes(images, len(random), [len(some) for _, some in runs]),
            numbers=numbers,
            actions=(_action(lost, batch_norm=bool(row.get("batch_norm"))),) if level in ("watch", "bad") else (),
        )


def _trials(trace: SearchTrace) -> Json:
    """Return what was tried as JSON: tuples in words, accuracies and similarities."""
    return {
        "words": [trace.space.words(trial.genes) for trial in trace.trials],
        "fitness": [trial.score.fitness for trial in trace.trials],
        "similarity": [round(trial.score.similarity or 0.0, 4) for trial in trace.trials],
    }


def _pictures(evaluator: Evaluator, labels: Sequence[str]) -> list[Json]:
    """Return images before and after a tuple, first those that it turned from right to wrong."""
    count = min(CHOICE, len(evaluator.pixels))
    before, after = (evaluator.applier([evaluator.steps[label] for label in some], 0, count) for some in ((), labels))
    was, now = (evaluator.fitness.tally(images, slice(0, count))[1] or [] for images in (before, after))
    ranked = sorted(range(count), key=lambda place: (not (was[place] and not now[place]), place))
    return [
        {
            "before": picture(before[place]),
            "after": picture(after[place]),
            "was_right": was[place],
            "right": now[place],
        }
        for place in ranked[:EXAMPLES]
    ]


def _join(found: Sequence[tuple[RandomTuples, Row]]) -> list[Found]:
    ordered = sorted(found, key=lambda entry: entry[0].first)
    return [one for _, row in ordered for one in found_in(row)]


def _sentence(kept: Found, clean: float, reach: str, level: Level) -> Sentence:
    lost = 100 * (clean - kept.fitness)
    if level in ("good", "plain"):
        costs = f"costs more than {lost:.1f} points" if lost > 0 else "costs any accuracy"
        at = f"{percent(kept.fitness)} ({reach}) at worst"
        return Sentence(f"No chain of {LENGTH} colour edits that was tried {costs}: {at}.", level)
    leaves = "leaves the images recognisable" if kept.admissible else "changes the images much"
    return Sentence(
        f"A chain of {LENGTH} colour edits that {leaves} brings it from {percent(clean)} to {percent(kept.fitness)} "
        f"({reach}): {kept.words}.",
        level,
    )


def _action(lost: float, *, batch_norm: bool) -> Action:
    several = (
        " Batch normalisation undoes a chain that a whole batch shares: eight chains a batch." if batch_norm else ""
    )
    return Action(
        "Train on the chains it is weak to",
        f"The worst chain found costs {100 * lost:.1f} points. Evolution finds such chains while the network trains, "
        f"and trains it on them.{several}",
        "shiftproof train --data train-images/ --model model.py:build --recipe esda "
        f"{'--option per_batch=8 ' if batch_norm else ''}--out robust/",
        gain=100 * lost,
        on="under the worst chain",
        bound=True,
    )


def _notes(images: int, random: int, runs: Sequence[int]) -> tuple[str, ...]:
    searched = (
        f"{random} random tuples and {len(runs)} run{'s' * (len(runs) != 1)} of evolution of {max(runs, default=0)}"
    )
    notes = [
        f"{searched}, {LENGTH} steps each, from the space {SPACE!r} of 190 operations at levels, on {images} images. "
        "The same tuple is applied to every image; a search that tries more may find worse. The interval is of other "
        "images like these: it is wide because it holds for every tuple at once, of which the worst was chosen."
    ]
    if 0 < random < 1 / RARE:
        notes.append(f"{random} random tuples are too few to show what the lowest 0.1% reach; {1 / RARE:,.0f} do.")
    return tuple(notes)
