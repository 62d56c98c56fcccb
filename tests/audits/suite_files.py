"""Published suites made small: a label is in an image's pixels, and so is whether a model gets it wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from shiftproof.shifts import names

COMMON = names("common")
SEVERITIES = (1, 2, 3, 4, 5)
CATEGORY = {
    **dict.fromkeys(("gaussian_noise", "shot_noise", "impulse_noise"), "noise"),
    **dict.fromkeys(("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"), "blur"),
    **dict.fromkeys(("snow", "frost", "fog", "brightness"), "weather"),
    **dict.fromkeys(("contrast", "elastic_transform", "pixelate", "jpeg_compression"), "digital"),
}
"""The archive of ImageNet-C that each corruption is published in."""


class Reads(nn.Module):
    """Reads the label from two values of an image, and is wrong where a third says so."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes = classes

    def forward(self, images: Tensor) -> Tensor:
        """Return logits."""
        high, low, wrong = ((images[:, channel, 0, 0] * 255).round().long() for channel in range(3))
        return nn.functional.one_hot((high * 256 + low + wrong.sign()) % self.classes, self.classes).float() * 9


def picture(label: int, wrong: bool, side: int = 8, own: int = 0) -> NDArray[np.uint8]:
    """Return an image of a label, [H, W, 3]; `own` tells images of one label apart."""
    made = np.zeros((side, side, 3), np.uint8)
    made[..., 0], made[..., 1], made[..., 2] = label // 256, label % 256, 255 * wrong
    made[1:, 1:, 0] = own
    return made


def pictures(labels: Iterable[int], error: float) -> NDArray[np.uint8]:
    """Return images of labels, of which the first share is answered wrongly."""
    labels = list(labels)
    bad = round(error * len(labels))
    return np.stack([picture(label, place < bad, own=place % 251) for place, label in enumerate(labels)])


def error_at(name: str, severity: int) -> float:
    """Return the share of errors: a tenth at severity 1, half at 5; twice as many under fog."""
    return severity * (0.2 if name == "fog" else 0.1)


def write_arrays(
    folder: Path,
    classes: int,
    corruptions: Iterable[str] = COMMON,
    *,
    images: int | None = None,
    error: Callable[[str, int], float] = error_at,
) -> Path:
    """Write CIFAR-10-C's layout: `fog.npy` with five severities one after the other, and `labels.npy`."""
    folder.mkdir()
    labels = np.arange(images or classes) % classes
    for name in corruptions:
        np.save(folder / f"{name}.npy", np.concatenate([pictures(labels, error(name, s)) for s in SEVERITIES]))
    np.save(folder / "labels.npy", np.tile(labels, 5))
    return folder


def write_part(folder: Path, classes: Iterable[str], error: float, *, numbers: Any = None, side: int = 8) -> None:
    """Write a folder of classes: an image of each, of which the first share is answered wrongly."""
    listed = list(classes)
    for place, name in enumerate(listed):
        label = place if numbers is None else numbers[place]
        path = folder / name / f"ILSVRC2012_val_{place:08}.png"
        path.parent.mkdir(parents=True)
        Image.fromarray(picture(label, place < round(error * len(listed)), side)).save(path)


def write_folders(
    folder: Path, classes: Iterable[str], corruptions: Iterable[str], *, grouped: bool = False, **options: Any
) -> Path:
    """Write ImageNet-C's layout: `fog/3/n01440764/...`, or `weather/fog/3/...` as its archives are unpacked."""
    listed = list(classes)
    for name in corruptions:
        outer = folder / CATEGORY.get(name, "extra") if grouped else folder
        for severity in SEVERITIES:
            write_part(outer / name / str(severity), listed, error_at(name, severity), **options)
    return folder
