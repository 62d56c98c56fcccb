"""The engine under every run: what a cell costs beside its own work, large stores, and how far executors scale.

    python benchmarks/engine.py cells
    python benchmarks/engine.py store --count 1000000
    python benchmarks/engine.py processes --workers 2
    python benchmarks/engine.py ray
    python benchmarks/engine.py scaling --run shiftproof-audit --driver 0.0008

`cells`: cells that do nothing, per second, in this process with a store on disk. `store`: a store of so many cells is
opened, asked what is done, and resumed with ten cells missing. `processes`: an audit's cells, each a forward pass of
500 images under a shift, in this process and in several, in turns. `ray`: what the driver spends on a cell that does
nothing. `scaling`: a simulation of 1 to 1,000 workers, with the cell times of a finished run and that cost of a driver.
"""

from __future__ import annotations

import argparse
import heapq
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from shiftproof.runs import Cell, Executor, Inline, Plan, Processes, Row, Store, drive
from shiftproof.runs.schema import checksum
from shiftproof.runs.store import FILE
from shiftproof.runs.task import canonical

SUBJECT = {"model": "benchmark"}
ROW = '{"right":417,"images":500,"confidence":0.71}'


@dataclass(frozen=True)
class Nothing:
    """A worker that does nothing."""

    def __call__(self) -> Nothing:
        """Be the worker."""
        return self

    def measure(self, cell: Cell) -> Row:
        """Return a row of the usual size."""
        return {"right": 417, "images": 500, "confidence": 0.71}


def plan_of(count: int) -> Plan:
    """Return cells of the usual size."""
    return Plan(
        tuple(Cell("corruptions", shift="gaussian_noise@3", start=n, stop=n + 500, seed=0) for n in range(count)),
        SUBJECT,
    )


@contextmanager
def timed(what: str, unit: int = 0) -> Iterator[None]:
    """Print the seconds a block took, wall and processor, and how many of something that is per second."""
    wall, processor = time.perf_counter(), time.process_time()
    yield
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    rate = f"   {unit / wall:>9,.0f} / s" if unit else ""
    print(f"{what:<44} {wall:8.2f} s   processor {processor:8.2f} s{rate}", flush=True)


def cells(count: int) -> None:
    """Run trivial cells in this process."""
    plan = plan_of(count)
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder), SUBJECT) as store:
        with timed(f"{count:,} trivial cells, inline", count):
            drive(plan, store, Nothing())
        with timed("the same again: nothing to do", count):
            drive(plan, store, Nothing())


def store(count: int) -> None:
    """Open and resume a large store."""
    with tempfile.TemporaryDirectory() as folder:
        plan = plan_of(count)
        with timed("identities of the plan"):
            identities = plan.identities()
        Store(Path(folder), SUBJECT).close()
        done = list(identities.items())[:-10]
        database = sqlite3.connect(Path(folder) / FILE)
        with timed("filling the store, in one transaction"), database:
            rows = ((identity, task.kind, canonical(task.parameters()), ROW, None, 0.1) for identity, task in done)
            summed = ((*row, checksum(*row)) for row in rows)
            database.executemany("INSERT INTO cells VALUES (?, ?, ?, ?, ?, ?, ?)", summed)
        database.close()
        print(f"file of {(Path(folder) / FILE).stat().st_size / 2**20:,.0f} MiB")
        with timed("opening"):
            opened = Store(Path(folder), SUBJECT)
        with opened:
            with timed("what is done"):
                assert len(opened.done()) == len(done)
            with timed("resuming: ten cells, and the results of all"):
                assert len(drive(plan, opened, Nothing())) == count


@dataclass(frozen=True)
class Forward:
    """Loads the demo once, and gives its images to its model under a shift."""

    device: str

    def __call__(self) -> Forward:
        """Load."""
        from shiftproof.data import load_images
        from shiftproof.models import load_model

        loaded = Forward(self.device)
        loaded.__dict__["model"] = load_model("demo", device=self.device)
        loaded.__dict__["batch"] = next(iter(load_images("demo").take(500).batches(500, device=self.device)))
        return loaded

    def measure(self, cell: Cell) -> Row:
        """Count right answers."""
        import torch

        from shiftproof.models import logits
        from shiftproof.shifts import parse

        batch = self.__dict__["batch"]
        images = parse(str(cell["shift"]))(batch.inputs, batch.keys)
        answers = [logits(self.__dict__["model"], images[start : start + 50]).argmax(1) for start in range(0, 500, 50)]
        right = int((torch.cat(answers) == batch.labels.cpu()).sum())
        return {"right": right}


def processes(count: int, workers: int, device: str) -> None:
    """Run the same cells in this process and in several, in turns, the start of processes included."""
    names = ("gaussian_noise", "defocus_blur", "fog", "contrast", "pixelate")
    work = tuple(Cell("forward", shift=f"{names[n % 5]}@{1 + n // 5 % 5}", round=n // 25) for n in range(count))
    took: dict[str, list[tuple[float, float]]] = {
        "inline, one thread": [],
        "inline, all threads": [],
        f"{workers} processes": [],
    }
    import torch

    threads = torch.get_num_threads()
    rows = []
    for _ in range(2):
        for name, times in took.items():
            torch.set_num_threads(1 if "one" in name else threads)
            executor: Executor = Processes(workers, device) if "processes" in name else Inline()
            with tempfile.TemporaryDirectory() as folder, Store(Path(folder), SUBJECT) as store:
                wall, processor = time.perf_counter(), sum(os.times()[:4])
                found = drive(Plan(work, SUBJECT), store, Forward(device), executor=executor)
                times.append((time.perf_counter() - wall, sum(os.times()[:4]) - processor))
            rows.append([result.row for result in found])
    assert all(row == rows[0] for row in rows), "executors differ"
    best, _ = min(took["inline, one thread"])
    for name, times in took.items():
        wall, processor = min(times)
        print(f"{name:<24} {wall:8.2f} s   {best / wall:5.2f} times one thread   processor, of all: {processor:8.2f} s")


def on_ray(count: int) -> None:
    """Run trivial cells on a cluster of two workers on this machine."""
    import logging

    import ray

    from shiftproof.runs.ray import Ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder), SUBJECT) as store, Ray(2).open(Nothing()) as crew:
        drive(plan_of(10), store, crew)  # workers start
        plan = plan_of(count)
        wall, processor = time.perf_counter(), time.thread_time()
        drive(plan, store, crew)
        wall, processor = time.perf_counter() - wall, time.thread_time() - processor
    ray.shutdown()
    print(f"{count:,} trivial cells on 2 Ray workers: {count / wall:,.0f} / s")
    print(f"the driver's own thread: {1e3 * processor / count:.2f} ms a cell")


def simulate(
    times: Sequence[float], workers: int, driver: float, *, depth: int = 2, start: float = 10.0
) -> tuple[float, float]:
    """Return the seconds a run takes, and the share of them in which the driver is busy.

    Workers take `start` seconds to load. A worker has up to `depth` cells; a cell that ends waits for the driver, which
    takes `driver` seconds to keep the result and send the worker another cell, one after the other.
    """
    waiting, busy, free_at = iter(times), 0.0, 0.0
    queues: list[list[float]] = [[] for _ in range(workers)]
    ends: list[tuple[float, int]] = []  # when the cell at work in a worker ends

    def give(worker: int, now: float) -> None:
        for cell in waiting:
            queues[worker].append(cell)
            if len(queues[worker]) == 1:
                heapq.heappush(ends, (now + cell, worker))
            return

    for worker in range(workers):
        for _ in range(depth):
            give(worker, start)
            busy, free_at = busy + driver, max(free_at, start) + driver
    last = start
    while ends:
        now, worker = heapq.heappop(ends)
        queues[worker].pop(0)
        if queues[worker]:
            heapq.heappush(ends, (now + queues[worker][0], worker))
        free_at = max(free_at, now) + driver
        busy, last = busy + driver, max(last, free_at)
        give(worker, free_at)
    return last, busy / last


def scaling(run: Path, driver: float, count: int) -> None:
    """Print how long so many cells take on 1 to 1,000 workers."""
    with Store(run) as opened:
        measured = [result.seconds for result in opened if result.row is not None]
    times = (measured * -(-count // len(measured)))[:count]
    mean = sum(times) / len(times)
    alone, _ = simulate(times, 1, driver)
    print(f"{count:,} cells of {mean:.3f} s on average; the driver spends {1e3 * driver:.2f} ms on each")
    print(f"the driver is the bound from about {mean / driver:,.0f} workers on")
    print(f"{'workers':>8} {'hours':>9} {'speed-up':>9} {'of ideal':>9} {'driver busy':>12}")
    for workers in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000):
        took, busy = simulate(times, workers, driver)
        print(f"{workers:>8} {took / 3600:9.2f} {alone / took:9.1f} {alone / took / workers:9.0%} {busy:12.0%}")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["cells", "store", "processes", "ray", "scaling"])
    parser.add_argument("--count", type=int)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--run", type=Path, default=Path("shiftproof-audit"))
    parser.add_argument("--driver", type=float, default=0.001, help="seconds of the driver for a cell")
    given = parser.parse_args()
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores")
    if given.part == "cells":
        cells(given.count or 20_000)
    elif given.part == "store":
        store(given.count or 1_000_000)
    elif given.part == "processes":
        processes(given.count or 50, given.workers, given.device)
    elif given.part == "ray":
        on_ray(given.count or 5_000)
    else:
        scaling(given.run, given.driver, given.count or 100_000)


if __name__ == "__main__":
    main()
