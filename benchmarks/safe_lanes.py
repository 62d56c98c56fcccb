r"""The recording of `benchmarks.safe_adaptation` with all streams of a model side by side in one network.

    python -m benchmarks.safe_lanes --data cifar10/test.npz --source demo-source --out runs/safe \
        --models demo,cifar10-vit --device cuda --workers 6 --seconds 450
    python -m benchmarks.safe_adaptation table --out runs/safe --models demo,cifar10-vit

Every process takes the steps of a few methods in turn, so that all streams are recorded equally far when the time is
up: the table compares on what all methods of a stream have answered. `--images` ends the streams sooner. `guard` is
RDumb where its test raises no alarm; where it does, that is said, and `benchmarks.safe_adaptation record --methods
guard` records it. Matrix products and convolutions are in TF32 on a GPU.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import shiftproof
from benchmarks.lanes import FAMILY, Lanes, Rdumb
from benchmarks.lanes_petta import Petta
from benchmarks.recorded_lanes import RecordedLanes
from benchmarks.safe_adaptation import FROM_SOURCE, RATES, WINDOW, file_of, has_rate, loaded, make_one, save, workers
from benchmarks.safe_streams import Shape, shapes
from shiftproof.adapters import choose_preset, method

METHODS = ("source", "bn", "rdumb", "eata", "rdumbpp", "asr", "petta")
COSTS = {"source": 0.2, "bn": 0.2, "asr": 1.4, "petta": 4.0}
"""What a step costs, roughly, where that of RDumb is 1."""
CHUNK = 1.0
"""Seconds that a method goes on before it is another's turn."""
CHECK = 90.0
"""Seconds after which what was answered is written, and said."""
MAKING = 1000
"""Images of a stream that are made at once: what a stream holds does not depend on it."""
CLASSES = 10


@dataclass(eq=False)
class Unit:
    """A method along the streams of one size of batches, at all rates, as far as it has come."""

    model: str
    name: str
    shapes: Sequence[Shape]
    spent: float = 0.0
    answers: list[Tensor] = field(default_factory=list)
    images: int = 0

    @property
    def batch(self) -> int:
        """The size of its batches."""
        return self.shapes[0].batch

    @property
    def share(self) -> float:
        """Its share of the time of its process."""
        return COSTS.get(self.name, 1.0) * (1.0 if self.batch == WINDOW else 0.25)

    def open(self, chosen: argparse.Namespace) -> None:
        """Load what it needs."""
        model = loaded(self.model, chosen.device).to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        given = {}
        if self.name == "petta" and chosen.source:
            (first,) = shiftproof.load_data(str(chosen.source)).take(FROM_SOURCE).batches(FROM_SOURCE)
            given["source"] = first.inputs.to(chosen.device).float() / 255
        options = method(self.name).options(choose_preset(model, CLASSES), "paper", given).to_dict()
        self.rates = RATES if has_rate(self.name) else RATES[:1]
        lr = options.get("lr", 0.0)
        rates = [lr * rate for rate in self.rates for _ in self.shapes]
        kind = Petta if self.name == "petta" else FAMILY[self.name]
        self.lanes: Lanes = kind(model, options, rates, CLASSES)
        small = self.batch < WINDOW and self.name != "petta"
        self.recorded = RecordedLanes(self.lanes) if small else None  # many streams keep a device busy as it is
        self.streams = [np.load(chosen.held / f"{shape.name}.npy", mmap_mode="r") for shape in self.shapes]
        self.window = WINDOW if self.batch < WINDOW and not method(self.name).own_memory else 0
        self.length = min(len(stream) for stream in self.streams)

    def go_on(self, device: str) -> None:
        """Take the steps of a turn."""
        begun = time.perf_counter()
        torch.backends.cudnn.benchmark = self.batch == WINDOW  # windows begin with batches of every size
        while self.images < self.length and time.perf_counter() < begun + CHUNK:
            part = np.stack([stream[self.images : self.images + self.batch] for stream in self.streams], 1)
            images = torch.from_numpy(part).to(device).float() / 255
            found = self.lanes(images.repeat(1, len(self.rates), 1, 1, 1), self.window)
            self.answers.append(found.to(torch.uint8))
            self.images += len(part)
        self.answers = [torch.cat(self.answers).cpu()]  # this waits for the device
        self.spent += time.perf_counter() - begun

    def save(self, out: Path) -> None:
        """Write what was answered so far, as that of `guard`, too, where RDumb goes along without an alarm."""
        table: NDArray[np.uint8] = (
            torch.cat([*self.answers, torch.zeros(0, len(self.lanes.rates), dtype=torch.uint8)])[: self.images]
            .cpu()
            .numpy()
        )
        alarms = self.lanes.alarms if isinstance(self.lanes, Rdumb) else []
        for lane, (rate, shape) in enumerate((rate, shape) for rate in self.rates for shape in self.shapes):
            save(file_of(out, (shape, self.model, self.name, rate)), table[:, lane])
            guard = file_of(out, (shape, self.model, "guard", rate))
            if alarms and alarms[lane] is None:
                save(guard, table[:, lane])
            elif alarms:
                guard.unlink(missing_ok=True)  # of an earlier moment

    def __str__(self) -> str:
        said = self.recorded.said if self.recorded else ""
        bad, alarms = int(self.lanes.bad.sum()), getattr(self.lanes, "alarms", [])
        notes = [said, f"{bad} streams not finite" if bad else "", f"alarms {alarms}" if any(alarms) else ""]
        told = f"{self.images:,} of {self.length:,} images, {self.spent:.0f} s, {self.lanes.steps} steps"
        return (
            f"{self.model} {self.name} x{len(self.shapes)} of {self.batch}: {'; '.join([told, *filter(None, notes)])}"
        )


def shared_out(units: Sequence[Unit], count: int) -> list[list[Unit]]:
    """Return the units of each process: those of a method and model together, the dearest first to who has least."""
    together: dict[tuple[str, str], list[Unit]] = {}
    for unit in units:
        together.setdefault((unit.model, unit.name), []).append(unit)
    cost = lambda some: sum(unit.share for unit in some)  # noqa: E731
    found: list[list[Unit]] = [[] for _ in range(count)]
    for each in sorted(together.values(), key=cost, reverse=True):
        min(found, key=cost).extend(each)
    return [some for some in found if some]


def record_in_turn(units: Sequence[Unit], chosen: argparse.Namespace) -> str:
    """Take the steps of some units in turn until the time is up; return how far they came."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if chosen.device != "cpu":
        torch.set_float32_matmul_precision("high")
    for unit in units:
        unit.open(chosen)
    saved = time.time()
    failed: list[Unit] = []
    while time.time() < chosen.deadline:
        going = [unit for unit in units if unit.images < unit.length and unit not in failed]
        if not going:
            break
        unit = min(going, key=lambda unit: unit.spent / unit.share)
        try:
            unit.go_on(chosen.device)
        except RuntimeError as error:
            print(f"{unit}: {error}", flush=True)
            failed.append(unit)
        if time.time() > saved + CHECK:
            print(*units, sep="\n", flush=True)
            for unit in units:
                unit.save(chosen.out)
            saved = time.time()
    for unit in units:
        unit.save(chosen.out)
    return "\n".join(map(str, units))


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=_names, default=("demo",), help="paths of CCC are found for the first")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--source", type=Path, help="images of the source, for PeTTA")
    parser.add_argument("--out", type=Path, default=Path("runs/safe"))
    parser.add_argument("--held", type=Path, help="where the streams are held; by default in the folder of the run")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--images", type=int, help="length of the streams, at most")
    parser.add_argument("--methods", type=_names, default=METHODS)
    parser.add_argument("--streams", default="", help="only those whose name begins so; several with commas")
    chosen = parser.parse_args()
    chosen.held, chosen.holdout = chosen.held or chosen.out / "held", False
    chosen.calibration_images, chosen.precision = 1000, 0.02
    chosen.deadline = time.time() + chosen.seconds
    all_of = [shape for shape in shapes() if shape.name.startswith(tuple(chosen.streams.split(",")))]
    sizes = dict.fromkeys(shape.batch for shape in all_of)
    units = [
        Unit(model, name, [shape for shape in all_of if shape.batch == size])
        for model in chosen.models
        for name in chosen.methods
        for size in sizes
        if name != "bn" or choose_preset(loaded(model, "cpu"), CLASSES) == "cifar"
    ]
    with workers(chosen.workers) as pool:
        making = [pool.submit(make_one, replace(shape, batch=MAKING), chosen) for shape in all_of]
        for done in as_completed(making):
            print(done.result(), flush=True)
        going = [pool.submit(record_in_turn, some, chosen) for some in shared_out(units, chosen.workers)]
        for done in as_completed(going):
            print(done.exception() or done.result(), flush=True)


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


if __name__ == "__main__":
    main()
