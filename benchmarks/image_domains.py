"""The domains of pools of image networks: small real sets under shifts, and other sets with the same classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from shiftproof.data import ImageSet, load_images
from shiftproof.estimators.neighborhoods import Jitter
from shiftproof.shifts import ImageChain, Shift, parse

CIFAR_TRAIN = ("clean", "contrast@3", "gaussian_blur@3")
CIFAR_TEST = (
    *CIFAR_TRAIN,
    "gaussian_noise@3",
    "fog@4",
    "jpeg_compression@4",
    "pixelate@4",
    "elastic_transform@3",
    "frost@3",
)
STRENGTHS = (1, 3, 5)
"""Severities of the domains that differ in the strength of a shift alone."""
DIGITS_TRAIN = ("mnist", "usps", "colour")
DIGITS_TEST = (*DIGITS_TRAIN, "mnist fog@4", "usps gaussian_blur@2")
COLOUR = ImageChain(steps=[Jitter(f"{name}_shift", low=-120, high=120) for name in ("red", "green", "blue")])
"""Colour-shifted digits: every image gets a bias of its own in each channel, as in the space `mnist` of searches."""


@dataclass(frozen=True)
class Domains:
    """The domains of a pool, by name, as files of images and labels."""

    train: Mapping[str, str]
    validation: Mapping[str, str]
    test: Mapping[str, str]
    architectures: tuple[str, ...]
    widths: tuple[int, ...]
    """Channels of first layers."""

    def prints(self) -> dict[str, str]:
        """Return what changes with any of their images."""
        files = {f"{part} {name}": path for part in ("train", "test") for name, path in getattr(self, part).items()}
        return {name: load_images(path).fingerprint for name, path in files.items()}


def cifar_domains(
    train: str, test: str, natural: str | None, *, images: int, test_images: int, out: Path, device: str, seed: int
) -> Domains:
    """Make CIFAR-10's domains: shifts of the training and test images, and another set with the same classes."""
    held_out = load_images(test).take(2 * test_images, seed=seed)
    # One half validates, on the training domain; the other tests.
    parts = {
        "train": load_images(train).take(images, seed=seed),
        "validation": held_out.subset(range(0, len(held_out), 2)),
        "test": held_out.subset(range(1, len(held_out), 2)),
    }
    made = {
        part: {
            name: _written(data, None if name == "clean" else parse(name), out / f"{part}-{name}.npz", device)
            for name in (CIFAR_TEST if part == "test" else CIFAR_TRAIN)
        }
        for part, data in parts.items()
    }
    if natural:
        made["test"]["natural"] = natural
    return Domains(**made, architectures=("plain", "normalised", "residual", "wide"), widths=(32, 48, 64))


def severity_domains(
    train: str, test: str, natural: str | None, *, images: int, test_images: int, out: Path, device: str, seed: int
) -> Domains:
    """Make domains that differ in the strength of a shift: CIFAR-10's six test corruptions at three severities.

    All networks are trained on the images as they are, and are of one architecture.
    """
    held_out = load_images(test).take(2 * test_images, seed=seed)
    kinds = [name.partition("@")[0] for name in CIFAR_TEST if name not in CIFAR_TRAIN]
    names = ["clean", *(f"{kind}@{severity}" for severity in STRENGTHS for kind in kinds)]
    shown = held_out.subset(range(1, len(held_out), 2))
    tests = {
        name: _written(shown, None if name == "clean" else parse(name), out / f"test-{name}.npz", device)
        for name in names
    }
    own = {
        "train": load_images(train).take(images, seed=seed),
        "validation": held_out.subset(range(0, len(held_out), 2)),
    }
    made = {part: {"clean": _written(data, None, out / f"{part}-clean.npz", device)} for part, data in own.items()}
    others = {"natural": natural} if natural else {}
    return Domains(**made, test={**tests, **others}, architectures=("normalised",), widths=(8, 16, 24))


def digit_domains(
    mnist: tuple[str, str], usps: str, *, images: int, test_images: int, out: Path, device: str, seed: int
) -> Domains:
    """Make the domains of digits, at 32 pixels and in colour: MNIST, USPS, and MNIST in random colours.

    `mnist` are the files of training and test images, `usps` one file with `train_x`, `train_y`, `test_x`, `test_y`.
    """
    made: dict[str, dict[str, str]] = {}
    for part in ("train", "validation", "test"):
        made[part] = {}
        for name in DIGITS_TEST if part == "test" else DIGITS_TRAIN:
            source, _, shift = name.partition(" ")
            at: dict[str, Any] = {"size": 32, "color": "rgb"}
            if source == "usps":
                whole = load_images(usps, split="train" if part == "train" else "test", **at)
            else:
                whole = load_images(mnist[part != "train"], **at)
            data = whole.take(images if part == "train" else 2 * test_images, seed=seed)
            if part != "train":
                data = data.subset(range(part == "test", len(data), 2))
            applied = COLOUR if source == "colour" else parse(shift) if shift else None
            made[part][name] = _written(data, applied, out / f"{part}-{name.replace(' ', '-')}.npz", device)
    return Domains(**made, architectures=("plain", "normalised"), widths=(16, 32, 64))


def _written(data: ImageSet, shift: Shift | None, path: Path, device: str) -> str:
    """Write a set under a shift as a file, unless it is there, and return its path."""
    if not path.is_file():
        images, labels = [], []
        for batch in data.batches(1000, device=device):
            made = batch.inputs if shift is None else shift(batch.inputs, batch.keys)
            images.append((made * 255).round().to("cpu", torch.uint8).permute(0, 2, 3, 1).numpy())
            labels.append(cast(Tensor, batch.labels).cpu().numpy())
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, images=np.concatenate(images), labels=np.concatenate(labels))
    return str(path)
