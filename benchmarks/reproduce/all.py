"""Run the tables side by side, each in a process of its own, until they are done or the time is up.

    python -m benchmarks.reproduce.all --data data --device cuda --workers 14 --parallel 4   # everything, on a GPU
    python -m benchmarks.reproduce.all --data data --size sample                             # its small version, a CPU
    python -m benchmarks.reproduce.all --data data --tables estimation --device cuda --workers 13 --minutes 8
    python -m benchmarks.reproduce.all --data data --costs                                   # what it would cost

What each table will cost is printed before it runs, the tables that say most first. Every script keeps its work under
`--runs` and writes its figures under `--out`: the same command goes on where it stopped. With a number of minutes
nothing is begun after them; what still runs `--grace` minutes later is stopped. `--parallel` scripts run at a time and
share the workers.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.reproduce.record import FIGURES


@dataclass(frozen=True)
class Script:
    """A script with its part of the table, and its share of the worker processes."""

    module: str
    part: str | None = None
    share: int = 1

    @property
    def name(self) -> str:
        """A name for logs."""
        return self.module if self.part is None else f"{self.module}-{self.part}"

    @property
    def part_name(self) -> str:
        """What the part is called: as the script calls it, or by the script."""
        return self.part or self.module.removesuffix("_table")

    @property
    def figures(self) -> str:
        """The name of its file of figures."""
        part = (self.part or "").replace("+", "-")
        return FIGURES_OF.get(self.name) or f"{PREFIXES[self.module]}-{part}"

    def cost(self, size: str) -> tuple[float | None, str]:
        """Return the minutes that it will take, None where nobody knows, and how that is known."""
        if size == "sample":
            known = MINUTES.get(self.name)
            return known, "not measured" if known is None else "of one core, as measured"
        path = FIGURES / f"{self.figures}.json"
        if not path.is_file():
            return None, "not run yet"
        found = json.loads(path.read_text())
        return found["seconds"] / 60, f"as last run, {found['device']}"


PREFIXES = {
    "statistics_table": "statistics",
    "certificates_table": "certificates",
    "streams_table": "streams",
    "cells_table": "streams",
    "estimation_table": "estimation",
    "worst_case_table": "worst-case",
    "segmentation_table": "worst-case-camvid",
}
"""Script -> what its files of figures begin with."""
FIGURES_OF = {
    "streams_table-cifar": "streams",
    "equal_n_table": "certificates-equal-n",
    "text_table": "estimation-text",
    "pairs_table": "estimation-pairs",
    "hypersphere_table": "hypersphere",
    "estimation_causes": "estimation-cifar-causes",
    "segmentation_causes": "worst-case-camvid-causes",
}
MINUTES = {
    "statistics_table-resnet20": 0.4,
    "statistics_table-grid": 0.2,
    "equal_n_table": 1.7,
    "certificates_table-gaussian+jsd": 0.5,
    "streams_table-cifar": 2.2,
    "cells_table-margins": 0.7,
    "estimation_table-digits": 3.4,
    "hypersphere_table": 0.3,
    "worst_case_table-mnist-esda": 2.4,
    "worst_case_table-cifar-esda": 0.5,
    "segmentation_table-esda": 0.4,
}
"""Script -> minutes of a processor's core with `--size sample`; other parts of a script take about as long."""
RECIPES = ("esda", "rsda", "rda", "erm")
SMOOTHED = ("fouriermix+hcr", "fouriermix+jsd", "augmix+jsd", "gaussian+jsd", "gaussian")
TABLES: dict[str, tuple[Script, ...]] = {
    "statistics": tuple(
        Script("statistics_table", part)
        for part in (
            *("imagenet-resnet50", "imagenet-efficientnet_lite0", "resnet56", "resnet20"),
            *("resnet20-batch", "resnet20-group", "vit", "grid", "single"),
        )
    ),
    "certificates": (
        Script("equal_n_table", share=6),
        *(Script("certificates_table", recipe) for recipe in SMOOTHED),
    ),
    "streams": (
        Script("cells_table", "cells", share=6),
        Script("cells_table", "orders", share=3),
        Script("streams_table", "imagenet", share=6),
        Script("cells_table", "margins", share=3),
        Script("cells_table", "resets", share=3),
        Script("streams_table", "cifar", share=3),
    ),
    "estimation": (
        Script("estimation_table", "cifar", share=6),
        Script("text_table"),
        Script("pairs_table"),
        Script("hypersphere_table"),
        Script("estimation_table", "digits"),
        Script("estimation_causes"),
    ),
    "worst-case": (
        *(Script("worst_case_table", f"{task}-{recipe}") for task in ("cifar", "mnist") for recipe in RECIPES),
        *(Script("worst_case_table", f"cifar-{recipe}-mixed") for recipe in RECIPES[:-1]),
        *(Script("segmentation_table", recipe) for recipe in RECIPES),
        Script("segmentation_causes"),
    ),
}
"""Table -> the scripts that make it, the longest first; the tables that say most first."""


@dataclass
class Job:
    """One script at work."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the scripts and return how many failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default=",".join(TABLES), help="separated by commas; `estimation/cifar` is a part")
    parser.add_argument("--runs", type=Path, default=Path("runs/reproduce"))
    parser.add_argument("--size", default="short", help="sample: a CPU, minutes")
    parser.add_argument("--costs", action="store_true", help="print what it would cost, and run nothing")
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--grace", type=float, default=1.5)
    parser.add_argument("--parallel", type=int, default=1, help="scripts at a time")
    parser.add_argument("--workers", type=int, default=1, help="processes of all scripts that have several")
    options, rest = parser.parse_known_args(arguments)
    waiting = [script for name in options.tables.split(",") for script in scripts_of(name)]
    print("\n".join(costs(waiting, options.size)), flush=True)
    if options.costs:
        return 0
    rest += ["--size", options.size]
    shares = options.workers / (sum(script.share for script in waiting) if options.parallel > 1 else 1)
    began, failed, running = time.time(), 0, list[Job]()
    while waiting or running:
        while waiting and len(running) < options.parallel:
            left = None if options.minutes is None else options.minutes - (time.time() - began) / 60
            running.append(start(waiting.pop(0), rest, options.runs, shares, left))
        time.sleep(0.2)
        over = options.minutes is not None and time.time() - began > 60 * (options.minutes + options.grace)
        for job in list(running):
            if over and job.process.poll() is None:
                job.process.terminate()
                job.process.wait()
            if job.process.poll() is not None:
                running.remove(job)
                failed += job.process.returncode != 0
                print(f"{job.name}: exit {job.process.returncode} after {time.time() - began:.0f} s")
                print("".join(job.log.read_text().splitlines(keepends=True)[-12:]), flush=True)
    return failed


def costs(scripts: Sequence[Script], size: str) -> list[str]:
    """Return a line for every script with the minutes it will take, and one with their sum."""
    known = [(script, *script.cost(size)) for script in scripts]
    lines = [
        f"{script.name:<45} {'?' if minutes is None else f'{minutes:.1f}':>7} min  {how}"
        for script, minutes, how in known
    ]
    total = sum(minutes or 0.0 for _, minutes, _ in known)
    return [*lines, f"{'all, one after another':<45} {total:>7.1f} min"]


def scripts_of(name: str) -> list[Script]:
    """Return the scripts of a table, or the one of a part of it: `estimation`, or `estimation/text`."""
    table, _, part = name.partition("/")
    found = [script for script in TABLES.get(table, ()) if part in ("", script.part_name)]
    if not found:
        known = ", ".join(f"{table}/{script.part_name}" for table, scripts in TABLES.items() for script in scripts)
        raise SystemExit(f"There is no table {name!r}; there are: {', '.join(TABLES)}, and parts of them: {known}")
    return found


def start(script: Script, rest: Sequence[str], runs: Path, share: float, minutes: float | None) -> Job:
    """Start a script, with its output in a log beside its work; `share` is the number of workers per share."""
    log = runs / "logs" / f"{script.name}.txt"
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", f"benchmarks.reproduce.{script.module}", *rest]
    command += [] if script.part is None else ["--part", script.part]
    command += ["--runs", str(runs), "--workers", str(max(1, int(share * script.share)))]
    command += [] if minutes is None else ["--minutes", f"{max(0.0, minutes):.2f}"]
    with log.open("ab") as file:
        return Job(script.name, subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT), log)


if __name__ == "__main__":
    sys.exit(main())
