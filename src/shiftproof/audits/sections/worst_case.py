"""The worst case: how far a chain of harmless-looking operations can bring the model down."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from shiftproof.audits.sections.base import Scope, Section, Subject
from shiftproof.audits.sections.measuring import check_labels, picture, rows
from shiftproof.audits.sections.wording import interval, percent
from shiftproof.audits.view import Column, Figure, Gallery, Level, Picture, Sentence, Table, Tile, View
from shiftproof.measures import Accuracy
from shiftproof.runs import Cell, Json, Result, Row

if TYPE_CHECKING:
    from shiftproof.searchers import Evaluator, Trace

SPACE, LENGTH = "cifar", 5
SIMILARITY = 0.8
"""A tuple counts as leaving images recognisable from this mean structural similarity on."""

STEP = 10
EXAMPLES = 4
CHOICE = 32
"""Examples are chosen among the first so many images."""

WORST = 5
RARE = 0.001
GOOD, WATCH = 0.10, 0.25
LEVEL_RULE = "points lost to the worst tuple found: good under 10, bad over 25"


@dataclass(frozen=True)
class Size:
    """How many images tuples are judged on, how many random tuples there are, and how many runs of evolution."""

    images: int
    random: int
    evolution: int
    runs: int


SIZES = {
    "quick": Size(images=100, random=60, evolution=70, runs=1),
    "standard": Size(images=500, random=500, evolution=300, runs=3),
    "full": Size(images=1000, random=1000, evolution=1000, runs=3),
}


@dataclass(frozen=True)
class Found:
    """A tuple in words, with its accuracy and its similarity."""

    words: str
    fitness: float
    similarity: float

    @property
    def admissible(self) -> bool:
        """Whether it leaves the images recognisable."""
        return self.similarity >= SIMILARITY


class WorstCase(Section):
    """Accuracy under the worst of many tuples of operations."""

    name = "worst_case"
    title = "The worst case"
    question = "Which chain of small edits, that leaves images recognisable, hurts the model most?"

    def plan(self, scope: Scope) -> Iterator[Cell]:
        """Plan the clean images, random tuples a few at a time, and runs of evolution."""
        size, seed = SIZES[scope.settings.budget], scope.settings.seed
        common: dict[str, Json] = {"space": SPACE, "length": LENGTH, "images": min(size.images, scope.images)}
        for first in range(0, size.random, STEP):
            last = min(first + STEP, size.random)
            yield Cell("worst_case.random", **common, first=first, last=last, seed=seed)
        for run in range(size.runs):
            yield Cell("worst_case.evolution", **common, budget=size.evolution, run=run, seed=seed)

    def measure(self, cell: Cell, subject: Subject) -> Row:
        """Return the accuracy and similarity of every tuple a searcher tries, and pictures of the worst."""
        from shiftproof.searchers import Constraint, Direct, Evaluator, evolution, make_space
        from shiftproof.searchers.evaluating import hold
        from shiftproof.searchers.fitness import Classification
        from shiftproof.searchers.trace import Trace
        from shiftproof.searchers.uniform import draw_tuples

        seed, length = cast(int, cell["seed"]), cast(int, cell["length"])
        data = subject.data.take(cast(int, cell["images"]), seed=seed)
        space = make_space(cast(str, cell["space"]))
        fitness = Classification(subject.model, check_labels(data.labels, np.iinfo(np.int64).max))
        pixels = hold(data, subject.device)
        evaluator = Evaluator(space, pixels, fitness, Constraint(SIMILARITY), batch_size=subject.batch_size, seed=seed)
        evaluate = Direct(evaluator)
        (clean,) = evaluate([()])
        if cell.task == "worst_case.random":
            tuples = draw_tuples(space, length, range(cast(int, cell["first"]), cast(int, cell["last"])), seed=seed)
            trace = Trace(space, length, "random", seed)
            trace.add(tuples, evaluate(tuples))
        else:
            run = cast(int, cell["run"])
            trace = evolution(space, evaluate, length=length, budget=cast(int, cell["budget"]), seed=seed + 1000 * run)
        row: dict[str, Json] = {"clean": clean.fitness, "trials": _trials(trace)}
        worst = trace.best(admissible=True)
        if worst is not None:
            row["pictures"] = _pictures(evaluator, [space.steps[gene].label for gene in worst.genes])
        return row

    def view(self, results: Sequence[Result]) -> View:
        """Tell how low the model can be brought, by what, and how rare such a tuple is."""
        random = _join(rows(results, "worst_case.random"))
        runs = [(row, _found(row)) for _, row in rows(results, "worst_case.evolution")]
        everything = [*random, *(found for _, some in runs for found in some)]
        measured = [*rows(results, "worst_case.random"), *rows(results, "worst_case.evolution")]
        if not everything:
            return View(self.name, self.title, self.question, notes=("No tuple was measured.",))
        cell, row = measured[0]
        images, clean = cast(int, cell["images"]), cast(float, row["clean"])
        lowest = min(everything, key=lambda found: found.fitness)
        kept = min((found for found in everything if found.admissible), key=lambda found: found.fitness, default=lowest)
        lost = clean - kept.fitness
        level: Level = "good" if lost < GOOD else "watch" if lost < WATCH else "bad"
        counted = Accuracy(round(kept.fitness * images), images)
        numbers = {
            "worst_case_accuracy": kept.fitness,
            "worst_case_loss": lost,
            "worst_case_similarity": kept.similarity,
            "worst_case_unconstrained_accuracy": lowest.fitness,
        }
        blocks: list[Figure | Table] = [_worst_table(everything)]
        if random:
            numbers["worst_case_random_quantile"] = float(np.quantile([found.fitness for found in random], RARE))
            blocks = [_density(random, kept, clean), _progress(random, [some for _, some in runs]), *blocks]
        return View(
            self.name,
            self.title,
            self.question,
            verdict=(_sentence(kept, clean, counted, level),),
            tiles=(Tile("Worst case", percent(kept.fitness), interval(counted), level, LEVEL_RULE),),
            blocks=(*blocks, *_galleries([row for _, row in measured], kept)),
            notes=_notes(images, len(random), [len(some) for _, some in runs]),
            numbers=numbers,
        )


def _trials(trace: Trace) -> Json:
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


def _found(row: Row) -> list[Found]:
    trials = cast(Mapping[str, Sequence[Json]], row["trials"])
    return [
        Found(str(words), cast(float, fitness), cast(float, similarity))
        for words, fitness, similarity in zip(trials["words"], trials["fitness"], trials["similarity"], strict=True)
    ]


def _join(found: Sequence[tuple[Cell, Row]]) -> list[Found]:
    ordered = sorted(found, key=lambda entry: cast(int, entry[0]["first"]))
    return [one for _, row in ordered for one in _found(row)]


def _sentence(kept: Found, clean: float, counted: Accuracy, level: Level) -> Sentence:
    if level == "good":
        lost = f"{100 * (clean - kept.fitness):.1f} points: {percent(kept.fitness)} ({interval(counted)}) at worst"
        return Sentence(f"No chain of {LENGTH} colour edits that was tried costs more than {lost}.", level)
    leaves = "leaves the images recognisable" if kept.admissible else "changes the images much"
    return Sentence(
        f"A chain of {LENGTH} colour edits that {leaves} brings it from {percent(clean)} to {percent(kept.fitness)} "
        f"({interval(counted)}): {kept.words}.",
        level,
    )


def _density(random: Sequence[Found], kept: Found, clean: float) -> Figure:
    values = np.array([found.fitness for found in random])
    edges = np.linspace(np.floor(20 * values.min()) / 20, 1.0, 21)
    counts, edges = np.histogram(values, edges)
    middles = (edges[1:] + edges[:-1]) / 2
    rare = float(np.quantile(values, RARE))
    top = int(counts.max())
    marks = [("lowest 0.1%", rare), ("worst found", kept.fitness), ("clean", clean)]
    plot = {
        "data": [
            {
                "type": "bar",
                "name": "random tuples",
                "x": (100 * middles).round(2).tolist(),
                "y": counts.tolist(),
                "width": round(100 * float(edges[1] - edges[0]), 3),
            },
            *(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "name": name,
                    "x": [round(100 * value, 2)] * 2,
                    "y": [0, top],
                }
                for name, value in marks
            ),
        ],
        "layout": {
            "bargap": 0,
            "xaxis": {"title": {"text": "accuracy under a tuple, %"}},
            "yaxis": {"title": {"text": "random tuples"}},
        },
    }
    table = Table(
        "Random tuples by accuracy",
        (Column("accuracy from", "percent"), Column("to", "percent"), Column("tuples", "number")),
        tuple((float(low), float(high), int(n)) for low, high, n in zip(edges[:-1], edges[1:], counts, strict=True)),
    )
    half = f"Half of {len(random)} random tuples leave it at {percent(float(np.median(values)))} or more"
    finding = f"{half}; the worst found leaves {percent(kept.fitness)}"
    return Figure(finding, plot, table, caption="How far left the distribution reaches is what chance alone can do.")


def _progress(random: Sequence[Found], runs: Sequence[Sequence[Found]]) -> Figure:
    named = [("random", random), *((f"evolution, run {number}", run) for number, run in enumerate(runs, start=1))]
    curves = {
        name: np.minimum.accumulate([found.fitness if found.admissible else 1.0 for found in some])
        for name, some in named
        if some
    }
    data = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "x": list(range(1, len(curve) + 1)),
            "y": (100 * curve).round(2).tolist(),
        }
        for name, curve in curves.items()
    ]
    steps = [step for step in (1, 10, 20, 50, 100, 200, 500, 1000) if step <= max(map(len, curves.values()))]
    table = Table(
        "Lowest accuracy so far",
        (Column("tuples tried", "number"), *(Column(name, "percent") for name in curves)),
        tuple(
            (step, *(float(curve[step - 1]) if step <= len(curve) else None for curve in curves.values()))
            for step in steps
        ),
    )
    best = min(curves, key=lambda name: float(curves[name][-1]))
    layout = {
        "xaxis": {"title": {"text": "tuples tried"}},
        "yaxis": {"title": {"text": "lowest accuracy so far, %"}},
    }
    finding = f"{best.capitalize()} finds the worst tuple: {percent(float(curves[best][-1]))}"
    return Figure(finding, {"data": data, "layout": layout}, table, caption="Among tuples that keep the content.")


def _worst_table(found: Sequence[Found]) -> Table:
    distinct = {one.words: one for one in found}
    ranked = sorted(distinct.values(), key=lambda one: one.fitness)[:WORST]
    return Table(
        "The worst tuples that were tried",
        (
            Column("operations in turn"),
            Column("accuracy", "percent", heat=(0.0, 1.0)),
            Column("similarity", "number"),
            Column("keeps the content"),
        ),
        tuple((one.words, one.fitness, round(one.similarity, 2), "yes" if one.admissible else "no") for one in ranked),
        caption=f"Content is kept from a mean structural similarity of {SIMILARITY:g} on.",
    )


def _galleries(measured: Sequence[Row], kept: Found) -> Iterator[Gallery]:
    """Show the worst tuple, with the pictures of a cell whose worst it is."""
    for row in measured:
        shown = cast(Sequence[Mapping[str, Json]], row.get("pictures", ()))
        if not shown or kept != min((one for one in _found(row) if one.admissible), key=lambda one: one.fitness):
            continue
        pairs = [
            Picture(str(entry[when]), when, bool(entry[mark]))
            for entry in shown
            for when, mark in (("before", "was_right"), ("after", "right"))
        ]
        yield Gallery(
            "Before and after the worst tuple",
            tuple(pairs),
            caption="First images that the tuple turns from right to wrong.",
        )
        return


def _notes(images: int, random: int, runs: Sequence[int]) -> tuple[str, ...]:
    searched = (
        f"{random} random tuples and {len(runs)} run{'s' * (len(runs) != 1)} of evolution of {max(runs, default=0)}"
    )
    notes = [
        f"{searched}, {LENGTH} steps each, from the space {SPACE!r} of 190 operations at levels, on {images} images. "
        "The same tuple is applied to every image; a search that tries more may find worse."
    ]
    if random < 1 / RARE:
        notes.append(f"{random} tuples cannot show their lowest 0.1%: the mark is near the lowest of them.")
    return tuple(notes)
