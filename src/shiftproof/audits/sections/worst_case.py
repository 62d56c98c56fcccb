"""The worst case: how far a chain of harmless-looking transformations can bring the model down."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from shiftproof.audits.numbers import Number
from shiftproof.audits.sections.base import Measurement, Scope, Section
from shiftproof.audits.sections.clean import CleanSlice
from shiftproof.audits.sections.measuring import hits_at, rows
from shiftproof.audits.sections.wording import interval, listed, percent, title
from shiftproof.audits.sections.worst_case_figures import (
    RARE,
    Found,
    WorstChain,
    density,
    found_in,
    galleries,
    progress,
    rare_accuracy,
    runs_in,
    space_table,
    surviving,
    worst_table,
)
from shiftproof.audits.sections.worst_case_search import (
    SIMILARITY,
    RandomTuples,
    SearchedParts,
    SearchedSpace,
)
from shiftproof.measures import Accuracy
from shiftproof.reports.view import Action, Figure, Level, Sentence, Table, Tile, View
from shiftproof.runs import Result, Row

STEP = 10
GOOD, WATCH = 0.10, 0.25
LEVEL_RULE = "{:.1f} points below clean accuracy, under the worst chain found. Good: 0 to 10 points. Bad: over 25."
CHEAP = 0.5
"""Below this share of the budget's usual sizes, a search has one seed."""


@dataclass(frozen=True)
class SearchedKind:
    """A kind of change that is searched: its space, the length of chains, what keeps the content, what it is called.

    Without a `similarity`, the levels of the space are what keeps it: structural similarity says little of a picture
    that was moved.
    """

    space: str
    length: int
    similarity: float | None
    said: str
    effort: float = 1.0
    """How many evaluations a search has, times those of the budget."""


KINDS: Mapping[str, SearchedKind] = {
    "colour": SearchedKind("cifar", 5, SIMILARITY, "colour edits"),
    "geometry": SearchedKind("small_geometric", 2, None, "small moves"),
    "occlusion": SearchedKind("occlusion", 2, None, "covered squares"),
    "corruption": SearchedKind("corruptions", 3, SIMILARITY, "mild corruptions", effort=2.0),
}
NAMES = {kind.space: name for name, kind in KINDS.items()}
"""Space -> the name of its kind."""


@dataclass(frozen=True)
class SearchSize:
    """On how many images chains are searched, compared and measured; evaluations of a seed, seeds, random chains."""

    searched: int
    compared: int
    measured: int
    evolution: int
    runs: int
    random: int


SIZES = {
    "quick": SearchSize(searched=48, compared=120, measured=900, evolution=36, runs=2, random=0),
    "standard": SearchSize(searched=200, compared=300, measured=2000, evolution=150, runs=3, random=500),
    "full": SearchSize(searched=500, compared=500, measured=10_000, evolution=400, runs=3, random=1000),
}


class WorstCase(Section):
    """Accuracy under the worst of many chains of transformations."""

    name = "worst_case"
    title = "Worst-case transformations"
    question = "Which chain of small changes that leave images recognisable costs most accuracy?"
    numbers = (
        Number("worst_case_accuracy", "accuracy under the worst chain found that keeps the content, on other images"),
        Number("worst_case_loss", "clean accuracy on these images less that", None),
        Number(
            "worst_case_similarity", "how similar that chain leaves the images, 1 being the same", None, "similarity"
        ),
        Number("worst_case_accuracy.*", "the same of one kind of change: colour, geometry, occlusion, corruption"),
        Number("worst_case_each_accuracy", "the share of images right under each of the worst chains found"),
        Number("worst_case_unconstrained_accuracy", "accuracy under the worst chain tried, on images searched on"),
        Number(
            "worst_case_random_quantile",
            "the accuracy that 0.1% of random chains of colour edits do not reach",
            given="of 1,000 or more",
        ),
    )

    def plan(self, scope: Scope) -> Iterator[Measurement]:
        """Plan a search of every space, the images as they are, and random chains a few at a time."""
        from shiftproof.searchers import make_space

        size, seed = SIZES[scope.settings.budget], scope.settings.seed
        parts = SearchedParts.of(scope, size.searched, size.compared, size.measured)
        runs = size.runs if scope.settings.scale >= CHEAP else 1
        for start, stop in replace(scope, measured=None).slices():
            if start < parts.all and stop > parts.searched:
                yield CleanSlice(start, stop)  # the same task as the section clean's: it runs once
        for kind in KINDS.values():
            budget = scope.scaled(round(kind.effort * size.evolution), 12)
            yield SearchedSpace(make_space(kind.space), kind.length, kind.similarity, parts, budget, runs, seed)
        tuples = scope.scaled(size.random, min(20, size.random))
        colour = KINDS["colour"]
        for first in range(0, tuples, STEP):
            last = min(first + STEP, tuples)
            yield RandomTuples(make_space(colour.space), colour.length, parts.searched, first, last, seed)

    def needs(self, number: str, task: Measurement) -> bool:
        """Say that the random quantile needs random chains alone, a kind's own number its search, and others all."""
        if isinstance(task, RandomTuples):
            return number in ("worst_case_random_quantile", "worst_case_unconstrained_accuracy")
        kind = number.removeprefix("worst_case_accuracy.")
        if isinstance(task, SearchedSpace) and kind != number:
            return NAMES[task.space.name] == kind
        return number != "worst_case_random_quantile"

    def view(self, results: Sequence[Result]) -> View:
        """Tell how low the model can be brought, by what kind of change, and how sure that is."""
        searched = rows(results, SearchedSpace)
        random = _join(rows(results, RandomTuples))
        chains = {NAMES[task.space.name]: WorstChain.of(row) for task, row in searched if "chain" in row}
        tried = {NAMES[task.space.name]: runs_in(row) for task, row in searched}
        everything = [*random, *(found for runs in tried.values() for run in runs for found in run)]
        unchanged = None if not searched else _unchanged(results, searched[0][0].parts)
        if not chains or unchanged is None:
            return View(self.name, self.title, self.question, notes=("No chain that keeps the content was measured.",))
        parts = searched[0][0].parts
        worst = min(chains, key=lambda kind: chains[kind].before)
        clean, each = surviving(unchanged, parts, searched)
        found = chains[worst].accuracy
        kept = min(found, clean, key=lambda accuracy: accuracy.value)  # never above what is done to nothing
        lost = clean.value - kept.value
        level: Level = "plain" if lost < 0 else "good" if lost < GOOD else "watch" if lost < WATCH else "bad"
        numbers = {
            "worst_case_accuracy": kept.value,
            "worst_case_loss": lost,
            "worst_case_similarity": chains[worst].similarity if kept is found else 1.0,
            **{f"worst_case_accuracy.{kind}": min(chains[kind].accuracy.value, clean.value) for kind in chains},
            "worst_case_each_accuracy": each.value,
            "worst_case_unconstrained_accuracy": min(everything, key=_fitness).fitness,
        }
        blocks: list[Figure | Table] = [space_table(chains, each), progress(tried), worst_table(everything)]
        if random:
            if (rare := rare_accuracy(random)) is not None:
                numbers["worst_case_random_quantile"] = rare
            colours = [found for run in tried.get("colour", []) for found in run]
            blocks.insert(2, density(random, min([*random, *colours], key=_fitness), clean.value))
        return View(
            self.name,
            self.title,
            self.question,
            verdict=(_sentence(worst, chains[worst], clean, kept, level),),
            tiles=(Tile("Worst case", percent(kept.value), interval(kept), level, LEVEL_RULE.format(100 * lost)),),
            blocks=(*blocks, *galleries(chains[worst])),
            notes=_notes(parts, searched[0][0], len(random)),
            numbers=numbers,
            actions=(_action(worst, lost, searched),) if level in ("watch", "bad") else (),
        )


def _unchanged(results: Sequence[Result], parts: SearchedParts) -> NDArray[np.bool_] | None:
    """Return who is right, of the images that chains are compared and measured on, as they are."""
    clean = [(range(task.start, task.stop), row) for task, row in rows(results, CleanSlice)]
    return hits_at(range(parts.searched, parts.all), clean)


def _fitness(found: Found) -> float:
    return found.fitness


def _join(found: Sequence[tuple[RandomTuples, Row]]) -> list[Found]:
    ordered = sorted(found, key=lambda entry: entry[0].first)
    return [one for _, row in ordered for one in found_in(row["trials"])]


def _sentence(kind: str, chain: WorstChain, clean: Accuracy, kept: Accuracy, level: Level) -> Sentence:
    lost = 100 * (clean.value - kept.value)
    if level in ("good", "plain"):
        costs = f"costs more than {lost:.1f} points" if lost > 0 else "costs any accuracy"
        tried = listed([each.said for each in KINDS.values()]).replace(" and ", " or ")
        return Sentence(
            f"No chain of {tried} that was tried {costs}: accuracy is {percent(kept.value)} ({interval(kept)}) under "
            "the worst.",
            level,
        )
    return Sentence(
        f"The worst chain found, {KINDS[kind].length} {KINDS[kind].said} that leave images recognisable "
        f"({title(chain.words)}), lowers accuracy from {percent(clean.value)} to {percent(kept.value)} "
        f"({interval(kept)}) on images not used in the search.",
        level,
    )


def _action(kind: str, lost: float, searched: Sequence[tuple[SearchedSpace, Row]]) -> Action:
    batch_norm = any(bool(row.get("batch_norm")) for _, row in searched)
    several = (
        " Batch normalisation cancels a chain that a whole batch shares, so each batch gets eight."
        if batch_norm
        else ""
    )
    options = {"per_batch": "8"} if batch_norm else {}
    options |= {"every": "1", "images": "300"}
    if kind != "colour":
        options |= {"space": KINDS[kind].space, "length": str(KINDS[kind].length)}
    told = "" if kind == "colour" else " That was measured for colour edits only."
    return Action(
        "Train on its worst-case transformations",
        f"The worst chain found costs {100 * lost:.1f} points. The recipe esda searches for such chains during "
        f"training and trains on them.{several} With these settings accuracy under the worst chain was 69% instead of "
        f"13% (WRN-16-4, 20 epochs, CIFAR-10; one chain a batch: 14%).{told}",
        "shiftproof train --data train-images/ --model model.py:build --recipe esda "
        + "".join(f"--option {name}={value} " for name, value in options.items())
        + "--out robust/",
        gain=100 * lost,
        on="under the worst chain",
        bound=True,
    )


def _notes(parts: SearchedParts, task: SearchedSpace, random: int) -> tuple[str, ...]:
    seeds = f"{task.runs} seed{'s' * (task.runs != 1)}"
    notes = [
        f"Climbing, one changed step at a time, tried {task.budget} chains and more of each kind from each of {seeds}, "
        f"on up to {parts.searched:,} images; the worst were compared on {parts.compared:,} others, and the worst of "
        f"these was measured on {parts.measured:,} "
        "that had no part in choosing it, so that the choice does not bias its interval. The same chain is applied to "
        "every image; a search that tries more may find worse.",
        f"Colour edits and corruptions count that leave a mean structural similarity of {SIMILARITY:g}. Moves and "
        "covered squares are small enough by themselves: two of at most 16 degrees, 10% or 15%; two squares of a "
        "sixteenth of the area.",
    ]
    if 0 < random < 1 / RARE:
        notes.append(f"{random} random chains are too few to show what the lowest 0.1% reach; {1 / RARE:,.0f} do.")
    return tuple(notes)
