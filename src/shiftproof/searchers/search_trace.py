"""What a search tried: every tuple with its fitness, in order, and what follows from them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from shiftproof.errors import ConfigurationError
from shiftproof.searchers.space import Genes, Space

WORST = 1.0
"""What a searcher takes for the fitness of a tuple that failed; of one that is not admissible, at least that."""


@dataclass(frozen=True)
class Score:
    """What a tuple is worth: its fitness in [0, 1], low is a weakness of the model.

    `similarity` and `agreement` are those of the constraint, where there is one, and `admissible` what it says.
    `error` is why the tuple could not be evaluated; its fitness is then None. `violation` is how far it is from being
    admissible, in sum over the bounds.

    Args:
        fitness: From 0 to 1; low is a weakness. None where the chain could not be evaluated.
        admissible: Whether it keeps the constraint.
        similarity: The structural similarity to the images as they were.
        agreement: The share of images to which the reference gives the class it gave before.
        error: Why the chain could not be evaluated.
        violation: How far it is from being admissible.

    >>> Score(0.4).admissible
    True
    """

    fitness: float | None
    admissible: bool = True
    similarity: float | None = None
    agreement: float | None = None
    error: str | None = None
    violation: float = 0.0

    @property
    def objective(self) -> float:
        """What a searcher minimises: the fitness; 1 where there is none, and more where it does not count.

        Among tuples that are not admissible a searcher goes where they are nearly so.
        """
        return self.fitness if self.fitness is not None and self.admissible else WORST + self.violation


class Evaluate(Protocol):
    """What searchers call: the scores of tuples, on the first `images` images or, by default, all of them."""

    def __call__(self, tuples: Sequence[Genes], images: int | None = None, /) -> Sequence[Score]:
        """Return one score per tuple, in their order."""


@dataclass(frozen=True)
class Trial:
    """One evaluation: a tuple, its score, and the number of images it was made on (None: all).

    Args:
        genes: The chain, as places in the space.
        score: What it is worth.
        images: The number of images it was measured on; None for all.

    >>> Trial((0, 3), Score(0.4)).images is None
    True
    """

    genes: Genes
    score: Score
    images: int | None = None


@dataclass
class SearchTrace:
    """Every tuple a searcher tried, in order.

    Trials on a part of the images guide the search; what is found is decided on all of them.

    Args:
        space: What was searched.
        length: Transformations in a chain.
        searcher: How it was searched, by name.
        seed: The seed of the search.
        trials: Every evaluation, in order.

    >>> from shiftproof.searchers import Score, Trial, make_space
    >>> trace = SearchTrace(make_space("cifar"), 1, "mine", 0, [Trial((0,), Score(0.8)), Trial((7,), Score(0.3))])
    >>> trace.best().score.fitness
    0.3
    """

    space: Space
    length: int
    searcher: str
    seed: int
    trials: list[Trial] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.trials)

    def add(self, tuples: Sequence[Genes], scores: Sequence[Score], images: int | None = None) -> None:
        """Note the scores of some tuples, after checking them."""
        for genes, score in zip(tuples, scores, strict=True):
            check_fitness(score.fitness)
            self.trials.append(Trial(genes, score, images))

    def full(self) -> Iterator[tuple[int, Trial]]:
        """Yield the trials on all images that gave a fitness, with their places in the trace."""
        for place, trial in enumerate(self.trials):
            if trial.images is None and trial.score.fitness is not None:
                yield place, trial

    def fitness(self) -> NDArray[np.float64]:
        """Return the fitness of every trial on all images, in order."""
        return np.array([trial.score.fitness for _, trial in self.full()], dtype=np.float64)

    def best(self, *, admissible: bool = False) -> Trial | None:
        """Return the first trial of the lowest fitness, among admissible ones or all; None where there is none."""
        ranked = self.worst_tuples(1, admissible=admissible)
        return ranked[0] if ranked else None

    def worst_tuples(self, count: int, *, admissible: bool = False) -> list[Trial]:
        """Return the trials of different tuples with the lowest fitness, lowest first."""
        found: dict[Genes, Trial] = {}
        for _, trial in self.full():
            if trial.score.admissible or not admissible:
                found.setdefault(trial.genes, trial)
        return sorted(found.values(), key=lambda trial: trial.score.objective if admissible else _raw(trial))[:count]

    def best_so_far(self, *, admissible: bool = False) -> NDArray[np.float64]:
        """Return the lowest fitness after each evaluation, [trials]; 1 until there is one."""
        values = np.ones(len(self.trials))
        for place, trial in self.full():
            if trial.score.admissible or not admissible:
                values[place] = _raw(trial)
        lowest: NDArray[np.float64] = np.minimum.accumulate(values) if len(values) else values
        return lowest

    def quantile(self, share: float = 0.001) -> float | None:
        """Return the fitness below which lies a share of the trials; None where they are too few to show it."""
        values = self.fitness()
        return float(np.quantile(values, share)) if len(values) * share >= 1 else None

    def image_evaluations(self, images: int) -> int:
        """Return how many images were put through the model, where all are `images`; a repeated tuple costs nothing."""
        reached: dict[Genes, int] = {}
        for trial in self.trials:
            reached[trial.genes] = max(reached.get(trial.genes, 0), images if trial.images is None else trial.images)
        return sum(reached.values())

    @property
    def evaluations(self) -> int:
        """How many evaluations were begun: a tuple that goes on to more images is still the one it began as."""
        reached: dict[Genes, list[int]] = {}
        for trial in self.trials:
            now, ends = trial.images or sys.maxsize, reached.setdefault(trial.genes, [])
            begun = next((place for place, end in enumerate(ends) if end < now), len(ends))
            ends[begun : begun + 1] = [now]
        return sum(map(len, reached.values()))

    @property
    def failures(self) -> list[Trial]:
        """The trials that could not be evaluated."""
        return [trial for trial in self.trials if trial.score.error is not None]

    def to_json(self) -> dict[str, Any]:
        """Return the trace as JSON values."""
        return {
            "space": self.space.to_json(),
            "length": self.length,
            "searcher": self.searcher,
            "seed": self.seed,
            "trials": [_row(self.space, trial) for trial in self.trials],
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> SearchTrace:
        """Return the trace that `to_json` wrote."""
        from shiftproof.searchers.space import from_mapping

        space = from_mapping(content["space"]["name"], content["space"]["operations"])
        trials = [
            Trial(
                tuple(row["genes"]),
                Score(
                    row["fitness"],
                    row.get("admissible", True),
                    row.get("similarity"),
                    row.get("agreement"),
                    row.get("error"),
                ),
                row.get("images"),
            )
            for row in content["trials"]
        ]
        return cls(space, content["length"], content["searcher"], content["seed"], trials)


def check_fitness(value: float | None) -> None:
    """Refuse a fitness outside [0, 1]; None stands for a tuple that could not be evaluated."""
    if value is not None and not 0.0 <= value <= 1.0:
        raise ConfigurationError(
            "The fitness is outside [0, 1].",
            expected="a number from 0 (the model fails on every image) to 1 (it fails on none)",
            got=f"{value}",
            fix="scale it, such as by dividing by its largest value",
        )


def _raw(trial: Trial) -> float:
    return WORST if trial.score.fitness is None else trial.score.fitness


def _row(space: Space, trial: Trial) -> dict[str, Any]:
    score = trial.score
    row: dict[str, Any] = {"tuple": space.label(trial.genes), "genes": list(trial.genes), "fitness": score.fitness}
    optional = {
        "images": trial.images,
        "similarity": score.similarity,
        "agreement": score.agreement,
        "error": score.error,
    }
    row |= {name: value for name, value in optional.items() if value is not None}
    return row if score.admissible else {**row, "admissible": False}
