"""Run the tables side by side, each in a process of its own, until they are done or the time is up.

    python -m benchmarks.reproduce.all --data data                               # everything, one after another
    python -m benchmarks.reproduce.all --data data --tables estimation --device cuda --workers 13 --minutes 8

Every script keeps its work under `--runs` and writes its figures under `--out`: the same command goes on where it
stopped. With a number of minutes nothing is begun after them; what still runs `--grace` minutes later is stopped.
`--parallel` scripts run at a time and share the workers.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


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


RECIPES = ("esda", "rsda", "rda", "erm")
SMOOTHED = ("fouriermix+hcr", "fouriermix+jsd", "augmix+jsd", "gaussian+jsd", "gaussian")
TABLES: dict[str, tuple[Script, ...]] = {
    "certificates": tuple(Script("certificates_table", recipe) for recipe in SMOOTHED),
    "statistics": tuple(
        Script("statistics_table", part)
        for part in ("imagenet-resnet50", "imagenet-efficientnet_lite0", "resnet56", "resnet20", "grid", "single")
    ),
    "worst-case": (
        *(Script("worst_case_table", f"{task}-{recipe}") for task in ("cifar", "mnist") for recipe in RECIPES),
        *(Script("worst_case_table", f"cifar-{recipe}-mixed") for recipe in RECIPES[:-1]),
        *(Script("segmentation_table", recipe) for recipe in RECIPES),
    ),
    "streams": (
        Script("streams_table", "imagenet", share=6),
        Script("streams_table", "margins", share=3),
        Script("streams_table", "cifar", share=3),
    ),
    "estimation": (
        Script("estimation_table", "cifar", share=6),
        Script("text_table"),
        Script("hypersphere_table"),
        Script("estimation_table", "digits"),
    ),
}
"""Table -> the scripts that make it, the longest first."""


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
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--grace", type=float, default=1.5)
    parser.add_argument("--parallel", type=int, default=1, help="scripts at a time")
    parser.add_argument("--workers", type=int, default=1, help="processes of all scripts that have several")
    options, rest = parser.parse_known_args(arguments)
    waiting = [script for name in options.tables.split(",") for script in scripts_of(name)]
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
