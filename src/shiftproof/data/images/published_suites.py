"""Published suites of corrupted images, each corruption at each severity a set: ImageNet-C, ImageNet-C-bar, CIFAR-10-C.

Hendrycks & Dietterich 2019 and Mintun et al. 2021. As published and as `write-corrupted --suite` writes them: folders
`fog/3/n01440764/...`, also within a folder for the category (`weather/fog/3`) and under a strength instead of a
severity (`sparkles/3.00`); or arrays, `fog.npy` with the severities 1 to 5 one after the other, and `labels.npy`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from shiftproof.data.images.arrays import from_arrays, read_array
from shiftproof.data.images.folders import load_folder
from shiftproof.data.images.imageset import ImageSet
from shiftproof.errors import DataError
from shiftproof.measures import ALEXNET

SEVERITIES = 5
LABELS = "labels.npy"
BAR = (
    *("blue_noise_sample", "brownish_noise", "caustic_refraction", "checkerboard_cutout", "circular_motion_blur"),
    *("cocentric_sine_waves", "inverse_sparkles", "lines", "perlin_noise", "pinch_and_twirl", "plasma_noise", "ripple"),
    *("single_frequency_greyscale", "sparkles", "transverse_chromatic_abberation"),
)
CATEGORIES = ("", "noise", "blur", "weather", "digital", "extra")
NAMES = frozenset((*ALEXNET, *BAR))
"""The corruptions of the published suites."""


def find_parts(folder: Path) -> Mapping[str, tuple[Path, int | None]]:
    """Return what there is in a folder that holds a published suite, or nothing: `fog@3` -> its place.

    The place is a folder of classes, or an array and the block of it.
    """
    arrays = [folder / f"{name}.npy" for name in sorted(NAMES)]
    found = [file for file in arrays if file.is_file()]
    if found and (folder / LABELS).is_file():
        return {f"{file.stem}@{block + 1}": (file, block) for file in found for block in range(SEVERITIES)}
    parts: dict[str, tuple[Path, int | None]] = {}
    for outer in (folder / category for category in CATEGORIES if (folder / category).is_dir()):
        for corruption in sorted(entry for entry in outer.iterdir() if entry.name in NAMES and entry.is_dir()):
            levels = sorted(
                (entry for entry in corruption.iterdir() if _is_level(entry)), key=lambda one: float(one.name)
            )
            whole = len(levels) == SEVERITIES  # strengths are severities in the order they grow, where all are there
            for number, level in enumerate(levels, start=1):
                severity = number if whole else level.name
                parts[f"{corruption.name}@{severity}"] = (level, None)
    return parts


def load_suite(folder: Path, *, split: str | None = None, **options: Any) -> ImageSet:
    """Return a corruption at a severity as a set, such as `fog@3`; a suite as a whole is none."""
    parts = find_parts(folder)
    if split is None or split.replace("/", "@") not in parts:
        names = list(dict.fromkeys(part.partition("@")[0] for part in parts))
        levels = list(dict.fromkeys(part.partition("@")[2] for part in parts))
        raise DataError(
            f"{str(folder)!r} is a suite of corrupted images."
            if split is None
            else f"There is no part {split!r} in the suite {str(folder)!r}.",
            expected=f"split= a corruption at a severity, such as {next(iter(parts))}",
            got=f"{', '.join(names)}, each at {', '.join(levels)}",
        )
    part = split.replace("/", "@")
    place, block = parts[part]
    name = f"{folder.resolve().name} {part}"
    if block is None:
        return load_folder(place, **options).named(name)
    options.pop("on_bad_file", None)
    images, labels = read_array(place), np.asarray(read_array(folder / LABELS))
    count, rest = divmod(len(images), SEVERITIES)
    if rest or len(labels) not in (count, len(images)):
        raise DataError(
            f"{str(place)!r} is not of a published suite.",
            expected=f"images at {SEVERITIES} severities, one after the other, and labels for them",
            got=f"{len(images)} images, {len(labels)} labels",
        )
    here = slice(block * count, (block + 1) * count)
    return from_arrays(images[here], labels[here] if len(labels) > count else labels, name=name, **options)


def _is_level(entry: Path) -> bool:
    """Whether a folder is named by a number and holds folders."""
    return entry.name.replace(".", "", 1).isdigit() and entry.is_dir() and any(one.is_dir() for one in entry.iterdir())
