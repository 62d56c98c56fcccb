"""How much of an audit's time goes into the model: passes x bare best forward time / wall time.

    python benchmarks/audit.py --model demo --data demo
    python benchmarks/audit.py --model resnet50.py:build --data images/ --executor processes

The bare best forward time is that of the model alone, folded, on images that are there already, at the best of a few
batch sizes, with all threads or one process per core, whichever is faster. A step of adaptation, a pass that takes
statistics and one behind a denoiser count with their own bare best times. Passes of the folded network are counted as
they are made, with --executor inline; elsewhere as they were planned. Start-up and the report are left out of the wall
time, and told.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

import shiftproof
from shiftproof.audits.conclusion import AuditRecord
from shiftproof.audits.forecast import PASSES, Prices
from shiftproof.audits.sections.base import Measurement, Unit
from shiftproof.audits.sections.certified import CertifiedPart
from shiftproof.models import logits
from shiftproof.models.folding import Folded
from shiftproof.runs import Store
from shiftproof.runs.hosting import cores
from shiftproof.subjects import Subject

BATCHES = (16, 32, 64, 128, 256)
PATIENCE = 3.0


def main() -> None:
    """Audit, count, time the bare passes, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--data", default="demo")
    parser.add_argument("--budget", default="quick")
    parser.add_argument("--sections", default=None)
    parser.add_argument("--executor", default="inline")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--bare", type=int, default=None, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.bare is not None:  # one of several processes that are timed together
        print(bare(Subject.of(given.model, given.data, device=given.device), given.bare))
        return
    out = given.out or Path(tempfile.mkdtemp())
    made = count_passes()
    ends: list[float] = []
    begun = time.perf_counter()
    found = shiftproof.audit(
        given.model,
        given.data,
        budget=given.budget,
        sections=given.sections and given.sections.split(","),
        executor=given.executor,
        device=given.device,
        out=out,
        on_progress=lambda *_: ends.append(time.perf_counter()),
    )
    whole, asked = time.perf_counter() - begun, made["images"]
    wall = ends[-1] - ends[0]
    with Store(out) as store:
        record = AuditRecord.of(store)
    units, seconds = counted(record)
    subject = Subject.of(given.model, given.data, device=given.device, images=64)
    best = min(bare(subject, torch.get_num_threads()), together(given))
    prices = Prices(subject)
    planned = sum(count for unit, count in units if unit.kind == "forward")
    forward = asked if given.executor == "inline" and asked else planned
    spent = best * forward + sum(count * prices(unit) for unit, count in units if unit.kind != "forward")
    spent += denoised(record, subject, best)
    print(f"\n{'section':<14}{'passes':>10}{'seconds':>9}")
    for name, (passes, took) in seconds.items():
        print(f"{name:<14}{passes:10,.0f}{took:9.1f}")
    print(f"\nbare best forward {1e3 * best:.3f} ms an image; {found.masthead.facts}")
    total = sum(count for _, count in units)
    print(f"forward passes {forward:,.0f}, planned {planned:,.0f}; all passes planned {total:,.0f}")
    print(f"wall {wall:.1f} s of measuring, {whole - wall:.1f} s before and after")
    print(f"efficiency {spent / wall:.2f}")


def counted(record: AuditRecord) -> tuple[list[tuple[Unit, float]], dict[str, tuple[float, float]]]:
    """Return how many images went through the model, by unit, and passes and seconds by section."""
    units: list[tuple[Unit, float]] = []
    sections: dict[str, Any] = defaultdict(lambda: (0.0, 0.0))
    for result in record.everything():
        if not isinstance(result.task, Measurement):
            continue
        work = [(unit, count) for unit, count in result.task.work() if unit.kind in PASSES]
        units += work
        passes, took = sections[result.task.section]
        sections[result.task.section] = passes + sum(count for _, count in work), took + result.seconds
    return units, sections


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
    """Return seconds per image of the model alone, or of another, at the best batch size."""
    model = model or subject.fast_model
    torch.set_num_threads(threads)
    (images,) = (batch.inputs for batch in subject.data.subset(range(1)).batches(1, device=subject.device))
    times = []
    for size in BATCHES:
        some = images.expand(size, *images.shape[1:]).contiguous()
        logits(model, some)
        count, begun = 0, time.perf_counter()
        while time.perf_counter() - begun < PATIENCE / len(BATCHES) or not count:
            logits(model, some)
            count += size
        times.append((time.perf_counter() - begun) / count)
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
