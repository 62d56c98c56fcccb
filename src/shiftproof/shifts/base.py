"""What every image shift is: a frozen dataclass, called as `shift(images, keys, seed=0) -> images`.

The author of a shift writes `draw` and `transform`; the base class owns the outside: checks, the keyed generator,
clipping, truncation to the 256 levels of stored images, and the identity at severity 0.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from shiftproof.errors import ConfigurationError, DataError
from shiftproof.keyed import Keyed
from shiftproof.models.identity import digest
from shiftproof.shifts.forms import bracketed, plain, stated
from shiftproof.shifts.levels import from_levels, quantize_, to_bytes

SMALLEST_SIDE = 8
LARGEST_SEVERITY = 5.0
CACHED = 2**19
"""On a CPU images are shifted so many values at a time, which stay in its cache over a recipe's passes."""

_IMAGES = "a float32 tensor N x C x H x W with values in [0, 1], C = 1 or 3"


_Cached = TypeVar("_Cached", bound=Any)
_readers: list[Any] = []
_seen: dict[str, object] = {}


def reads_files(cached: _Cached) -> _Cached:
    """Mark a cached function that reads files of shifts: it forgets them when they are found to have changed."""
    _readers.append(cached)
    return cached


class Shape(NamedTuple):
    """The shape of one image."""

    channels: int
    height: int
    width: int

    @property
    def spatial(self) -> tuple[int, int]:
        """Height and width."""
        return self.height, self.width


@dataclass(frozen=True)
class Shift(ABC):
    """A change of the input: a `name`, a `severity` in [0, 5], and a call that keeps shape, dtype, device and range."""

    footprint: ClassVar[int] = 1
    """How many times the memory of its images a shift works on; the more, the fewer images fit in a CPU's cache."""
    category: ClassVar[str] = "other"
    frequency: ClassVar[str] = "mid"
    monotone: ClassVar[bool] = True
    """Facts for tables: the kind of change, where its energy is (low, mid or high), and whether higher severities
    always move images further. Those of our own corruptions are in their severity tables."""

    name: str
    severity: float

    def __post_init__(self) -> None:
        check_severity(self.name, self.severity)

    @property
    def label(self) -> str:
        """The name for tables: name, severity and the fields not at their default, which `shifts.parse` reads back."""
        return f"{self.name}@{plain(self.severity)}{bracketed(stated(self, without=('name', 'severity')))}"

    def decides_outputs(self) -> object:
        """Return what tells shifts of one class apart: all that they hold, and the content of the `files` they name."""
        kind = type(self)
        kept = (name for name in vars(self) if not isinstance(getattr(kind, name, None), cached_property))
        held = {name: _number(getattr(self, name)) for name in sorted(kept) if name != "device"}
        return [held, [_content(path) for path in self.files()]]

    def content_digest(self) -> str:
        """Return a digest of all that the shift does: its class, its fields and the files they name, not its label."""
        return digest(self) if self.files() else self._content  # files may be edited while a shift is held

    @cached_property
    def _content(self) -> str:
        return digest(self)

    def files(self) -> tuple[str, ...]:
        """Return the files and folders whose content decides what the shift does."""
        return ()

    def __str__(self) -> str:
        return self.label

    def __call__(self, images: Tensor, keys: Tensor | Sequence[int], *, seed: int = 0) -> Tensor:
        """Return shifted copies of float32 images in [0, 1], N x C x H x W, with values on the 256 levels of uint8."""
        check_layout(images)
        keys = check_keys(keys, images)
        if self.severity == 0 or len(images) == 0:
            check_values(images)
            return images.clone()
        with torch.no_grad():
            if images.device.type != "cpu":
                check_values(images)
                return quantize_(self._shifted(images, keys, seed)).contiguous()
            # From numpy, which asks for huge pages: the system takes long to find many small ones.
            shifted = torch.from_numpy(np.empty(images.shape, np.float32))
            part = self._part(images)
            for start in range(0, len(images), part):
                some = slice(start, start + part)
                check_values(images[some])  # brings them into the cache
                quantize_(self._shifted(images[some], keys[some], seed), out=shifted[some])
            return shifted

    def on_bytes(self, levels: Tensor, keys: Tensor | Sequence[int], *, seed: int = 0) -> Tensor:
        """Return shifted copies of stored images, uint8 N x C x H x W: what a call gives for levels / 255, in bytes.

        That is the float32 nearest to the quotient, as `load_data` has it. Where a CUDA tensor is divided by the number
        255, PyTorch's last bit is another, and a few values of a million may come out a level off.

        On a CPU this moves a quarter of the memory.
        """
        check_layout(levels, torch.uint8)
        keys = check_keys(keys, levels)
        if self.severity == 0 or len(levels) == 0:
            return levels.clone()
        with torch.no_grad():
            size = len(levels) if levels.device.type != "cpu" else self._part(levels) * (4 if self.takes_bytes else 1)
            made = torch.empty_like(levels, memory_format=torch.contiguous_format)
            for start in range(0, len(levels), size):
                some = slice(start, start + size)
                images = levels[some] if self.takes_bytes else from_levels(levels[some])
                shifted = self._shifted(images, keys[some], seed)
                made[some] = to_bytes(shifted.clamp_(0.0, 1.0) if shifted.is_floating_point() else shifted)
            return made

    @property
    def takes_bytes(self) -> bool:
        """Whether `transform` takes uint8 images too."""
        return False

    def _part(self, images: Tensor) -> int:
        """Return how many images stay in a CPU's cache while they are shifted."""
        return max(1, CACHED // (self.footprint * images[0].numel()))

    def _shifted(self, images: Tensor, keys: Tensor, seed: int) -> Tensor:
        """Draw and transform."""
        rng = Keyed(seed, keys, device=images.device).fork(self.name)
        drawn = self.draw(rng, Shape(*images.shape[1:]))
        return self.transform(images.contiguous(), drawn)

    @abstractmethod
    def draw(self, rng: Keyed, shape: Shape) -> Any:
        """Draw every random quantity the batch needs; each has one row per image."""

    @abstractmethod
    def transform(self, images: Tensor, drawn: Any) -> Tensor:
        """Apply the shift deterministically and return a new tensor: values that may leave [0, 1], or whole levels."""


def _number(value: object) -> object:
    """Return a whole number as the float it equals: severity 3 is severity 3.0."""
    return float(value) if type(value) is int and abs(value) < 2**53 else value


def _content(path: str) -> object:
    """Return the bytes of a file, or of all files of a folder, as digests by path."""
    place = Path(path).expanduser()
    found = sorted(file for file in place.rglob("*") if file.is_file()) if place.is_dir() else [place]
    told = []
    for file in found:
        if file.is_file():
            with file.open("rb") as opened:
                told.append((str(file.relative_to(place)), hashlib.file_digest(opened, "blake2b").digest()))
    if _seen.setdefault(path, told) != told:
        _seen[path] = told
        for cached in _readers:
            cached.cache_clear()
    return told


def check_severity(name: str, severity: float) -> None:
    """Refuse a severity outside [0, 5]."""
    if not 0.0 <= severity <= LARGEST_SEVERITY:
        raise ConfigurationError(
            f"Shift {name!r} has no severity {severity:g}.",
            expected="a number from 0 (the input unchanged) to 5 (strongest); fractions are allowed",
            got=f"{severity:g}",
        )


def check_keys(keys: Tensor | Sequence[int], images: Tensor) -> Tensor:
    """Return the keys of images as a tensor; refuse another number of them."""
    keys = torch.as_tensor(keys, dtype=torch.int64)
    if keys.shape != images.shape[:1]:
        raise DataError(
            "Every image needs a key.",
            expected=f"{len(images)} keys, one per image",
            got=f"keys of shape {tuple(keys.shape)}",
        )
    return keys


def check_layout(images: Tensor, dtype: torch.dtype = torch.float32) -> None:
    """Refuse what is not a batch of images of a dtype with 1 or 3 channels and sides of at least 8 pixels."""
    expected = _IMAGES if dtype == torch.float32 else "a uint8 tensor N x C x H x W, C = 1 or 3"
    if not isinstance(images, Tensor):
        raise DataError("Shifts act on tensors.", expected=expected, got=type(images).__name__)
    got = f"{str(images.dtype).removeprefix('torch.')} tensor of shape {tuple(images.shape)}"
    if images.dtype == torch.uint8 != dtype:
        fix = "divide by 255: images.float() / 255, or use shiftproof.corrupt, which takes uint8"
        raise DataError("Images are 0..255 instead of 0..1.", expected=expected, got=got, fix=fix)
    if images.ndim != 4 or images.dtype != dtype:
        raise DataError("This is not a batch of images.", expected=expected, got=got)
    if images.shape[1] not in (1, 3):
        fix = "drop an alpha channel with images[:, :3]; N x H x W x C arrays need images.permute(0, 3, 1, 2)"
        raise DataError("Images need 1 or 3 channels.", expected=expected, got=got, fix=fix)
    if min(images.shape[2:]) < SMALLEST_SIDE:
        raise DataError(
            "Images are too small to corrupt.", expected=f"sides of at least {SMALLEST_SIDE} pixels", got=got
        )


def check_values(images: Tensor) -> None:
    """Refuse values outside [0, 1], and NaN."""
    if images.numel():
        low, high = torch.stack(torch.aminmax(images)).tolist()  # one wait for the device
        if not (low >= 0.0 and high <= 1.0):  # also catches NaN
            values = "NaN" if math.isnan(low) else f"{low:.4g} to {high:.4g}"
            fix = "keep normalisation inside the model (shiftproof.models.Normalize) and pass images in [0, 1]"
            raise DataError("Image values leave [0, 1].", expected=_IMAGES, got=f"values {values}", fix=fix)
