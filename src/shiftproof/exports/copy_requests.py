"""What a corrupted copy of a data set is to be, checked once: its shifts and everything else that decides its bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import torch

from shiftproof.data.images.cifar import find_layout
from shiftproof.data.images.decoding import Color, Size
from shiftproof.data.images.demo import DEMOS
from shiftproof.data.images.huggingface import is_saved
from shiftproof.errors import ConfigurationError
from shiftproof.exports.file_copies import Format
from shiftproof.exports.suites import SUITES, Suite, Target, shift_targets
from shiftproof.models.identity import digest
from shiftproof.registry import unknown
from shiftproof.runs import Json
from shiftproof.runs.files import expand
from shiftproof.shifts.base import Shift

QUALITY = 95
"""Of JPEG and other lossy files; `PUBLISHED_QUALITY` is what the published sets were saved with."""
PUBLISHED_QUALITY = 85


@dataclass(frozen=True)
class CopyRequest:
    """What decides the bytes of a copy, besides the images."""

    targets: tuple[Target, ...]
    arrays: bool
    suite: str | None
    seed: int
    file_format: Format
    quality: int
    size: Size | None
    color: Color | None
    textures: str | None
    masks: str | None
    ignore: int
    device: str

    def facts(self) -> dict[str, Json]:
        """Return the settings by name; the same kind of device gives the same bits."""
        lossy = not self.arrays and self.file_format != "png"
        facts: dict[str, Json] = {
            "suite": self.suite,
            "seed": self.seed,
            "textures": self.textures,
            "size": self.size,
            "color": self.color,
            "masks": self.masks,
            "ignore": self.ignore if self.masks else None,
            "format": "npy" if self.arrays else self.file_format,
            "quality": self.quality if lossy else None,
            "device": torch.device(self.device).type,
        }
        return {name: value for name, value in facts.items() if value is not None}

    @property
    def text(self) -> str:
        """What sets this copy apart from others of the same images."""
        labels = [] if self.suite else [target.shift.label for target in self.targets]
        content = digest([target.shift for target in self.targets])
        return ", ".join([*labels, *(f"{name} {value}" for name, value in self.facts().items()), f"shifts {content}"])


def make_request(
    source: Any,
    shifts: Sequence[str | Shift],
    suite: str | None,
    *,
    seed: int,
    file_format: Format | None,
    quality: int | None,
    size: Size | None,
    color: Color | None,
    preset: str | None,
    textures: str | None,
    masks: str | None,
    ignore: int,
    device: str,
) -> CopyRequest:
    """Check the options against each other, and fill in what they leave open."""
    if bool(shifts) == (suite is not None):
        raise ConfigurationError(
            "Give either shifts or a suite.",
            expected=f"--shifts fog@3, or --suite {' | '.join(SUITES)}",
            got="both" if shifts else "neither",
        )
    published = _published(suite)
    if published and preset is not None:
        raise ConfigurationError(f"The suite {suite} fixes the preset {published.preset}.", got=f"--preset {preset}")
    if not published and textures is not None:
        fix = f"--shifts 'frost@3[textures={textures}]'"
        raise ConfigurationError("textures= is for the frost of a suite.", fix=fix)
    if published and not published.arrays and not is_folder(source):
        raise ConfigurationError(
            f"The suite {suite} needs a folder of image files.",
            expected="a folder of images",
            got=str(source),
            fix=f"--suite {' or '.join(name for name, each in SUITES.items() if each.arrays)}, for any data",
        )
    arrays = published.arrays if published else not is_folder(source)
    if arrays and file_format is not None:
        raise ConfigurationError(
            "format= cannot be used for arrays.", got=f"--format {file_format}", fix="leave it out"
        )
    if file_format is not None and file_format not in get_args(Format):
        raise unknown("format", file_format, get_args(Format))
    if arrays and masks is not None:
        raise ConfigurationError("masks= needs a folder of images.", got=f"--masks {masks} and {source!s:.80}")
    if quality is None:
        quality = PUBLISHED_QUALITY if published else QUALITY
    if not 1 <= quality <= 100:
        raise ConfigurationError(f"Invalid quality {quality}.", expected="a number from 1 to 100")
    return CopyRequest(
        targets=published.targets(textures) if published else shift_targets(shifts, preset=preset, arrays=arrays),
        arrays=arrays,
        suite=suite,
        seed=seed,
        file_format=file_format or ("jpg" if published else "same"),
        quality=quality,
        size=published.size if published and size is None else size,
        color="rgb" if published and color is None else color,
        textures=textures,
        masks=masks,
        ignore=ignore,
        device=device,
    )


def is_folder(source: Any) -> bool:
    """Whether a source is a folder of image files, rather than a set in files of another kind."""
    if not isinstance(source, str | Path) or str(source) in DEMOS:
        return False
    path = expand(source)
    return path.is_dir() and not is_saved(path) and find_layout(path) is None


def _published(name: str | None) -> Suite | None:
    if name is not None and name not in SUITES:
        raise unknown("suite", name, SUITES)
    return None if name is None else SUITES[name]
