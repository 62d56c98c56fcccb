"""How much of an audit's time goes into the model: passes x bare best forward time / wall time, by section and in all.

    python benchmarks/audit.py --model demo --data demo
    python benchmarks/audit.py --model resnet50.py:build --data images/ --executor processes

The bare best forward time is that of the model alone, folded, on images that are on its device already, at the best of
a few batch sizes: on a CPU with all threads or one process per core, on a GPU in the best layout, waiting only at the
end. A step of adaptation, a pass that takes statistics and one behind a denoiser count with their own bare best times.
Passes of the folded network are counted as they are made, with --executor inline; elsewhere as they were planned.
Start-up, the forecast (which compiles what a GPU runs) and the report are left out of the wall time, and told.
Interrupted, it tells of what was measured. `passes.py` counts the passes of a plan, and of another version's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any, cast

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is imported, as the command does
import torch
from torch import Tensor

import shiftproof
from shiftproof.audits.audit_record import AuditRecord
from shiftproof.audits.costs import PACE
from shiftproof.audits.forecast import Prices
from shiftproof.audits.pacing import Pace
from shiftproof.audits.sections.base import Measurement
from shiftproof.audits.sections.certified import CertifiedPart
from shiftproof.models.folding import LAYOUTS, Folded, laid_out
from shiftproof.runs import Result, Store
from shiftproof.runs.hosting import cores
from shiftproof.subjects import Subject

BATCHES = {"cpu": (8, 16, 32, 64, 128, 256), "cuda": (64, 128, 256, 512)}
PATIENCE = 3.0
PASSES = ("forward", "statistics", "adapt")


def main() -> None:
    """Audit, count, time the bare passes, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--data", default="demo")
    parser.add_argument("--budget", default="quick")
    parser.add_argument("--minutes", type=float, default=None)
    parser.add_argument("--sections", default=None)
    parser.add_argument("--executor", default="inline")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--bare", type=int, default=None, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.bare is not None:  # one of several processes that are timed together
        print(bare(Subject.of(given.model, given.data, device=given.device), given.bare))
        return
    tell_efficiency(given)


def tell_efficiency(given: argparse.Namespace) -> None:
    """Audit, and print what share of the time is the model's."""
    out = given.out or Path(tempfile.mkdtemp())
    made, taken = count_passes(), PassesByTask()
    begun = time.perf_counter()
    with suppress(KeyboardInterrupt):
        shiftproof.audit(
            given.model,
            given.data,
            budget=given.budget,
            minutes=given.minutes,
            sections=given.sections and given.sections.split(","),
            executor=given.executor,
            device=given.device,
            out=out,
            on_progress=lambda _, __, result: taken.add(result, made["images"]),
            on_plan=lambda forecast: print(f"forecast {forecast.seconds:.0f} s", flush=True),
        )
    whole = time.perf_counter() - begun
    wall = taken.ended - taken.begun
    with Store(out) as store:
        record, pace = AuditRecord.of(store), json.loads(store.about().get(PACE, "null"))
    subject = Subject.of(given.model, given.data, device=given.device, images=256)
    subject = Pace(**pace).given_to(subject) if pace else subject
    best = min(bare(subject, torch.get_num_threads()), together(given))
    prices = Prices(subject)
    behind = denoised(record, subject, best)
    sections: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0, 0.0])
    for result in record.everything():
        if not isinstance(result.task, Measurement) or result.row is None:
            continue
        units = [(unit, count) for unit, count in result.task.work() if unit.kind in PASSES]
        forward = sum(count for unit, count in units if unit.kind == "forward")
        counted = taken.counts.get(result.task, 0) if given.executor == "inline" else 0
        asked = best * (counted or forward) + sum(
            count * prices(unit) for unit, count in units if unit.kind != "forward"
        )
        figures = (sum(count for _, count in units), (counted or forward) - forward, result.seconds, asked)
        sections[result.task.section] = [a + b for a, b in zip(sections[result.task.section], figures, strict=True)]
    sections["certified"][3] += behind
    print(f"\n{'section':<14}{'planned':>10}{'made':>10}{'seconds':>9}{'efficiency':>12}")
    totals = [sum(values) for values in zip(*sections.values(), strict=True)]
    for name, (passes, more, took, asked) in [*sections.items(), ("all", totals)]:
        share = f"{asked / took:12.2f}" if took else ""
        print(f"{name:<14}{passes:10,.0f}{passes + more:10,.0f}{took:9.1f}{share}")
    print(f"\nbare best forward {1e3 * best:.4f} ms an image; asked as {pace or 'usual'}")
    print(f"wall {wall:.1f} s of measuring, {whole - wall:.1f} s before and after")
    print(f"efficiency {totals[3] / wall:.2f}")


class PassesByTask:
    """How many images went through folded networks during each task, and when the first began and the last ended."""

    def __init__(self) -> None:
        self.counts: dict[Any, int] = {}
        self.begun = self.ended = 0.0
        self._before = 0

    def add(self, result: Result | None, images: int) -> None:
        """Hear that a task ended, when so many images have gone through in all."""
        self.ended = time.perf_counter()
        self.begun = self.begun or self.ended
        if result is not None:
            self.counts[result.task] = images - self._before
        self._before = images


def count_passes() -> dict[str, int]:
    """Count the images that go through folded networks of this process from now on."""
    made, forward = {"images": 0}, Folded.forward

    def counting(self: Folded, images: Tensor) -> object:
        made["images"] += len(images)
        return forward(self, images)

    Folded.forward = counting  # type: ignore[method-assign]
    return made


def denoised(record: AuditRecord, subject: Subject, best: float) -> float:
    """Return the seconds that passes through a denoiser take besides those through the model."""
    parts = [
        (cast(int, result.row["samples"]), str(result.row["denoiser"]), result.task.sigma)
        for result in record.everything()
        if isinstance(result.task, CertifiedPart) and result.task.denoised and result.row and "denoiser" in result.row
    ]
    if not parts:
        return 0.0
    from shiftproof.certificates import Smoothed

    _, name, sigma = parts[0]
    behind = Smoothed(subject.fast_model, sigma, denoiser=name).model
    return sum(samples for samples, _, _ in parts) * (bare(subject, torch.get_num_threads(), behind) - best)


def bare(subject: Subject, threads: int, model: Any = None) -> float:
    """Return seconds per image of the model alone, or of another, in the best layout and at the best batch size."""
    model = model or subject.fast_model
    torch.set_num_threads(threads)
    kind = subject.device.partition(":")[0]
    ways = tuple(product(LAYOUTS if kind == "cuda" else (None,), BATCHES[kind]))
    (images,) = (batch.inputs for batch in subject.data.subset(range(1)).batches(1, device=subject.device))
    times = []
    for layout, size in ways:
        network, some = laid_out(model, layout), images.expand(size, *images.shape[1:]).contiguous()
        for patience in (0.0, PATIENCE / len(ways)):  # the first time does not count
            count, begun = 0, time.perf_counter()
            with torch.no_grad():
                while time.perf_counter() - begun < patience or not count:
                    network(some)
                    count += size
            if kind == "cuda":
                torch.cuda.synchronize(subject.device)
            took = (time.perf_counter() - begun) / count
        times.append(took)
    return min(times)


def together(given: argparse.Namespace) -> float:
    """Return seconds per image of one process per core with one thread each, all at once."""
    if Subject.of(given.model, given.data, device=given.device).device != "cpu":
        return float("inf")
    command = [sys.executable, __file__, "--model", given.model, "--data", given.data, "--bare", "1"]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(cores())]
    times = [float(process.communicate()[0].split()[-1]) for process in started]
    return 1.0 / sum(1.0 / each for each in times)


if __name__ == "__main__":
    main()
