"""Speed of the nineteen common corruptions, beside the package people use today.

    python benchmarks/shifts.py --device cpu --peer /path/to/peer/bin/python
    python benchmarks/shifts.py --device cuda

On a CPU both use all cores, in one process per core as the workers of a data loader do: ours on batches of uint8, the
peer (`imagecorruptions` 1.1.2, see shifts_peer.py) on one uint8 image at a time. Rounds of the two alternate, and the
best round of each counts, so that other load on the machine hits neither alone. Where there is much of it,
`--clock cpu` compares processor time.

On CUDA the median of repeated calls counts, between device events, with the keys on the device; the extra memory is
the peak above what was held before the call, the result included.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shiftproof import shifts

NAMES = (*shifts.names("common"), *shifts.names("holdout"))
BATCHES = {"cpu": 32, "cuda": 256}
HERE = Path(__file__).parent


def photographs(count: int, side: int) -> Tensor:
    """Return images with smooth shapes, edges and texture, on the 256 levels of files, N x 3 x side x side."""
    generator = torch.Generator().manual_seed(0)
    line = torch.linspace(0, 1, side)
    waves = torch.rand(count, 3, 4, 1, 1, generator=generator) * 12
    smooth = (waves[:, :, 0] * line + waves[:, :, 1]).sin() * (waves[:, :, 2] * line[:, None] + waves[:, :, 3]).cos()
    edges = (line + line[:, None] > torch.rand(count, 1, 1, 1, generator=generator) * 2).float()
    texture = torch.rand(count, 3, side, side, generator=generator)
    images = 0.35 * (smooth + 1) / 2 + 0.45 * edges + 0.2 * texture
    return images.mul_(255).floor_().div_(255)


class Workers:
    """Processes of one kind, one per core, which are timed together."""

    def __init__(self, python: str, script: str, processes: int) -> None:
        self._script = script
        single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        self._workers = [
            subprocess.Popen(
                [python, "-W", "ignore", str(HERE / script)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, **single},
            )
            for _ in range(processes)
        ]

    def rate(self, **request: object) -> float:
        """Return images per second of all workers; 0 seconds warm up."""
        for worker in self._workers:
            assert worker.stdin is not None
            worker.stdin.write(json.dumps(request) + "\n")
            worker.stdin.flush()
        rate = 0.0
        for worker in self._workers:
            assert worker.stdout is not None
            answer = worker.stdout.readline()
            if not answer:
                sys.exit(f"A worker ended; run {self._script} with its interpreter to see why.")
            done = json.loads(answer)
            rate += done["images"] / done["seconds"]
        return rate

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers:
            worker.communicate()


@contextmanager
def stored(images: Tensor) -> Iterator[Path]:
    """Write images to a file as uint8, N x H x W x 3, for the time of the block."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "images.npy"
        np.save(path, images.mul(255).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy())
        yield path


def measure_cpu(side: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Time ours and the peer in turn."""
    kinds = {"ours": Workers(sys.executable, "shifts_ours.py", options.cores)}
    if options.peer:
        kinds["peer"] = Workers(options.peer, "shifts_peer.py", options.cores)
    rows = []
    with stored(photographs(options.batch, side)) as path:
        for name in options.names:
            request = {"name": name, "severity": options.severity, "preset": options.preset, "images": str(path)}
            rates: dict[str, list[float]] = {kind: [] for kind in kinds}
            for seconds in (0.0, *[options.seconds] * options.rounds):
                for kind, workers in kinds.items():
                    rate = workers.rate(**request, seconds=seconds, clock=options.clock)
                    if seconds:
                        rates[kind].append(rate)
            row = {"name": name, "side": side, **{kind: max(found) for kind, found in rates.items()}}
            told = f"{name:18} {side:4} px {row['ours']:10,.0f} images/s"
            if options.peer:
                row["ratio"] = row["ours"] / row["peer"]
                told += f" {row['peer']:10,.1f} {row['ratio']:8.2f}x"
            rows.append(row)
            print(told, flush=True)
    for workers in kinds.values():
        workers.close()
    return rows


def measure_cuda(side: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Time ours between device events."""
    from triton.testing import do_bench

    images = photographs(options.batch, side).cuda()
    keys = torch.arange(options.batch, device="cuda")
    rows = []
    for name in options.names:
        shift = shifts.corruption(name, options.severity, options.preset)
        shift(images, keys)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        shift(images, keys)
        torch.cuda.synchronize()
        extra = (torch.cuda.max_memory_allocated() - before) / (images.numel() * images.element_size())
        time_ms = do_bench(lambda shift=shift: shift(images, keys), warmup=100, rep=300, return_mode="median")
        row = {"name": name, "side": side, "ours": options.batch / time_ms * 1000, "extra_memory": extra}
        rows.append(row)
        print(f"{name:18} {side:4} px {row['ours']:12,.0f} images/s {extra:6.1f} batches of memory", flush=True)
    return rows


def geometric_mean(values: list[float]) -> float:
    """Return exp of the mean logarithm."""
    return math.exp(sum(map(math.log, values)) / len(values))


def machine(device: str) -> dict[str, str]:
    """Say what was measured on."""
    chip = torch.cuda.get_device_name() if device == "cuda" else platform.machine()
    return {"device": device, "chip": chip, "torch": torch.__version__, "python": platform.python_version()}


def main() -> None:
    """Measure, print a line per corruption, and write all of it as JSON if wanted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--side", default="224,32", help="image sides in pixels, separated by commas")
    parser.add_argument("--batch", type=int, help="images per call: 32 on a CPU, 256 on CUDA")
    parser.add_argument("--severity", type=int, default=3, help="1 to 5")
    parser.add_argument("--preset", choices=("imagenet", "cifar"), help="strengths; by image size if left out")
    parser.add_argument("--names", default=",".join(NAMES), help="corruptions, separated by commas")
    parser.add_argument("--peer", metavar="PYTHON", help="the interpreter of an environment with imagecorruptions")
    parser.add_argument(
        "--cores", type=int, default=torch.get_num_threads(), help="cores for each of the two, on a CPU"
    )
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="wall time, or processor time (cpu)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of ours and the peer in turn, on a CPU")
    parser.add_argument("--seconds", type=float, default=0.5, help="how long a round is")
    parser.add_argument("--out", type=Path, help="where to write the results as JSON")
    options = parser.parse_args()
    options.batch = options.batch or BATCHES[options.device]
    options.names = options.names.split(",")

    measure = measure_cuda if options.device == "cuda" else measure_cpu
    results: list[dict[str, Any]] = []
    for side in map(int, options.side.split(",")):
        rows = measure(side, options)
        print(f"geometric mean at {side} px: {geometric_mean([row['ours'] for row in rows]):,.0f} images/s")
        if options.peer and options.device == "cpu":
            print(f"geometric mean of the ratios at {side} px: {geometric_mean([row['ratio'] for row in rows]):.1f}x")
        results += rows
    if options.out:
        told = ("batch", "severity", "preset", "cores", "clock")
        settings = {name: getattr(options, name) for name in told}
        options.out.write_text(json.dumps({**machine(options.device), **settings, "rows": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
