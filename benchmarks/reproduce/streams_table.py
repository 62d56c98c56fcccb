"""Press et al. 2023, tables 1 to 3: who lasts along a stream of corruptions, how often to reset, and which margin.

    python -m benchmarks.reproduce.streams_table --data data --workers 8 --device cuda

`methods`: CIN-C, the fifteen corruptions at severity 5 one after another, with every method; `tenfold`: with those that
learn, at ten times the learning rate. `resets`: ETA that goes back every k steps, on the hold-out corruptions.
`margins`: EATA and RDumb at other entropy margins E0. CCC, a million images long, is `benchmarks/endurance.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from benchmarks.pool import check_time
from benchmarks.reproduce.record import Figures, options_of
from benchmarks.reproduce.statistics_table import cifar_network
from shiftproof.adapters import adapt, method
from shiftproof.data import ImageSet, load_data
from shiftproof.models import load_model
from shiftproof.runs import Cell, Executor, Inline, Json, Plan, Processes, Row, Store, drive
from shiftproof.streams import Concatenated, Trace, evaluate

METHODS = ("source", "bn", "tent", "rpl", "slr", "cpl", "eta", "eata", "rdumb", "guard", "cotta", "sar", "roid")
TENFOLD = ("tent", "rpl", "slr", "cpl", "eta", "eata", "rdumb", "guard")
RESETS = (125, 250, 500, 1000, "never")
MARGINS = (0.1, 0.3, 0.4, 0.5, 0.7)
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"images": 256, "speed": 128, "methods": ("source", "bn", "rdumb", "guard"), "resets": (2, 4)},
    "short": {"images": 75_000, "speed": 5_000, "methods": METHODS, "resets": RESETS},
}
BATCH, WINDOW, SHOWN = 64, 2_000, 60


def main() -> None:
    """Run the streams that are missing, and write the figures."""
    options = options_of(__doc__, tuple(SIZES))
    size = SIZES[options.size]
    cut = [
        "CIFAR-10 at 32 pixels with a ResNet-20, not ImageNet with a ResNet-50",
        f"one order of the corruptions, {size['images']:,} images (paper: ten orders of 750,000)",
        "margins on CIN-C rather than on CCC",
    ]
    figures = Figures("streams", options, cut)
    plain = [_cell("methods", name, name, size) for name in size["methods"]]
    resets = [_cell("resets", str(k), "eta", size, shifts=["holdout"], options={"reset": k}) for k in size["resets"]]
    faster = [
        _cell("tenfold", name, name, size, options={"lr": 10 * _rate(name)})
        for name in TENFOLD
        if name in size["methods"]
    ]
    margins = [
        _cell("margins", f"{name} {margin}", name, size, options={"entropy_margin": margin})
        for margin in (MARGINS if options.size != "tiny" else MARGINS[:1])
        for name in ("eata", "rdumb")
    ]
    bench = Bench(options.data, options.device, options.seed, options.runs / "streams", figures.stop_at)
    executor: Executor = Inline() if options.workers == 1 else Processes(options.workers)
    cells = (*plain, *resets, *margins, *faster)
    with Store(options.runs / "streams", {"streams": "1"}) as store:
        plan = Plan(cells, {"data": bench.images().fingerprint})
        results = drive(plan, store, bench, executor=executor)
    for part in ("methods", "resets", "tenfold", "margins"):
        rows = {
            cast(str, result.cell["name"]): result.row
            for result in results
            if result.cell["part"] == part and result.row
        }
        figures.add(part, rows)


def _cell(part: str, name: str, of: str, size: Mapping[str, Any], **more: Any) -> Cell:
    """Return one method's run along a stream."""
    settings: dict[str, Json] = {"shifts": ["common"], "options": {}, **more}
    return Cell("stream", part=part, name=name, method=of, images=size["images"], speed=size["speed"], **settings)


def _rate(name: str) -> float:
    """Return the usual learning rate of a method on CIFAR."""
    return float(method("eta" if name == "guard" else name).options("cifar", "paper", {})["lr"])


@dataclass(frozen=True)
class Bench:
    """What a worker needs."""

    data: Path
    device: str
    seed: int
    out: Path
    stop_at: float | None

    def __call__(self) -> Streams:
        """Return what runs streams in this process."""
        return Streams(self)

    def images(self) -> ImageSet:
        """Return the test images."""
        return load_data(self.data / "cifar10/test.npz")


@dataclass
class Streams:
    """A worker of `runs` that sends a stream through a method."""

    bench: Bench
    images: ImageSet = field(init=False)
    model: Any = field(init=False)

    def __post_init__(self) -> None:
        self.images = self.bench.images()
        found = (self.bench.data / "cifar10-resnets").is_dir()
        device = self.bench.device
        self.model = cifar_network(self.bench.data, "resnet20", device) if found else load_model("demo", device=device)

    def measure(self, cell: Cell) -> Row:
        """Return the accuracy along the stream, over its last tenth, and a drawing's worth of points."""
        check_time(self.bench.stop_at)
        stream = Concatenated(
            self.images,
            shifts=cast("list[str]", cell["shifts"]),
            length=cast(int, cell["images"]),
            speed=min(cast(int, cell["speed"]), len(self.images)),
            batch_size=BATCH,
            seed=self.bench.seed,
            device=self.bench.device,
        )
        name, options = cast(str, cell["method"]), dict(cast("dict[str, Any]", cell["options"]))
        if name == "guard":
            name, options = "eta", {**options, "reset": "guard"}
        adapter = adapt(self.model, name, preset="cifar", **options)
        trace = evaluate(adapter, stream, out=self.bench.out / f"{cell['part']}-{cell['name']}".replace(" ", "-"))
        ends, rolling = trace.rolling(min(WINDOW, sum(trace.images) // 2))
        every = max(1, len(ends) // SHOWN)
        return {
            **trace.to_row(),
            "last tenth": _last(trace),
            "resets": trace.resets,
            "trace": [[end, round(value, 4)] for end, value in zip(ends[::every], rolling[::every], strict=True)],
        }


def _last(trace: Trace) -> float:
    """Return the accuracy over the last tenth of the batches."""
    start = len(trace.images) * 9 // 10
    return sum(trace.right[start:]) / sum(trace.images[start:])


if __name__ == "__main__":
    main()
