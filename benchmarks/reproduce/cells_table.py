"""Press et al. 2023, table 2 on CIFAR-10: the nine cells of CCC, three seeds of CCC-Medium, ten orders of CIN-C.

    python -m benchmarks.reproduce.cells_table --data data --device cuda --workers 15 --minutes 5
    python -m benchmarks.reproduce.cells_table --data data --size sample                 # a CPU, minutes

Every stream is made once, and all methods go along it at the rates of their presets (the public ones): ResNet-20 (the
demo, which CCC is calibrated on) and the small transformer. What each answered is kept, as `benchmarks.safe_adaptation`
keeps it, so that a second call goes on; `safe` chooses among the answers with one label in fifty. A method has
*collapsed* from the first window of a twentieth of a stream after which it is below the model as it is in every one.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, as_completed, wait
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.reproduce.record import Figures, options_of
from benchmarks.safe_adaptation import Unit, file_of, make_one, record_one, serve, stacked, workers
from benchmarks.safe_streams import Shape, shapes

METHODS = ("source", "bn", "tent", "eta", "eata", "rdumb", "rdumbpp", "asr")
"""The source first: what is told of the others is told beside it."""
DEAR = "petta"
"""Takes five times as long, so that it goes along fewer streams, and first."""
DEAR_ALONG = ("ccc-easy", "ccc-medium-1000-43", "ccc-medium-2000", "ccc-medium-5000")
GRAPH = ("tent", "eta", "eata", "rdumb", "rdumbpp")
MODELS = {"demo": "ResNet-20", "cifar10-vit": "ViT"}
SAFE, SHARE, COINS = "safe 1/50", 50, 3
AMONG = ("bn", "rdumb")
WINDOWS = 20
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {
        "images": 256, "ccc": ("ccc-hard-1000",), "seeds": 0, "orders": 1, "methods": ("source", "bn", "rdumb"),
        "models": ("demo",), "dear": (), "calibration": (40, 0.3),
    },
    "sample": {
        "images": 6_400, "ccc": ("ccc-medium-1000",), "seeds": 0, "orders": 2, "methods": METHODS,
        "models": ("demo",), "dear": (), "calibration": (200, 0.1),
    },
    "short": {
        "images": 100_000, "ccc": ("ccc",), "seeds": 2, "orders": 10, "methods": METHODS,
        "models": tuple(MODELS), "dear": DEAR_ALONG, "calibration": (1_000, 0.02),
    },
}  # fmt: skip
ORDER = 49_920
"""Images of CIN-C: fifteen corruptions at severity 5, 52 batches each."""


def main() -> None:
    """Record what is missing, then write the figures of what there is."""
    options = options_of(__doc__, tuple(SIZES), only={"choices": ("record", "table"), "default": None})
    size = SIZES[options.size]
    figures = Figures("streams-cells", options, cuts(size))
    chosen = settings(options, size, figures.stop_at)
    if options.only != "table":
        record(size, chosen, options.workers)
    if options.only != "record":
        write(figures, size, chosen)


def cuts(size: Mapping[str, Any]) -> list[str]:
    """Say what is smaller than in the paper."""
    return [
        "CIFAR-10 at 32 pixels with a ResNet-20 (the demo) and a small transformer, not ImageNet with a ResNet-50",
        f"CCC: {size['images']:,} images a cell (paper: 7.5 million); {1 + size['seeds']} seeds of medium, speed 1,000",
        f"CIN-C: {size['orders']} orders of {min(ORDER, size['images']):,} images (paper: ten of 750,000)",
    ]


def settings(options: argparse.Namespace, size: Mapping[str, Any], stop_at: float | None) -> argparse.Namespace:
    """Return what `benchmarks.safe_adaptation` wants to know."""
    out = options.runs / "streams-cells"
    images, precision = size["calibration"]
    return argparse.Namespace(
        out=out,
        held=out / "held",
        models=size["models"],
        data=options.data / "cifar10/test.npz",
        source="demo-source",
        device=options.device,
        images=size["images"],
        holdout=False,
        calibration_images=images,
        precision=precision,
        amp=None,
        graph=GRAPH if options.device.startswith("cuda") else (),
        deadline=stop_at or math.inf,
    )


def streams(size: Mapping[str, Any]) -> list[Shape]:
    """Return the streams: cells of CCC, further seeds of its medium target, orders of CIN-C."""
    cells = [shape for shape in shapes() if shape.kind == "ccc" and shape.name.startswith(size["ccc"])]
    orders = [
        Shape(f"cin-c-{seed}", "concatenated", seed, length=ORDER, speed=ORDER // 15) for seed in range(size["orders"])
    ]
    further = [
        Shape(f"ccc-medium-1000-{seed}", "ccc", seed, target="medium", speed=1000)
        for seed in range(46, 46 + size["seeds"])
    ]
    return [*further, *cells, *orders]


def units(shape: Shape, model: str, size: Mapping[str, Any]) -> list[Unit]:
    """Return what is to be recorded along a stream, what takes longest first."""
    dear = [DEAR] if model == "demo" and shape.name.startswith(size["dear"]) else []
    along = size["methods"] if model == "demo" or shape.kind == "ccc" else ()
    return [(shape, model, name, 1.0) for name in (*dear, *along)]


def record(size: Mapping[str, Any], chosen: argparse.Namespace, count: int) -> None:
    """Make every stream, and send methods along it as soon as it is made; the second model when all are."""
    first, *others = size["models"]
    send = partial(record_one, chosen=chosen)
    with workers(count) as pool:
        wanted = [shape for shape in streams(size) if left(shape, size["models"], size, chosen)]
        making, running = {pool.submit(make_one, shape, chosen): shape for shape in wanted}, list[Future[str]]()
        while making:
            for done in wait(making, return_when=FIRST_COMPLETED).done:
                print(done.exception() or done.result(), flush=True)
                running += [pool.submit(send, unit) for unit in left(making.pop(done), [first], size, chosen)]
        later = [unit for shape in wanted for unit in left(shape, others, size, chosen)]
        running += [pool.submit(send, unit) for unit in sorted(later, key=lambda unit: METHODS.index(unit[2]))]
        for done in as_completed(running):
            print(done.exception() or done.result(), flush=True)


def left(shape: Shape, models: Sequence[str], size: Mapping[str, Any], chosen: argparse.Namespace) -> list[Unit]:
    """Return what is not recorded along a stream."""
    found = [unit for model in models for unit in units(shape, model, size)]
    return [unit for unit in found if not file_of(chosen.out, unit).exists()]


def write(figures: Figures, size: Mapping[str, Any], chosen: argparse.Namespace) -> None:
    """Write a row for every model and stream."""
    for model in size["models"]:
        rows = {}
        for shape in streams(size):
            found = row_of(shape, model, size, chosen)
            if found:
                rows[shape.name] = found
        figures.add(model, rows)


def row_of(shape: Shape, model: str, size: Mapping[str, Any], chosen: argparse.Namespace) -> dict[str, Any]:
    """Return what became of each method along a stream; nothing where the source is not recorded."""
    paths = {name: file_of(chosen.out, (shape, model, name, 1.0)) for name in (*size["methods"], DEAR)}
    table = {name: np.load(path).astype(np.int64) for name, path in paths.items() if path.is_file()}
    table = {name: answers for name, answers in table.items() if len(answers) or name in AMONG}
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
