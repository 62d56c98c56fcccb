r"""Safe adaptation along many streams: who stays above the source model, and how near to the best fixed method.

    python -m benchmarks.safe_adaptation calibrate --data cifar10/test.npz --out runs/safe --device cuda
    python -m benchmarks.safe_adaptation record --data cifar10/test.npz --source cifar10/train.npz --out runs/safe \
        --device cuda --workers 12
    python -m benchmarks.safe_adaptation table --out runs/safe

`calibrate` finds the paths of CCC. `record` makes every stream once, holds it on the device, sends all methods along it
at the usual and at ten times the learning rates, and writes what each answered; a second call goes on where the first
was killed. `table` chooses among the answers as `safe` does, for several shares of labels and seeds of its coins, and
prints the tables: since configurations learn side by side, whoever serves, the choice can be made afterwards. Streams
at the two rates count as two.

`--holdout` makes all streams of the hold-out corruptions; settings are chosen on those.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import shiftproof
from shiftproof.adapters import PairedAudit, adapt, choose_preset, method
from shiftproof.data import as_images
from shiftproof.models import logits
from shiftproof.runs import write_atomically
from shiftproof.streams import Stream, StreamCalibration, calibrate, make_stream

METHODS = ("source", "bn", "rdumb", "eata", "guard", "petta", "asr", "rdumbpp")
RATES = (1.0, 10.0)
CANDIDATES = {"safe": ("bn", "rdumb"), "safe+petta": ("bn", "rdumb", "petta")}
SHARES = (50, 200, 500)
COINS = 5
"""Seeds of the coins that each choice is repeated with."""
LENGTH = 100_000
WINDOW = 64
"""Smaller batches are joined by so many recent images: statistics of one image are none."""
FROM_SOURCE = 2_000
"""Images of the source for the features that PeTTA compares with."""
Classes = NDArray[np.uint16]


@dataclass(frozen=True)
class Shape:
    """A stream: its kind, its options, its seed, and the size of batches."""

    name: str
    kind: str
    seed: int
    batch: int = 64
    length: int = LENGTH
    target: str | None = None
    speed: int | None = None
    concentration: float | None = None

    def calibration(self, out: Path) -> Path:
        """Return where the paths of its course are."""
        return out / "calibration" / f"{self.target}-{self.speed}-{self.seed}.json"

    def make(self, data: Any, out: Path, shifts: Sequence[str] | None, device: str, images: int | None) -> Stream:
        """Return the stream, or its beginning."""
        length = min(self.length, images or self.length)
        options: dict[str, Any] = {"length": length, "seed": self.seed, "batch_size": self.batch, "device": device}
        if self.kind == "ccc":
            return make_stream("ccc", data, calibration=StreamCalibration.load(self.calibration(out)), **options)
        options |= {"speed": self.speed, "concentration": self.concentration, "shifts": shifts}
        return make_stream(self.kind, data, **options)


def shapes() -> Iterator[Shape]:
    """Yield all streams: 30, each at two rates."""
    for target in ("easy", "medium", "hard"):
        for speed in (1000, 2000, 5000):
            for seed in (43, 44):
                yield Shape(f"ccc-{target}-{speed}-{seed}", "ccc", seed, target=target, speed=speed)
    for seed in (0, 1, 2):  # rounds of all corruptions, each in an order of its own: every one is met several times
        yield Shape(f"recurring-{seed}", "concatenated", seed, speed=1280)
    for seed, share in ((0, 0.1), (1, 0.1), (0, 1.0)):
        yield Shape(f"correlated-{share:g}-{seed}", "correlated", seed, concentration=share)
    for seed in (0, 1):
        yield Shape(f"mixed-{seed}", "mixed", seed)
    for batch, length in ((1, 5_000), (8, 20_000), (16, 40_000), (32, 60_000)):
        yield Shape(f"batch-{batch}", "concatenated", 0, batch, length)


def held(stream: Stream) -> tuple[Tensor, Tensor]:
    """Return all images of a stream as bytes on its device, and their labels: the 256 levels are all there is."""
    images, labels = [], []
    for batch in stream:
        images.append((batch.inputs * 255).round().to(torch.uint8))
        labels.append(batch.labels)
    return torch.cat(images), torch.cat([each for each in labels if each is not None])


def answers(
    model: nn.Module, name: str, rate: float, images: Tensor, batch: int, source: Tensor | None, graph: bool
) -> Classes:
    """Return what a method answers along the images, at the preset of the model and so many times its rate."""
    classes = logits(model, images[:2].float() / 255).shape[1]
    preset = choose_preset(model, classes)
    given: dict[str, Any] = {"source": source} if name == "petta" and source is not None else {}
    lr = method(name).options(preset, "paper", {}).to_dict().get("lr")
    given |= {} if lr is None else {"lr": lr * rate}
    given |= {"graph": True} if graph and batch >= WINDOW else {}
    given |= {"window": WINDOW} if batch < WINDOW and not method(name).own_memory else {}
    adapter = adapt(model, name, preset=preset, **given)
    found = [adapter(part.float() / 255).argmax(1) for part in torch.split(images, batch)]
    return torch.cat(found).cpu().numpy().astype(np.uint16)


def file_of(out: Path, shape: Shape, name: str, rate: float) -> Path:
    """Return where the answers of a method are."""
    return out / "answers" / shape.name / f"{name}-{rate:g}.npy"


def record_one(shape: Shape, chosen: argparse.Namespace) -> str:
    """Send all methods along one stream; return what was done and how long it took."""
    begun = time.perf_counter()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    todo = [
        (name, rate)
        for name in chosen.methods
        for rate in (RATES if "lr" in method(name).defaults.to_dict() else RATES[:1])
        if not file_of(chosen.out, shape, name, rate).exists()
    ]
    if not todo:
        return f"{shape.name}: done before"
    data = as_images(shiftproof.load_data(str(chosen.data)))
    model = shiftproof.load_model(chosen.model)
    if not isinstance(model, nn.Module):
        raise SystemExit("a black box cannot learn")
    model = model.to(chosen.device)
    shifts = ["holdout"] if chosen.holdout else None
    images, labels = held(shape.make(data, chosen.out, shifts, chosen.device, chosen.images))
    source = None
    if chosen.source:
        (first,) = shiftproof.load_data(str(chosen.source)).take(FROM_SOURCE).batches(FROM_SOURCE)
        source = first.inputs.to(chosen.device)
    for name, rate in todo:
        path = file_of(chosen.out, shape, name, rate)
        path.parent.mkdir(parents=True, exist_ok=True)
        found = answers(model, name, rate, images, shape.batch, source, name in chosen.graph)
        with (part := path.with_suffix(".part")).open("wb") as file:
            np.save(file, found)
        part.replace(path)
    np.save(path.parent / "labels.npy", labels.cpu().numpy().astype(np.uint16))
    return f"{shape.name}: {len(todo)} runs of {len(labels):,} images in {time.perf_counter() - begun:.0f} s"


def record(chosen: argparse.Namespace) -> None:
    """Record all streams, so many at a time, the longest first."""
    wanted = sorted(chosen.shapes, key=lambda shape: -shape.length / shape.batch)
    work = partial(record_one, chosen=chosen)
    if chosen.workers == 1:
        for shape in wanted:
            print(work(shape), flush=True)
        return
    with ProcessPoolExecutor(chosen.workers, mp_context=get_context("spawn")) as pool:
        for said in pool.map(work, wanted):
            print(said, flush=True)


def make_calibrations(chosen: argparse.Namespace) -> None:
    """Find the paths of every course of CCC; all share what is measured."""
    for shape in (each for each in chosen.shapes if each.kind == "ccc"):
        path = shape.calibration(chosen.out)
        if path.exists():
            continue
        begun = time.perf_counter()
        made = calibrate(
            chosen.model,
            str(chosen.data),
            target=shape.target or "easy",
            speed=shape.speed or 1000,
            seed=shape.seed,
            shifts=["holdout"] if chosen.holdout else None,
            images=min(shape.length, chosen.images or shape.length),
            calibration_images=chosen.calibration_images,
            precision=chosen.precision,
            device=chosen.device,
            out=chosen.out / "calibration" / "measured",
        )
        made.save(path)
        print(f"{shape.name}: target {made.target:.1%}, {time.perf_counter() - begun:.0f} s", flush=True)


def choose(table: NDArray[np.int64], labels: NDArray[np.int64], batch: int, share: int, seed: int) -> dict[str, float]:
    """Return what the safe choice among answers, [configurations, N], comes to, with its bounds and labels."""
    audit, served = PairedAudit(len(table), 1 / share, seed=seed), []
    for low in range(0, table.shape[1], batch):
        part = table[:, low : low + batch]
        served.append(part[audit.serving])
        audit.tell({place: int(labels[place]) for place in audit.ask(part)})
    least, most = audit.gain()
    right = float((np.concatenate(served) == labels).mean())
    return {"accuracy": right, "low": least, "high": most, "labels": audit.labels, "switches": len(audit.switches)}


def row_of(shape: Shape, rate: float, chosen: argparse.Namespace) -> dict[str, Any] | None:
    """Return the accuracies of all methods and choices along one stream at one rate; None where it is not recorded."""
    folder = file_of(chosen.out, shape, "source", 1.0).parent
    if not (folder / "labels.npy").exists():
        return None
    known = folder / f"row-{rate:g}.json"
    if known.exists():
        found: dict[str, Any] = json.loads(known.read_text())
        return found
    labels = np.load(folder / "labels.npy").astype(np.int64)
    table: dict[str, NDArray[np.int64]] = {}
    for name in chosen.methods:
        path = file_of(chosen.out, shape, name, rate)
        path = path if path.exists() else file_of(chosen.out, shape, name, 1.0)
        if path.exists():
            table[name] = np.load(path).astype(np.int64)
    accuracy = {name: float((each == labels).mean()) for name, each in table.items()}
    choices = {
        f"{name} 1/{share}": [
            choose(np.stack([table[each] for each in ("source", *among)]), labels, shape.batch, share, seed)
            for seed in range(COINS)
        ]
        for name, among in CANDIDATES.items()
        if set(among) <= set(table)
        for share in SHARES
    }
    row = {"stream": shape.name, "rate": rate, "images": len(labels), "accuracy": accuracy, "choices": choices}
    if len(table) == len(chosen.methods):
        write_atomically(known, json.dumps(row))
    return row


def interval(values: Sequence[float]) -> str:
    """Return a mean with the half-width of its 95 % interval over streams."""
    from scipy.stats import t

    reach = t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return f"{100 * float(np.mean(values)):.1f} ± {100 * reach:.1f}"


def summary(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the table: per method and choice, its mean accuracy and how often and how far it is below others."""
    singles = {(number, name): value for number, row in enumerate(rows) for name, value in row["accuracy"].items()} | {
        (number, name): float(np.mean([each["accuracy"] for each in found]))
        for number, row in enumerate(rows)
        for name, found in row["choices"].items()
    }
    yield (
        "| method | accuracy, % | streams not 2 points below source | below the best fixed, points | "
        "not 1 point below rdumb | labels, % |"
    )
    yield "|---|---:|---:|---:|---:|---:|"
    for name in dict.fromkeys(name for _, name in singles):
        own = {number: value for (number, each), value in singles.items() if each == name}
        safe = sum(value >= singles[number, "source"] - 0.02 for number, value in own.items())
        gaps = [max(rows[number]["accuracy"].values()) - value for number, value in own.items()]
        near = np.mean([value >= singles.get((number, "rdumb"), 0.0) - 0.01 for number, value in own.items()])
        spent = [each["labels"] / rows[n]["images"] for n in own for each in rows[n]["choices"].get(name, ())]
        told = f"{100 * np.mean(spent):.2f}" if spent else ""
        means = f"{interval(list(own.values()))} | {safe} of {len(own)} | {interval(gaps)}"
        yield f"| {name} | {means} | {near:.0%} | {told} |"


def detail(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield one row per stream, in percent."""
    names = list(rows[0]["accuracy"])
    choices = list(rows[0]["choices"])
    yield "| stream | rate | " + " | ".join([*names, *choices]) + " | bound on the gain held |"
    yield "|---|---:|" + "---:|" * (len(names) + len(choices) + 1)
    for row in rows:
        means = [np.mean([each["accuracy"] for each in row["choices"][name]]) for name in choices]
        cells = [f"{100 * value:.1f}" for value in (*(row["accuracy"][name] for name in names), *means)]
        base = row["accuracy"]["source"]
        held = [
            each["low"] <= each["accuracy"] - base <= each["high"] for name in choices for each in row["choices"][name]
        ]
        yield f"| {row['stream']} | {row['rate']:g} | " + " | ".join(cells) + f" | {sum(held)} of {len(held)} |"


def print_table(chosen: argparse.Namespace) -> None:
    """Print what was recorded."""
    torch.set_num_threads(1)
    pairs = [(shape, rate) for shape in chosen.shapes for rate in RATES]
    with ProcessPoolExecutor(chosen.workers, mp_context=get_context("spawn")) as pool:
        found = list(pool.map(partial(row_of, chosen=chosen), *zip(*pairs, strict=True)))
    rows = [row for row in found if row is not None]
    print(f"{len(rows)} of {len(pairs)} streams\n")
    for line in (*summary(rows), "", *detail(rows)) if rows else ():
        print(line)


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("calibrate", "record", "table"))
    parser.add_argument("--model", default="demo")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--source", type=Path, help="images of the source, for PeTTA")
    parser.add_argument("--out", type=Path, default=Path("runs/safe"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--images", type=int, help="length of the streams, at most")
    parser.add_argument("--methods", type=lambda text: tuple(text.split(",")), default=METHODS)
    parser.add_argument(
        "--graph", type=lambda text: text.split(","), default=[], help="methods whose passes are recorded, on CUDA"
    )
    parser.add_argument("--streams", default="", help="only those whose name begins so; several with commas")
    parser.add_argument("--holdout", action="store_true", help="hold-out corruptions instead of the common ones")
    parser.add_argument("--calibration-images", type=int, default=1000)
    parser.add_argument("--precision", type=float, default=0.02)
    chosen = parser.parse_args()
    chosen.shapes = [shape for shape in shapes() if shape.name.startswith(tuple(chosen.streams.split(",")))]
    {"calibrate": make_calibrations, "record": record, "table": print_table}[chosen.what](chosen)


if __name__ == "__main__":
    main()
