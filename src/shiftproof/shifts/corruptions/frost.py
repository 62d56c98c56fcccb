"""Frost: a random crop of a frosted window over the image.

The published generator crops photographs that are not ours to ship. So the textures are grown by rule (`crystals`),
unless photographs are given: a folder of them, or those inside the `imagecorruptions` distribution.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from shiftproof.data.images.decoding import open_image
from shiftproof.data.images.source import describe
from shiftproof.errors import DataError
from shiftproof.keyed import Keyed
from shiftproof.shifts.base import reads_files
from shiftproof.shifts.color import luma
from shiftproof.shifts.corruptions import crystals
from shiftproof.shifts.image_shift import Shape
from shiftproof.shifts.tables import Parameters

DISTRIBUTION = "imagecorruptions"
RELEASED = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")
"""What the published generator draws from: the first five of its six photographs, two of them the same picture."""
_SUFFIXES = {".png", ".jpg", ".jpeg", ".webp"}


@dataclass(frozen=True)
class Frost:
    """Dim the image and add a crop of a frost texture.

    `textures` is None (textures made by rule), a folder of photographs, or "imagecorruptions" (the photographs of that
    distribution, which must be installed; its code is not run). A folder that holds the published photographs is used
    as the published generator uses it: the first five.
    """

    textures: str | None = None

    def sample(self, rng: Keyed, shape: Shape, p: Parameters) -> Tensor:
        """Draw which texture, and from where: numbers uniform in [0, 1), [N, 3]."""
        return rng.uniform(shape=(3,))

    def apply(self, images: Tensor, unit: Tensor, p: Parameters) -> Tensor:
        """Add a crop to the dimmed images."""
        atlas = _atlas(self.textures, p.scale, *images.shape[1:], device=images.device)
        return torch.add(images * p.image, atlas.crops(unit, *images.shape[2:]), alpha=p.frost)


class Atlas(NamedTuple):
    """Textures of any sizes in one line of pixels: all rows of all channels of the first, then of the second, ..."""

    line: Tensor
    start: Tensor
    height: Tensor
    width: Tensor
    channels: int

    @classmethod
    def of(cls, textures: list[Tensor], device: torch.device) -> Atlas:
        """Lay out textures [C, H, W]."""
        sizes = torch.tensor([texture.shape[1:] for texture in textures])
        lengths = torch.tensor([texture.numel() for texture in textures])
        line = torch.cat([texture.flatten() for texture in textures])
        start = lengths.cumsum(0) - lengths
        height, width = sizes.unbind(1)
        return cls(line.to(device), start.to(device), height.to(device), width.to(device), len(textures[0]))

    def crops(self, unit: Tensor, height: int, width: int) -> Tensor:
        """Return crops [N, C, height, width] from numbers in [0, 1): texture, top and left, [N, 3]."""
        which = (unit[:, 0] * len(self.start)).long()
        heights, widths = self.height[which], self.width[which]
        top = (unit[:, 1] * (heights - height)).long()
        left = (unit[:, 2] * (widths - width)).long()
        channel = torch.arange(self.channels, device=unit.device)[:, None]
        row = torch.arange(height, device=unit.device)
        rows = channel * heights[:, None, None] + top[:, None, None] + row
        first = self.start[which][:, None, None] + rows * widths[:, None, None] + left[:, None, None]
        # A view of every run of `width` pixels, of which the wanted rows are copied whole.
        return self.line.unfold(0, width, 1)[first]


@reads_files
@lru_cache(maxsize=16)
def _atlas(
    textures: str | None, scale: float, channels: int, height: int, width: int, *, device: torch.device
) -> Atlas:
    """Return textures at a scale, or larger where a crop would not fit."""
    planes = list(crystals.textures()) if textures is None else [_read(path) for path in photographs(textures)]
    if channels == 1:
        planes = [luma(plane[None])[0] for plane in planes]
    return Atlas.of([_resized(plane, scale, height, width) for plane in planes], device)


def _resized(texture: Tensor, scale: float, height: int, width: int) -> Tensor:
    """Scale a texture [C, H, W] bilinearly, by more than `scale` where a crop of height x width would not fit."""
    scale = max(scale, (height + 1) / texture.shape[1], (width + 1) / texture.shape[2])
    if scale == 1:
        return texture
    return F.interpolate(texture[None], scale_factor=scale, mode="bilinear", align_corners=False)[0]


def photographs(textures: str) -> list[Path]:
    """Return the photographs that `textures` names, in the order of their names."""
    paths = _distributed() if textures == DISTRIBUTION else sorted(Path(textures).glob("*"))
    paths = [path for path in paths if path.suffix.lower() in _SUFFIXES]
    released = [path for path in paths if path.name in RELEASED]
    if not paths:
        raise DataError(
            f"There are no frost photographs in {textures!r}.",
            expected=f"a folder of {', '.join(sorted(_SUFFIXES))} files, or {DISTRIBUTION!r} if that is installed",
            fix="leave `textures` out to use the textures that come with shiftproof",
        )
    return released if len(released) == len(RELEASED) else paths


def _distributed() -> list[Path]:
    """Return the photographs of the installed distribution, found by its list of files."""
    try:
        files = metadata.files(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return []
    return sorted(Path(str(file.locate())) for file in files if file.name.startswith("frost"))


def _read(path: Path) -> Tensor:
    """Read a photograph, [3, H, W] in [0, 1]."""
    try:
        with open_image(path) as image:
            pixels = np.array(image.convert("RGB"))
    except Exception as error:  # what is no image fails in any way there is
        raise DataError(
            f"Cannot read the frost photograph {str(path)!r}.", expected="an image file", got=describe(error)
        ) from error
    return torch.from_numpy(pixels).permute(2, 0, 1).float().div_(255.0)
