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
    """The score of a chain: its fitness in [0, 1], where low is a weakness of the model.

    `similarity` and `agreement` are None without a constraint. If `error` is set, the fitness is None.

    Args:
        fitness: From 0 to 1; low is a weakness. None if the chain could not be evaluated.
        admissible: Whether it satisfies the constraint.
        similarity: Mean structural similarity to the clean images.
        agreement: Share of images to which the reference model gives the same class as before.
        error: Why the chain could not be evaluated.
        violation: Sum of the violations of the bounds; 0 if admissible.

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
        """The value that a searcher minimises: the fitness, 1 if there is none, and more than 1 if not admissible.

        Among inadmissible chains, it is lower the closer they are to being admissible.
        """
        return self.fitness if self.fitness is not None and self.admissible else WORST + self.violation


class Evaluate(Protocol):
    """What searchers call: the scores of tuples, on the first `images` images or, by default, all of them."""

    def __call__(self, tuples: Sequence[Genes], images: int | None = None, /) -> Sequence[Score]:
        """Return one score per tuple, in their order."""


@dataclass(frozen=True)
class Trial:
    """One evaluation of a chain.

    Args:
        genes: The chain, as indices of steps in the space.
        score: Its score.
        images: The number of images it was measured on; None for all.

    >>> Trial((0, 3), Score(0.4)).images is None
    True
    """

    genes: Genes
    score: Score
    images: int | None = None


@dataclass
class SearchTrace:
    """Every chain that a searcher evaluated, in order.

    Trials on a part of the images guide the search; the result is decided on all images.

    Args:
        space: The search space.
        length: Transformations in a chain.
        searcher: Name of the searcher.
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
        """Check and record the scores of some chains."""
        for genes, score in zip(tuples, scores, strict=True):
            check_fitness(score.fitness)
            self.trials.append(Trial(genes, score, images))

    def full(self) -> Iterator[tuple[int, Trial]]:
        """Yield the trials on all images that have a fitness, with their positions in the trace."""
        for place, trial in enumerate(self.trials):
            if trial.images is None and trial.score.fitness is not None:
                yield place, trial

    def fitness(self) -> NDArray[np.float64]:
        """Return the fitness of every trial on all images, in order."""
        return np.array([trial.score.fitness for _, trial in self.full()], dtype=np.float64)

    def best(self, *, admissible: bool = False) -> Trial | None:
        """Return the first trial with the lowest fitness, among admissible trials or all; None if there is none."""
        ranked = self.worst_tuples(1, admissible=admissible)
        return ranked[0] if ranked else None

    def worst_tuples(self, count: int, *, admissible: bool = False) -> list[Trial]:
        """Return the trials of distinct chains with the lowest fitness, lowest first."""
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
        """Return a quantile of the fitness over trials; None if there are too few."""
        values = self.fitness()
        return float(np.quantile(values, share)) if len(values) * share >= 1 else None

    def image_evaluations(self, images: int) -> int:
        """Return the number of images put through the model, out of `images` per full trial; repeats cost nothing."""
        reached: dict[Genes, int] = {}
        for trial in self.trials:
            reached[trial.genes] = max(reached.get(trial.genes, 0), images if trial.images is None else trial.images)
        return sum(reached.values())

    @property
    def evaluations(self) -> int:
        """Number of evaluations; a chain that continues on more images counts once."""
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
        """Return the trace as JSON-compatible values."""
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
