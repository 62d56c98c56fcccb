"""Every speed and memory figure of benchmarks/README.md that needs no GPU, measured one after another in one place.

    python -m benchmarks.cpu --out runs/cpu
    python -m benchmarks.cpu --out runs/cpu --peer PEER/bin/python --resnet50 resnet50.py:build --images centre.npz

Each command's output goes to a file of its own in the folder, below the command, the commit and the load of the machine
before it began. What is there already is not measured again. About an hour on two cores, which should do nothing else.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import subprocess
import sys
import time
from pathlib import Path

import torch

ONE_THREAD = {"OMP_NUM_THREADS": "1"}
AGAINST = "l2,brightness,contrast+brightness,blur,translation"
COMMANDS: dict[str, tuple[str, dict[str, str]]] = {
    "adapt": ("adapt.py --rounds 5 --repeats 2", ONE_THREAD),
    "adapt-fast": ("adapt.py --methods source,bn,eta,eata,rdumb,safe --rounds 7 --repeats 2", ONE_THREAD),
    "certify": (f"certify.py --clock cpu --images 3 --n 2000 --batches 32,64,128 --against {AGAINST}", ONE_THREAD),
    "certify-rules": ("certify.py --rules --labelled 60 --pilot 200", ONE_THREAD),
    "stream": ("stream.py --batches 8 --rounds 3", ONE_THREAD),
    "search": ("search.py --part transforms --part prefixes", ONE_THREAD),
    "search-searchers": ("search.py --part searchers --images 100 --seeds 5", {}),
    "estimate": ("estimate.py speed", {}),
    "estimate-one-thread": ("estimate.py speed", ONE_THREAD),
    "service": ("-m benchmarks.service", {}),
    "fouriermix": ("train.py --fouriermix", ONE_THREAD),
    "folding": ("folding.py --model demo --side 32 --batch 64", {}),
    "audit": ("audit.py --model demo --data demo", {}),
    "memory": ("memory.py", {}),
    "engine-cells": ("engine.py cells", {}),
    "engine-store": ("engine.py store", {}),
    "engine-processes": ("engine.py processes --workers 2", {}),
}


def main() -> None:
    """Run what has not been run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default=None, help="names of COMMANDS, separated by commas")
    parser.add_argument("--peer", default=None, help="the Python of an environment with imagecorruptions")
    parser.add_argument("--resnet50", default=None, help="a ResNet-50, as --model takes it")
    parser.add_argument("--images", default=None, help="images for it, of 224 pixels, as --data takes them")
    given = parser.parse_args()
    commands = dict(COMMANDS)
    if given.peer:
        commands["shifts"] = f"shifts.py --peer {given.peer}", {}
    if given.resnet50 and given.images:
        commands["folding-resnet50"] = f"folding.py --model {given.resnet50} --side 224 --batch 8", {}
        commands["audit-resnet50"] = f"audit.py --model {given.resnet50} --data {given.images}", {}
    given.out.mkdir(parents=True, exist_ok=True)
    for name in given.only.split(",") if given.only else commands:
        measure(name, *commands[name], given.out / f"{name}.txt")


def measure(name: str, command: str, environment: dict[str, str], file: Path) -> None:
    """Run a command and keep what it printed, unless that is there."""
    if file.exists():
        return
    here = Path(__file__).resolve().parent
    words = shlex.split(command)
    words = words if words[0] == "-m" else [str(here / words[0]), *words[1:]]
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], check=True, capture_output=True, text=True, cwd=here
    )
    load, begun = os.getloadavg()[0], time.perf_counter()
    done = subprocess.run(
        [sys.executable, *words],
        check=False,
        env={**os.environ, **environment},
        cwd=here.parent,
        capture_output=True,
        text=True,
    )
    seconds = time.perf_counter() - begun
    settings = "".join(f"{key}={value} " for key, value in environment.items())
    head = (
        f"$ {settings}python {command if words[0] == '-m' else 'benchmarks/' + command}\n"
        f"commit {commit.stdout.strip()}, {os.cpu_count()} cores of {platform.machine()}, Python "
        f"{platform.python_version()}, PyTorch {torch.__version__}; load before {load:.2f}; {seconds:.0f} s\n\n"
    )
    if done.returncode:
        print(f"{name}: failed\n{done.stderr[-2000:]}", flush=True)
        return
    file.write_text(head + done.stdout)
    print(f"{name}: {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
