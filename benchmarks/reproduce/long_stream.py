"""Press et al. 2023, table 2, CCC: take over what long runs of `benchmarks/endurance.py` found.

    python benchmarks/endurance.py --data data/cifar10/test.npz --target medium --images 1000000 ... --out runs/long
    python -m benchmarks.reproduce.long_stream runs/long/1/stream.json runs/tenfold/10/stream.json \
        --device "NVIDIA H200" --torch 2.11.0 --commit 568ccc5

One file for every multiple of the learning rates; the figures go to `benchmarks/reproduce/figures/streams-ccc.json`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from shiftproof.runs import write_atomically

NAME = "streams-ccc"


def main() -> None:
    """Read the runs and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="the stream.json of each run")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/reproduce/figures"))
    for name in ("device", "torch", "commit"):
        parser.add_argument(f"--{name}", required=True, help="of the runs")
    parser.add_argument("--note", action="append", default=[], help="what else is to be said of them")
    options = parser.parse_args()
    facts = {name: getattr(options, name) for name in ("device", "torch", "commit")}
    content = taken([json.loads(path.read_text()) for path in options.runs])
    content["cut"] += options.note
    write_atomically(options.out / f"{NAME}.json", json.dumps({**facts, **content}, indent=1) + "\n")


def taken(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of runs, by what learning rates were multiplied with, and what was cut."""
    first = runs[0]
    lengths = " and ".join(f"{run['length']:,} images at {run['lr_scale']:g} times the rates" for run in runs)
    seconds = sum(row["seconds_per_batch"] * row["images"] / run["batch_size"] for run in runs for row in run["rows"])
    return {
        "table": NAME,
        "size": "short",
        "seed": first["seed"],
        "seconds": round(seconds, 1),
        "cut": [
            "CIFAR-10 at 32 pixels with a ResNet-20 (the demo), not ImageNet with a ResNet-50",
            f"{lengths}, target {first['target']}, one run (paper: 7.5 million, nine runs)",
            "minutes are summed over all methods, which ran in parallel",
        ],
        "figures": {f"{run['lr_scale']:g}": run["rows"] for run in runs},
    }


if __name__ == "__main__":
    main()
