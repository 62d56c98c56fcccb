"""Press et al. 2023, tables 1 to 3 on CIFAR-10: cells of CCC, orders of CIN-C, margins, resets, at the public rates.

    python -m benchmarks.reproduce.cells_table --data data --part cells --device cuda --workers 15 --minutes 10
    python -m benchmarks.reproduce.cells_table --data data --part orders --size sample              # a CPU, minutes

`cells`: three targets and three speeds of CCC, each speed with a seed of its own, and further seeds of medium at the
first speed; ResNet-20 (the demo, which CCC is calibrated on) and the small transformer. `orders`: CIN-C, the fifteen
corruptions at severity 5, in several orders. `margins`: EATA and RDumb at other entropy margins E0, along the cells of
CCC-Medium. `resets`: ETA that goes back every k steps, along orders of the hold-out corruptions. Every stream is made
once, and all methods go along it at the rates of their presets, the public ones, some also at ten times the rates. What
each answered is kept, as `benchmarks.safe_adaptation` keeps it, so that a second call goes on; `safe` chooses among the
answers with one label in fifty. A method has *collapsed* from the first of the twenty windows of a stream after which
it is below the model as it is in every one.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.reproduce.record import Figures, options_of
from benchmarks.safe_adaptation import (
    Unit,
    every,
    file_of,
    has_rate,
    made,
    make_one,
    record_one,
    serve,
    stacked,
    workers,
)
from benchmarks.safe_streams import Shape, shapes

METHODS = ("source", "bn", "tent", "eta", "eata", "rdumb", "rdumbpp", "asr", "petta")
"""The cheapest first: what a call has no time for is PeTTA, which takes six times as long as the others."""
TENFOLD = ("eata", "rdumb", "rdumbpp")
GRAPH = ("tent", "eta", "eata", "rdumb", "rdumbpp")
MODELS = {"demo": "ResNet-20", "cifar10-vit": "ViT"}
PARTS = ("cells", "orders", "margins", "resets")
MARGINS = (0.4, 0.7, 0.1, 0.3, 0.5)
"""Shares of ln C, the usual one first."""
RESETS = ("never", "125", "1000", "500", "250")
"""Steps between resets of ETA."""
SAFE, SHARE, COINS = "safe 1/50", 50, 3
AMONG = ("bn", "rdumb")
WINDOWS = 20
CORRUPTIONS = 15
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {
        "images": 256, "ccc": ("ccc-hard-1000",), "medium": ("ccc-hard-1000",), "seeds": 0, "models": ("demo",),
        "orders": 1, "order": 240, "resets": 1, "reset": 240, "speed": 120,
        "methods": ("source", "bn", "rdumb"), "margins": MARGINS[:1], "rates": (1.0,), "calibration": (40, 0.3),
    },
    "sample": {
        "images": 4_800, "ccc": ("ccc-medium-1000",), "medium": ("ccc-medium-1000",), "seeds": 0, "models": ("demo",),
        "orders": 10, "order": 4_800, "resets": 1, "reset": 9_600, "speed": 2_400,
        "methods": METHODS[:4], "margins": MARGINS[:3], "rates": (1.0,), "calibration": (100, 0.1),
    },
    "short": {
        "images": 100_000, "ccc": ("ccc",), "medium": ("ccc-medium",), "seeds": 2, "models": tuple(MODELS),
        "orders": 10, "order": 49_920, "resets": 3, "reset": 75_000, "speed": 5_000,
        "methods": METHODS, "margins": MARGINS, "rates": (1.0, 10.0), "calibration": (1_000, 0.02),
    },
}  # fmt: skip
"""`images`: of a cell of CCC; `order`: of an order of CIN-C; `reset`: of an order of the hold-out corruptions."""


def main() -> None:
    """Record what is missing, then write the figures of what there is."""
    options = options_of(
        __doc__,
        tuple(SIZES),
        part={"choices": PARTS, "default": PARTS[0]},
        only={"choices": ("record", "table"), "default": None},
    )
    size = SIZES[options.size]
    figures = Figures(f"streams-{options.part}", options, cuts(options.part, size))
    chosen = settings(options, size, figures.stop_at)
    planned = Planned(options.part, size)
    if options.only != "table":
        record(planned, chosen, options.workers)
    if options.only != "record":
        write(figures, planned, chosen)


def cuts(part: str, size: Mapping[str, Any]) -> list[str]:
    """Say what is smaller than in the paper."""
    networks = " and a small transformer" if part == "cells" and len(size["models"]) > 1 else ""
    cifar = f"CIFAR-10 at 32 pixels with a ResNet-20 (the demo){networks}, not ImageNet with a ResNet-50"
    if part == "orders":
        return [cifar, f"{size['orders']} orders of {size['order']:,} images (paper: ten of 750,000)"]
    if part == "resets":
        return [
            cifar,
            f"{size['resets']} orders of the hold-out corruptions at severity 5, {size['reset']:,} images each, "
            f"{size['speed']:,} of a corruption at a time (paper: all 50,000 images)",
        ]
    return [cifar, f"{size['images']:,} images per cell (paper: 7.5 million), three speeds with one seed each"]


def settings(options: argparse.Namespace, size: Mapping[str, Any], stop_at: float | None) -> argparse.Namespace:
    """Return what `benchmarks.safe_adaptation` wants to know."""
    out = options.runs / f"streams-{options.part}"
    images, precision = size["calibration"]
    return argparse.Namespace(
        out=out,
        held=out / "held",
        models=size["models"],
        data=options.data / "cifar10/test.npz",
        source="demo-source",
        device=options.device,
        images=size["images"],
        holdout=options.part == "resets",
        calibration_images=images,
        precision=precision,
        amp=None,
        graph=GRAPH if options.device.startswith("cuda") else (),
        deadline=stop_at or math.inf,
    )


@dataclass(frozen=True)
class Planned:
    """What a part goes along, and with what."""

    part: str
    size: Mapping[str, Any]

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods, the source first."""
        if self.part == "margins":
            margins = self.size["margins"]
            return ("source", *(f"{name}[entropy_margin={each}]" for each in margins for name in ("eata", "rdumb")))
        if self.part == "resets":
            return ("source", *(f"eta[reset={each}]" for each in RESETS))
        return tuple(self.size["methods"])

    @property
    def streams(self) -> list[Shape]:
        """Cells of CCC and further seeds of its medium target, or orders of corruptions."""
        size = self.size
        if self.part == "orders":
            each = size["order"] // CORRUPTIONS
            return [_order("cin-c", seed, size["order"], each) for seed in range(size["orders"])]
        if self.part == "resets":
            return [_order("holdout", seed, size["reset"], size["speed"]) for seed in range(size["resets"])]
        named = size["medium" if self.part == "margins" else "ccc"]
        cells = [shape for shape in shapes() if shape.kind == "ccc" and shape.name.startswith(named)]
        seeds = range(46, 46 + size["seeds"]) if self.part == "cells" else ()
        return [*cells, *(Shape(f"ccc-medium-1000-{s}", "ccc", s, target="medium", speed=1000) for s in seeds)]

    def units(self, shape: Shape) -> list[Unit]:
        """Return what is to be recorded along a stream, the first model and the usual rates first."""
        first, cells = self.size["models"][0], self.part == "cells"
        return [
            (shape, model, name, rate)
            for model in (self.size["models"] if cells else (first,))
            for rate in (self.size["rates"] if cells else (1.0,))
            for name in (self.methods if rate == 1.0 else TENFOLD)
            if rate == 1.0 or model == first
        ]


def _order(name: str, seed: int, length: int, speed: int) -> Shape:
    return Shape(f"{name}-{seed}", "concatenated", seed, length=length, speed=speed)


def record(planned: Planned, chosen: argparse.Namespace, count: int) -> None:
    """Make every stream that something is missing along, then record what is, method by method."""
    missing = {
        unit: shape
        for shape in planned.streams
        for unit in planned.units(shape)
        if not file_of(chosen.out, unit).exists()
    }
    order = {name: place for place, name in enumerate(planned.methods)}
    models = planned.size["models"]
    later = sorted(missing, key=lambda unit: (models.index(unit[1]), unit[3], order[unit[2]]))
    with workers(count) as pool:
        along = [shape for shape in dict.fromkeys(missing.values()) if not made(shape, chosen)]
        every(pool, partial(make_one, chosen=chosen), along)
        every(pool, partial(record_one, chosen=chosen), later)


def write(figures: Figures, planned: Planned, chosen: argparse.Namespace) -> None:
    """Write a row for every stream, by model and rate."""
    streams = planned.streams
    for model, rate in dict.fromkeys((unit[1], unit[3]) for shape in streams for unit in planned.units(shape)):
        rows = {shape.name: row_of(shape, model, rate, planned.methods, chosen) for shape in streams}
        figures.add(model if rate == 1.0 else f"{model} x{rate:g}", {name: row for name, row in rows.items() if row})


def row_of(shape: Shape, model: str, rate: float, methods: Sequence[str], chosen: argparse.Namespace) -> dict[str, Any]:
    """Return what became of each method along a stream; nothing where the source is not recorded."""
    table: dict[str, NDArray[np.int64]] = {}
    for name in methods:
        path = file_of(chosen.out, (shape, model, name, rate if has_rate(name) else 1.0))
        if path.is_file():
            table[name] = np.load(path).astype(np.int64)
    if "source" not in table:
        return {}
    labels = np.load(chosen.out / "labels" / f"{shape.name}.npy").astype(np.int64)
    right = {name: answers == labels for name, answers in table.items() if len(answers)}
    out = {name: along(hits, right["source"]) for name, hits in right.items()}
    if set(AMONG) <= set(table):
        served = [serve(stacked(table, AMONG), labels, shape.batch, SHARE, coin) for coin in range(COINS)]
        told = [along(answers == labels, right["source"]) for answers, _ in served]
        out[SAFE] = {
            **told[0],
            "accuracy": float(np.mean([each["accuracy"] for each in told])),
            "coins": [each["accuracy"] for each in told],
            "labels": float(np.mean([audit.labels for _, audit in served])) / len(labels),
        }
    return {"images": len(labels), "methods": out}


def along(right: NDArray[np.bool_], source: NDArray[np.bool_]) -> dict[str, Any]:
    """Return the accuracy along a stream, window by window, and from which image on it is below the source's."""
    edges = np.linspace(0, len(right), WINDOWS + 1).astype(int)
    windows = list(pairwise(edges))
    curve, base = ([float(hits[low:high].mean()) for low, high in windows] for hits in (right, source))
    return {
        "accuracy": float(right.mean()),
        "curve": [round(value, 4) for value in curve],
        "collapsed at": collapse(curve, base, [int(low) for low in edges[:-1]]),
    }


def collapse(curve: Sequence[float], base: Sequence[float], starts: Sequence[int]) -> int | None:
    """Return where a curve goes below another for good, two windows at least; None where it does not."""
    below = [own < other for own, other in zip(curve, base, strict=True)]
    if not all(below[-2:]):
        return None
    first = max((place for place, each in enumerate(below) if not each), default=-1) + 1
    return starts[first]


if __name__ == "__main__":
    main()
