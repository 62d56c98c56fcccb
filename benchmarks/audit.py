"""How much of an audit's time goes into the model: passes x bare best forward time / wall time.

    python benchmarks/audit.py --model demo --data demo
    python benchmarks/audit.py --model resnet50.py:build --data images/ --executor processes

The bare best forward time is that of the model alone, folded, on images that are there already, at the best of a few
batch sizes, with all threads or one process per core, whichever is faster. A step of adaptation counts with its own
bare best time. Start-up and the report are left out of the wall time, and told.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch

import shiftproof
from shiftproof.audits.conclusion import AuditRecord
from shiftproof.audits.forecast import PASSES, Prices
from shiftproof.audits.sections.base import Measurement, Unit
from shiftproof.models import logits
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
    whole = time.perf_counter() - begun
    wall = ends[-1] - ends[0]
    with Store(out) as store:
        record = AuditRecord.of(store)
    units, seconds = counted(record)
    subject = Subject.of(given.model, given.data, device=given.device, images=64)
    best = min(bare(subject, torch.get_num_threads()), together(given))
    prices = Prices(subject)
    spent = sum(count * (best if unit.kind != "adapt" else prices(unit)) for unit, count in units)
    print(f"\n{'section':<14}{'passes':>10}{'seconds':>9}")
    for name, (passes, took) in seconds.items():
        print(f"{name:<14}{passes:10,.0f}{took:9.1f}")
    print(f"\nbare best forward {1e3 * best:.3f} ms an image; {found.masthead.facts}")
    total = sum(count for _, count in units)
    print(f"wall {wall:.1f} s of measuring, {whole - wall:.1f} s before and after; passes {total:,.0f}")
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


def bare(subject: Subject, threads: int) -> float:
    """Return seconds per image of the model alone, at the best batch size."""
    torch.set_num_threads(threads)
    (images,) = (batch.inputs for batch in subject.data.subset(range(1)).batches(1, device=subject.device))
    times = []
    for size in BATCHES:
        some = images.expand(size, *images.shape[1:]).contiguous()
        logits(subject.fast_model, some)
        count, begun = 0, time.perf_counter()
        while time.perf_counter() - begun < PATIENCE / len(BATCHES) or not count:
            logits(subject.fast_model, some)
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
