"""What the scripts of this folder share: their options, their deadline, and the JSON file each leaves.

Data are in one folder: `cifar10/train.npz` and `cifar10/test.npz`, `mnist/train.npz` and `mnist/test.npz` (images and
labels), `usps.npz`, `imagenet-as-cifar10.npz`, `cifar10-resnets/resnet20.safetensors` and `resnet56.safetensors`,
`camvid-small/`, `imagenet-sample/` (a folder for each class), `models.py`, whose functions `resnet50()` and
`efficientnet_lite0()` return ImageNet networks of your own, and for texts `text/amazon/`, `text/sst2/`,
`imdb/reviews.json`, `text/sick/` and `text/counterfactual/NLI/` (`benchmarks/text_domains.py` and
`benchmarks/pair_domains.py` say how they are laid out), WordNet's files in `wordnet/` and a
sentence encoder in `minilm/`, as `transformers` keeps it.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from shiftproof.runs import write_atomically

FIGURES = Path("benchmarks/reproduce/figures")


def options_of(description: str | None, sizes: Sequence[str], **more: Any) -> argparse.Namespace:
    """Read the options that all scripts have; `more` are further ones, each with what argparse is told of it."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of data sets and weights")
    parser.add_argument("--runs", type=Path, default=Path("runs/reproduce"), help="where work is kept and goes on")
    parser.add_argument("--out", type=Path, help="where the JSON goes; by default beside the page's, if not smaller")
    parser.add_argument("--size", choices=tuple(sizes), default=tuple(sizes)[-1], help="sample: a CPU, minutes")
    parser.add_argument("--minutes", type=float, help="begin nothing after so many; the next call goes on")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--commit", default=None, help="what the figures are of, where git cannot say")
    for name, told in more.items():
        parser.add_argument(f"--{name}", **told)
    found = parser.parse_args()
    found.out = found.out or (FIGURES if found.size == tuple(sizes)[-1] else found.runs / "figures")
    return found


@dataclass
class Figures:
    """The figures of one table, written again after every part so that a kill leaves what there was."""

    name: str
    options: argparse.Namespace
    cut: list[str]
    """What was made smaller than in the paper, in words."""
    parts: dict[str, Any] = field(default_factory=dict)
    began: float = field(default_factory=time.time)
    before: float = field(init=False)
    """Seconds of earlier calls of the same run, which this one goes on with."""

    def __post_init__(self) -> None:
        found = json.loads(self.path.read_text()) if self.path.is_file() else {}
        same = found and all(found[name] == value for name, value in self.facts.items())
        self.before = found["seconds"] if same else 0.0
        self.parts = {**(found["figures"] if same else {}), **self.parts}

    @property
    def path(self) -> Path:
        """Where the figures go."""
        return Path(self.options.out) / f"{self.name}.json"

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What the figures are of."""
        return {
            "table": self.name,
            "size": self.options.size,
            "seed": self.options.seed,
            "commit": self.options.commit or commit(),
            "device": device_name(self.options.device),
            "torch": torch.__version__,
        }

    @property
    def stop_at(self) -> float | None:
        """When nothing more is begun, as `time.time()` counts; None for never."""
        return None if self.options.minutes is None else self.began + 60 * self.options.minutes

    @property
    def late(self) -> bool:
        """Whether the time is up."""
        return self.stop_at is not None and time.time() > self.stop_at

    def add(self, part: str, value: Any) -> None:
        """Add a part of the table, and write the file."""
        self.parts[part] = value
        seconds = round(self.before + time.time() - self.began, 1)
        content = {**self.facts, "seconds": seconds, "cut": self.cut, "figures": self.parts}
        write_atomically(self.path, json.dumps(content, indent=1, allow_nan=False) + "\n")
        print(f"{self.name}: {part} after {seconds} s", flush=True)


def commit() -> str:
    """Return the commit of the working tree, or `unknown` where git has none."""
    try:
        found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip()


def device_name(device: str) -> str:
    """Return the name of the GPU, or of the processor's kind."""
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else f"CPU ({platform.machine()})"
