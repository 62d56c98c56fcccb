"""Every speed and memory figure of benchmarks/README.md, measured one after another in one place.

    python -m benchmarks.speeds --out runs/cpu
    python -m benchmarks.speeds --out runs/cpu --peer PEER/bin/python --resnet50 resnet50.py:build --images centre.npz
    python -m benchmarks.speeds --out runs/cuda --device cuda --resnet50 resnet50.py:build --images centre.npz

Each command's output goes to a file of its own in the folder, below the command, the commit and the load of the machine
before it began. What is there already is not measured again. About an hour on two cores, or ten minutes on an H200; the
machine should do nothing else.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import shlex
import subprocess
import sys
import time
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
AGAINST = "l2,brightness,contrast+brightness,blur,translation"
Command = tuple[str, dict[str, str]]
"""What is run, and what it finds in its environment."""
CPU: dict[str, Command] = {
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
RESNET110 = "--network resnet110 --dtype bfloat16 --compile --batches 4096 --n 40000"
CUDA: dict[str, Command] = {
    "adapt": ("adapt.py --device cuda --model resnet50 --rounds 5", {}),
    "adapt-bfloat16": ("adapt.py --device cuda --model resnet50 --rounds 5 --amp bfloat16", {}),
    "certify": (f"certify.py --device cuda {RESNET110} --against {AGAINST}", {}),
    "train": ("train.py --device cuda --steps 48 --rounds 2", {}),
    "shifts": ("shifts.py --device cuda", {}),
    "stream": ("stream.py --device cuda --network resnet50", {}),
    "stream-small": ("stream.py --device cuda --network resnet20", {}),
    "engine-cells": ("engine.py cells", {}),
}


def main() -> None:
    """Run what has not been run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--only", default=None, help="names of figures, separated by commas")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin nothing after so many")
    parser.add_argument("--commit", default=None, help="what the figures are of, where git cannot say")
    parser.add_argument("--peer", default=None, help="the Python of an environment with imagecorruptions")
    parser.add_argument("--resnet50", default=None, help="a ResNet-50, as --model takes it")
    parser.add_argument("--images", default=None, help="images for it, of 224 pixels, as --data takes them")
    given = parser.parse_args()
    commands = dict(CUDA if given.device == "cuda" else CPU)
    if given.peer:
        commands["shifts"] = f"shifts.py --peer {given.peer}", {}
    if given.resnet50 and given.images:
        batch, more = (256, "--budget standard --minutes 4") if given.device == "cuda" else (8, "--budget quick")
        on = f"--model {given.resnet50} --device {given.device}"
        commands["folding-resnet50"] = f"folding.py {on} --side 224 --batch {batch}", {}
        commands["audit-resnet50"] = f"audit.py {on} --data {given.images} {more}", {}
    given.out.mkdir(parents=True, exist_ok=True)
    commit, begun = given.commit or present_commit(), time.monotonic()
    for name in given.only.split(",") if given.only else commands:
        if time.monotonic() - begun < given.seconds:
            measure(name, *commands[name], given.out / f"{name}.txt", commit)


def present_commit() -> str:
    """Return the commit of the checkout."""
    asked = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(asked, check=True, capture_output=True, text=True, cwd=HERE).stdout.strip()


def measure(name: str, command: str, environment: dict[str, str], file: Path, commit: str) -> None:
    """Run a command and keep what it printed, unless that is there."""
    if file.exists():
        return
    words = shlex.split(command)
    words = words if words[0] == "-m" else [str(HERE / words[0]), *words[1:]]
    settings = "".join(f"{key}={value} " for key, value in environment.items())
    head = (
        f"$ {settings}python {command if words[0] == '-m' else 'benchmarks/' + command}\n"
        f"commit {commit}, {machine()}; load before {os.getloadavg()[0]:.2f}\n\n"
    )
    begun, part = time.perf_counter(), file.with_suffix(".part")
    part.write_text(head)
    with part.open("a") as printed:  # what was printed stays, whatever becomes of the rest
        done = subprocess.run(
            [sys.executable, *words],
            check=False,
            env={**os.environ, **environment, "PYTHONUNBUFFERED": "1"},
            cwd=HERE.parent,
            stdout=printed,
            stderr=subprocess.STDOUT,
        )
    print(f"{name}: {'failed' if done.returncode else 'done'} after {time.perf_counter() - begun:.0f} s", flush=True)
    if not done.returncode:
        part.replace(file)


def machine() -> str:
    """Return what the figures are measured on."""
    device = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    versions = f"Python {platform.python_version()}, PyTorch {torch.__version__}"
    return f"{os.cpu_count()} cores of {platform.machine()}{device}, {versions}"


if __name__ == "__main__":
    main()
