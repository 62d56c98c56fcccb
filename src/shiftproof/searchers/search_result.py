"""What came of a search: the worst tuples with their fitness, as numbers, as a file and as pictures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shiftproof.errors import RunError
from shiftproof.runs import write_atomically
from shiftproof.runs.files import read_json
from shiftproof.searchers.constraint import Constraint
from shiftproof.searchers.search_trace import Score, SearchTrace, Trial

if TYPE_CHECKING:
    from shiftproof.searchers.evaluator import Evaluator

FILE = "search.json"
PICTURE = "worst.png"
WORST_TUPLES = 10
SHOWN_TUPLES = 3
SHOWN_IMAGES = 8
QUANTILE = 0.001


@dataclass(frozen=True)
class Search:
    """The result of a search.

    Args:
        trace: Every chain evaluated.
        clean: Fitness on the clean images.
        images: Number of images.
        fitness: Name of the fitness.
        constraint: What an admissible chain had to keep.
        model: Name of the model.
        data: Name of the data set.
    """

    trace: SearchTrace
    clean: float
    images: int
    fitness: str
    constraint: Constraint
    model: str
    data: str

    @property
    def best(self) -> Trial:
        """The chain with the lowest fitness found, admissible or not.

        If no chain is below the clean images, it is the empty chain.
        """
        return self._or_clean(_some(self.trace.best(), "No tuple could be evaluated on all images."))

    @property
    def best_admissible(self) -> Trial | None:
        """The worst admissible chain; None if none was found, or without a constraint."""
        found = self.trace.best(admissible=True) if self.constraint else None
        return None if found is None else self._or_clean(found)

    def _or_clean(self, trial: Trial) -> Trial:
        fitness = trial.score.fitness
        return trial if fitness is None or fitness <= self.clean else Trial((), Score(self.clean))

    @property
    def worst(self) -> float:
        """Fitness under the worst chain."""
        return self.best.score.fitness or 0.0

    @property
    def worst_admissible(self) -> float | None:
        """Fitness under the worst admissible chain."""
        return None if self.best_admissible is None else self.best_admissible.score.fitness

    @property
    def quantile(self) -> float | None:
        """The fitness that a random tuple undercuts once in a thousand; None where fewer, or none, were drawn."""
        return self.trace.quantile(QUANTILE) if self.trace.searcher == "random" else None

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON-compatible values: the worst chains first, then every trial."""
        best, kept = None if self.trace.best() is None else self.best, self.best_admissible
        label = self.trace.space.label
        return {
            "model": self.model,
            "data": self.data,
            "images": self.images,
            "fitness": self.fitness,
            "clean": self.clean,
            "worst": None if best is None else best.score.fitness,
            "worst_tuple": None if best is None else label(best.genes),
            **(
                {
                    "constraint": {"similarity": self.constraint.similarity, "agreement": self.constraint.agreement},
                    "worst_admissible": self.worst_admissible,
                    "worst_admissible_tuple": None if kept is None else label(kept.genes),
                }
                if self.constraint
                else {}
            ),
            **({"quantile_0.1%": self.quantile} if self.quantile is not None else {}),
            "evaluations": self.trace.evaluations,
            "image_evaluations": self.trace.image_evaluations(self.images),
            "failures": len(self.trace.failures),
            "worst_tuples": [self._line(trial) for trial in self.trace.worst_tuples(WORST_TUPLES)],
            "trace": self.trace.to_json(),
        }

    def write(self, folder: Path, evaluator: Evaluator) -> None:
        """Write `search.json`, and `worst.png` with images before and after the worst chains."""
        content = self.to_json()
        trials = content["trace"].pop("trials")
        text = json.dumps(content, indent=1, ensure_ascii=False)[:-2]  # a line per trial makes the file readable
        rows = ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in trials)
        write_atomically(folder / FILE, f'{text},\n "trials": [\n  {rows}\n ]\n}}\n')
        from shiftproof.searchers.pictures import sheet

        chosen = self.trace.worst_tuples(SHOWN_TUPLES, admissible=bool(self.constraint))
        write_atomically(folder / PICTURE, sheet(self, chosen, evaluator, images=min(SHOWN_IMAGES, self.images)))

    def _line(self, trial: Trial) -> Mapping[str, Any]:
        score = trial.score
        line: dict[str, Any] = {"tuple": self.trace.space.label(trial.genes), "fitness": score.fitness}
        if self.constraint:
            line |= {"admissible": score.admissible, "similarity": score.similarity, "agreement": score.agreement}
        return {name: value for name, value in line.items() if value is not None}


def read(folder: str | Path) -> Mapping[str, Any]:
    """Read the result file of a search, with its `SearchTrace` under `trace`.

    Args:
        folder: The run directory of a search.
    """
    path = Path(folder) / FILE
    try:
        content: dict[str, Any] = read_json(path)
        trials: Sequence[Mapping[str, Any]] = content.pop("trials")
        return {**content, "trace": SearchTrace.from_json({**content["trace"], "trials": trials})}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(
            f"There is no search in {str(folder)!r}.",
            expected=f"a folder that `shiftproof search` wrote, with {FILE}",
            reason=f"{type(error).__name__}: {error}",
        ) from error


def _some(trial: Trial | None, problem: str) -> Trial:
    if trial is None:
        raise RunError(problem)
    return trial
