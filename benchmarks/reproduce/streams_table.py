"""Press et al. 2023, table 2: who lasts along a stream of corruptions.

    python -m benchmarks.reproduce.streams_table --data data --part cifar --workers 8 --device cuda
    python -m benchmarks.reproduce.streams_table --data data --part imagenet --workers 8 --device cuda

`cifar`: CIN-C, the fifteen corruptions at severity 5 one after another, with every method (`methods`), and with those
that learn at ten times the learning rate (`tenfold`). `imagenet`: CIN-C and a short CCC with ResNet-50 on a sample of
ImageNet. CCC on CIFAR-10, a million images long, is `benchmarks/endurance.py`; resets and margins are of `cells_table`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from benchmarks.pool import check_time
from benchmarks.reproduce.compared import IMAGENET_SIDE, Network
from benchmarks.reproduce.record import Figures, options_of
from shiftproof.adapters import adapt, method
from shiftproof.data import DataSpec, ImageSet, load_images
from shiftproof.models import load_model
from shiftproof.runs import Cell, Executor, Inline, Json, Plan, Processes, Result, Row, Store, drive
from shiftproof.streams import Ccc, Concatenated, Stream, StreamCalibration, Trace, calibrate, evaluate

PARTS = ("cifar", "imagenet")
METHODS = (
    *("source", "bn", "tent", "rpl", "slr", "cpl", "cotta", "eta", "eata", "rdumb", "guard"),
    *("sar", "roid", "cmf", "deyo", "rotta", "lame", "t3a"),
)
"""The paper's, ours, and those that came after or learn nothing; without MEMO, which learns from single images."""
TENFOLD = ("tent", "rpl", "slr", "cpl", "eta", "eata", "rdumb", "guard")
SIZES: dict[str, dict[str, dict[str, Any]]] = {
    "tiny": {
        "cifar": {"images": 256, "speed": 128, "methods": ("source", "bn", "cotta", "guard")},
        "imagenet": {
            "images": 32, "speed": 16, "methods": ("source", "bn", "cotta"), "ccc": 32, "ccc_speed": 32,
            "calibration": (8, 0.3),
        },
    },
    "sample": {
        "cifar": {"images": 3_840, "speed": 256, "methods": METHODS[:3] + METHODS[7:10]},
        "imagenet": {
            "images": 128, "speed": 32, "methods": ("source", "bn", "tent"), "ccc": 64, "ccc_speed": 32,
            "calibration": (8, 0.3),
        },
    },
    "short": {
        "cifar": {"images": 75_000, "speed": 5_000, "methods": METHODS},
        "imagenet": {
            "images": 15_000, "speed": 1_000, "methods": METHODS, "ccc": 16_000, "ccc_speed": 250,
            "calibration": (500, 0.02),
        },
    },
}  # fmt: skip
"""Lengths of streams and of stretches under one shift; images a place is calibrated on, and to which standard error."""
BATCH, WINDOW, SHOWN = 64, 2_000, 60
CCC, CCC_SEED = "ccc", 43
STEADY = 0.05
"""How far paths calibrated on few images may stray from the target."""


def main() -> None:
    """Run the streams that are missing, and write the figures as they come."""
    options = options_of(__doc__, tuple(SIZES), part={"choices": PARTS, "default": PARTS[0]})
    size = SIZES[options.size][options.part]
    figures = Figures("streams" if options.part == "cifar" else f"streams-{options.part}", options, cuts(options, size))
    out = options.runs / figures.name
    bench = Bench(options.part, options.data, options.device, options.seed, out, figures.stop_at)
    executor: Executor = Inline() if options.workers == 1 else Processes(options.workers)
    planned = cells(options.part, size)
    for kind in dict.fromkeys(cast(str, cell["stream"]) for cell in planned):
        if figures.late:
            return
        if kind == CCC:
            calibrated(bench, size, options.workers)
        with Store(out, {"streams": "2"}) as store:
            plan = Plan(tuple(cell for cell in planned if cell["stream"] == kind), {"data": bench.images().fingerprint})
            results = drive(
                plan, store, bench, executor=executor, on_progress=lambda _, __, result: told(figures, result)
            )
        for result in results:
            told(figures, result)


def cuts(options: Any, size: Mapping[str, Any]) -> list[str]:
    """Say what is smaller than in the paper."""
    if options.part == "cifar":
        return [
            "CIFAR-10 at 32 pixels with a ResNet-20, not ImageNet with a ResNet-50",
            f"one order of the corruptions, {size['images']:,} images (paper: ten orders of 750,000)",
        ]
    return [
        "1,000 images of ImageNet, one per class (paper: 50,000)",
        f"CIN-C: one order of the corruptions, {size['images']:,} images (paper: ten orders of 750,000)",
        f"CCC: {size['ccc']:,} images in steps of {size['ccc_speed']:,}, one run, calibrated on "
        f"{size['calibration'][0]} images per grid point (paper: 7.5 million in steps of 1,000 to 5,000, nine runs)",
        "convolutions and linear layers rounded to half precision",
    ]


def cells(part: str, size: Mapping[str, Any]) -> tuple[Cell, ...]:
    """Return one cell for every run of a method along a stream."""
    plain = [_cell("methods", name, name, size) for name in size["methods"]]
    if part == "imagenet":
        long = {"images": size["ccc"], "speed": size["ccc_speed"]}
        return (*plain, *(_cell("ccc", name, name, long, stream=CCC) for name in size["methods"]))
    faster = [
        _cell("tenfold", name, name, size, options={"lr": 10 * _rate(name)})
        for name in TENFOLD
        if name in size["methods"]
    ]
    return (*plain, *faster)


def _cell(part: str, name: str, of: str, size: Mapping[str, Any], **more: Any) -> Cell:
    """Return one method's run along a stream."""
    settings: dict[str, Json] = {"stream": "cin-c", "shifts": ["common"], "options": {}, **more}
    return Cell("stream", part=part, name=name, method=of, images=size["images"], speed=size["speed"], **settings)


def _rate(name: str) -> float:
    """Return the usual learning rate of a method on CIFAR."""
    return float(method(name).options("cifar", "paper", {}).to_dict()["lr"])


def told(figures: Figures, result: Result | None) -> None:
    """Write the row of a run, or say why there is none."""
    if result is None:
        return
    part, name = str(result.task.parameters()["part"]), str(result.task.parameters()["name"])
    if result.row is None:
        print(f"{part} {name} gave no figure: {result.error}", flush=True)
    elif name not in figures.parts.setdefault(part, {}):
        order = [
            cell["name"] for cell in cells(figures.options.part, SIZES[figures.options.size][figures.options.part])
        ]
        rows = {**figures.parts[part], name: result.row}
        figures.add(part, dict(sorted(rows.items(), key=lambda item: order.index(item[0]))))


@dataclass(frozen=True)
class Bench:
    """What a worker needs."""

    part: str
    data: Path
    device: str
    seed: int
    out: Path
    stop_at: float | None

    def __call__(self) -> Streams:
        """Return what runs streams in this process."""
        return Streams(self)

    @property
    def imagenet(self) -> bool:
        """Whether the images are ImageNet's."""
        return self.part == "imagenet"

    @property
    def calibration_file(self) -> Path:
        """Where the calibration of CCC is, or is to be."""
        return self.out / "calibration" / "calibration.json"

    def images(self) -> ImageSet:
        """Return the images of the streams."""
        if self.imagenet:
            return load_images(self.data / "imagenet-sample", size=IMAGENET_SIDE)
        return load_images(self.data / "cifar10/test.npz")

    def model(self) -> Any:
        """Return the network that adapts."""
        if self.imagenet:
            return load_model(f"{self.data / 'models.py'}:resnet50", device=self.device)
        if (self.data / "cifar10-resnets").is_dir():
            return Network("resnet20", self.data, self.device).load()
        return load_model("demo", device=self.device)


def calibrated(bench: Bench, size: Mapping[str, Any], workers: int) -> None:
    """Calibrate the CCC stream of a part, unless its calibration is there."""
    if bench.calibration_file.is_file():
        return
    images, precision = size["calibration"]
    calibrate(
        f"{bench.data / 'models.py'}:resnet50" if bench.imagenet else "demo",
        DataSpec(bench.data / "imagenet-sample", size=IMAGENET_SIDE)
        if bench.imagenet
        else bench.data / "cifar10/test.npz",
        out=bench.calibration_file.parent,
        images=size.get("ccc", size["images"]),
        speed=size.get("ccc_speed", size["speed"]),
        seed=CCC_SEED,
        calibration_images=images,
        precision=precision,
        steady=STEADY if bench.imagenet else None,
        device=bench.device,
        executor="inline" if workers == 1 else f"processes:{workers}",
    )


@dataclass
class Streams:
    """A worker of `runs` that sends a stream through a method."""

    bench: Bench
    images: ImageSet = field(init=False)
    model: Any = field(init=False)

    def __post_init__(self) -> None:
        self.images, self.model = self.bench.images(), self.bench.model()

    def measure(self, cell: Cell) -> Row:
        """Return the accuracy along the stream, over its last tenth, and a drawing's worth of points."""
        check_time(self.bench.stop_at)
        name, options = cast(str, cell["method"]), cast("dict[str, Any]", cell["options"])
        adapter = adapt(self.model, name, preset="imagenet" if self.bench.imagenet else "cifar", **options)
        out = self.bench.out / f"{cell['part']}-{cell['name']}".replace(" ", "-")
        trace = evaluate(adapter, self._stream(cell), out=out)
        ends, rolling = trace.rolling(min(WINDOW, sum(trace.images) // 2))
        every = max(1, len(ends) // SHOWN)
        return {
            **trace.to_row(),
            "last tenth": _last(trace),
            "resets": trace.resets,
            "trace": [[end, round(value, 4)] for end, value in zip(ends[::every], rolling[::every], strict=True)],
        }

    def _stream(self, cell: Cell) -> Stream:
        length, speed = cast(int, cell["images"]), cast(int, cell["speed"])
        common: dict[str, Any] = {"length": length, "batch_size": BATCH, "device": self.bench.device}
        if cell["stream"] == CCC:
            calibration = StreamCalibration.load(self.bench.calibration_file)
            return Ccc(self.images, calibration=calibration, speed=speed, seed=CCC_SEED, **common)
        shifts = cast("list[str]", cell["shifts"])
        speed = min(speed, len(self.images))
        return Concatenated(self.images, shifts=shifts, speed=speed, seed=self.bench.seed, **common)


def _last(trace: Trace) -> float:
    """Return the accuracy over the last tenth of the batches."""
    start = len(trace.images) * 9 // 10
    return sum(trace.right[start:]) / sum(trace.images[start:])


if __name__ == "__main__":
    main()
