"""Ng et al. 2023, figure 3b: how far from the training domain invariance still ranks networks.

    python -m benchmarks.reproduce.hypersphere_table --data data

The toy study of section 5.1, as `examples/hypersphere.py` has it, in full. The paper does not say how long its networks
are trained, which matters: they are trained here for two numbers of steps. Each network is a cell of a run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from benchmarks.pool import check_time
from benchmarks.reproduce.record import Figures, options_of
from examples.hypersphere import STEPS, Study, mean_tau
from shiftproof.runs import Cell, Executor, Inline, Json, Plan, Processes, Row, Store, drive

SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"networks": 3, "distances": 3, "steps": (2, 4)},
    "sample": {"networks": 20, "distances": 10, "steps": (STEPS // 4, STEPS // 16)},
    "short": {"networks": 200, "distances": 40, "steps": (STEPS, STEPS // 4)},
}
MEASURES = ("NI", "ATC")


def main() -> None:
    """Train and measure the networks, or those that are left, and write Kendall's tau by distance."""
    options = options_of(__doc__, tuple(SIZES))
    options.device = "cpu"  # whatever was asked for: networks this small are no work for a GPU
    size = SIZES[options.size]
    lengths = " or ".join(f"{steps:,}" for steps in size["steps"])
    cut = [f"full size; Adam for {lengths} steps on all points (paper: training length not stated)"]
    figures = Figures("hypersphere", options, cut)
    bench = Bench(size["distances"], options.seed, figures.stop_at)
    executor: Executor = Inline() if options.workers == 1 else Processes(options.workers)
    with Store(options.runs / figures.name, {"hypersphere": "1"}) as store:
        for steps in size["steps"]:
            cells = tuple(Cell("hypersphere", number=number, steps=steps) for number in range(size["networks"]))
            results = drive(Plan(cells, bench.prints), store, bench, executor=executor)
            rows = [result.row for result in results if result.row is not None]
            if rows:
                figures.add(f"{steps} steps", {"networks": len(rows), "by distance": taus(rows)})


@dataclass(frozen=True)
class Bench:
    """What a worker needs: how many distances, and when to begin nothing more."""

    distances: int
    seed: int
    stop_at: float | None = None

    @property
    def prints(self) -> dict[str, str]:
        """What changes the rows."""
        return {"distances": str(self.distances), "seed": str(self.seed)}

    def __call__(self) -> Networks:
        """Draw the sets."""
        return Networks(self)


@dataclass
class Networks:
    """A worker of `runs` that trains a network and measures it on every set."""

    bench: Bench

    @cached_property
    def study(self) -> Study:
        """The sets, the same ones for all networks."""
        return Study.drawn(self.bench.distances, self.bench.seed)

    def measure(self, cell: Cell) -> Row:
        """Train the cell's network and return what was found of it on the sets of every distance."""
        check_time(self.bench.stop_at)
        found = self.study.measured(self.study.train(cast(int, cell["number"]), cast(int, cell["steps"])))
        return {"sets": cast(Json, [[angle / math.pi, sets] for angle, sets in found.items()])}


def taus(rows: Sequence[Row]) -> list[dict[str, float]]:
    """Return the mean of Kendall's tau by distance, which is in multiples of pi."""
    by_distance = zip(*(cast("list[Any]", row["sets"]) for row in rows), strict=True)
    return [
        {
            "distance": round(some[0][0], 6),
            **{measure: mean_tau([sets for _, sets in some], measure) for measure in MEASURES},
        }
        for some in by_distance
    ]


if __name__ == "__main__":
    main()
