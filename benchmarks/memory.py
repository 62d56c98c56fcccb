"""Peak memory of an audit by the number of images: what it holds of them is bounded.

    python benchmarks/memory.py                       # 1,000 to 50,000 images of 32 pixels, 500 to 5,000 of 224
    python benchmarks/memory.py 32x1000 32x10000

Each audit is a process of its own, of clean images and one corruption; the network is small, so that what is seen is
what holds images and results. Images are kept as bytes, in memory up to `subjects.HELD_BYTES` and beyond that in a
temporary file.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

SIZES = ("32x1000", "32x10000", "32x50000", "224x500", "224x1500", "224x5000")
CLASSES = 10
NETWORK = """
from torch import nn


def build():
    layers = nn.Conv2d(3, 16, 5, 4), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(64, 10))
"""
AUDIT = ("--sections", "clean,corruptions", "--shifts", "contrast", "--severities", "3", "--budget", "full")


def main() -> None:
    """Audit sets of growing size and print the most memory each took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="*", default=SIZES, help="pixels x images")
    sizes = parser.parse_args().sizes
    print(f"{'pixels':>6}{'images':>8}{'of them, MiB':>14}{'peak, MiB':>11}{'store, MiB':>12}")
    for each in sizes:
        side, images = map(int, each.split("x"))
        with tempfile.TemporaryDirectory() as folder:
            peak, store = audited(Path(folder), side, images)
        print(f"{side:6}{images:8,}{images * 3 * side**2 / 2**20:14,.0f}{peak / 2**20:11,.0f}{store / 2**20:12,.1f}")


def audited(folder: Path, side: int, images: int) -> tuple[int, int]:
    """Audit so many images of a side; return the peak of the process, and the size of its store, in bytes."""
    (folder / "model.py").write_text(NETWORK)
    out = folder / "out"
    data = write_images(folder / "images", side, images)
    command = [sys.executable, "-m", "shiftproof", "audit", "--model", f"{folder / 'model.py'}:build"]
    command += ["--data", str(data), "--out", str(out), *AUDIT]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    found = json.loads((out / "results.json").read_text())["timing"]["peak_memory_bytes"]["process"]
    return found, (out / "run.sqlite").stat().st_size


def write_images(folder: Path, side: int, images: int) -> Path:
    """Write JPEG files by class, each of other pixels."""
    rng = np.random.default_rng(0)
    for place in range(images):
        home = folder / str(place % CLASSES)
        home.mkdir(parents=True, exist_ok=True)
        coarse = Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8))
        coarse.resize((side, side), Image.Resampling.BICUBIC).save(home / f"{place}.jpg", quality=80)
    return folder


if __name__ == "__main__":
    main()
