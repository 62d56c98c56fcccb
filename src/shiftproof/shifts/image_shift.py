"""What every image shift is: called as `shift(images, keys, seed=0) -> images`, of float32 N x C x H x W in [0, 1].

The author of a shift writes `draw` and `transform`; the base class owns the outside: checks, the keyed generator,
clipping, truncation to the 256 levels of stored images, and the identity at severity 0.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shiftproof.errors import ConfigurationError, DataError
from shiftproof.keyed import Keyed
from shiftproof.shifts.base import Shift, check_keys
from shiftproof.shifts.levels import from_levels, quantize_, to_bytes

SMALLEST_SIDE = 8
CACHED = 2**19
"""On a CPU images are shifted so many values at a time, which stay in its cache over a recipe's passes."""

_IMAGES = "a float32 tensor N x C x H x W with values in [0, 1], C = 1 or 3"


class Shape(NamedTuple):
    """The shape of one image.

    Args:
        channels: Number of channels.
        height: Pixels from top to bottom.
        width: Pixels from left to right.

    >>> Shape(3, 32, 48).width
    48
    """

    channels: int
    height: int
    width: int

    @property
    def spatial(self) -> tuple[int, int]:
        """Height and width."""
        return self.height, self.width


@dataclass(frozen=True)
class ImageShift(Shift[Tensor]):
    """A shift of images that keeps shape, dtype, device and range; results are rounded to the 256 levels of uint8."""

    acts_on = "images"
    footprint: ClassVar[int] = 1
    """How many times the memory of its images a shift works on; the more, the fewer images fit in a CPU's cache."""
    frequency: ClassVar[str] = "mid"
    """A fact for tables: where the energy of the change is, low, mid or high."""

    @property
    def moves(self) -> bool | None:
        """Whether the shift moves content within the image, so that label maps must move along.

        None if the class does not say; label maps are then an error.
        """
        return None

    def origins(self, rng: Keyed, shape: Shape) -> Tensor:
        """Return the origin of each pixel, [N, H, W] as in `shifts.origins`, for the draws of `draw`."""
        raise ConfigurationError(
            f"The shift {self.label} does not say where pixels come from.",
            expected="for label maps, a shift with a displacement, such as rotate=15 or elastic_transform@3",
            got=f"{self.name}, whose pixels come from several places at once, or which has no method `origins`",
        )

    def check(self, inputs: Tensor) -> None:
        """Raise an error unless the input is a batch of float32 images, N x C x H x W; values are checked later."""
        check_layout(inputs)

    def _copied(self, inputs: Tensor) -> Tensor:
        check_values(inputs)
        return inputs.clone()

    def _shifted(self, inputs: Tensor, keys: Tensor, seed: int) -> Tensor:
        """Return copies with values on the 256 levels of uint8."""
        with torch.no_grad():
            if inputs.device.type != "cpu":
                check_values(inputs)
                return quantize_(self._transformed(inputs, keys, seed)).contiguous()
            # From numpy, which asks for huge pages: the system takes long to find many small ones.
            shifted = torch.from_numpy(np.empty(inputs.shape, np.float32))
            part = self._part(inputs)
            for start in range(0, len(inputs), part):
                some = slice(start, start + part)
                check_values(inputs[some])  # brings them into the cache
                quantize_(self._transformed(inputs[some], keys[some], seed), out=shifted[some])
            return shifted

    def on_bytes(self, levels: Tensor, keys: Tensor | Sequence[int], *, seed: int = 0) -> Tensor:
        """Return shifted copies of stored images, uint8 N x C x H x W: what a call gives for levels / 255, in bytes.

        That is the float32 nearest to the quotient, as `load_data` has it. Where a CUDA tensor is divided by the number
        255, PyTorch's last bit is another, and a few values of a million may come out a level off.

        On a CPU this moves a quarter of the memory.
        """
        check_layout(levels, torch.uint8)
        keys = check_keys(keys, len(levels), self.acts_on)
        if self.severity == 0 or len(levels) == 0:
            return levels.clone()
        with torch.no_grad():
            size = len(levels) if levels.device.type != "cpu" else self._part(levels) * (4 if self.takes_bytes else 1)
            made = torch.empty_like(levels, memory_format=torch.contiguous_format)
            for start in range(0, len(levels), size):
                some = slice(start, start + size)
                images = levels[some] if self.takes_bytes else from_levels(levels[some])
                shifted = self._transformed(images, keys[some], seed)
                made[some] = to_bytes(shifted.clamp_(0.0, 1.0) if shifted.is_floating_point() else shifted)
            return made

    def at_full_depth(self, images: Tensor, keys: Tensor | Sequence[int], *, seed: int = 0) -> Tensor:
        """Return what a call gives, but for the 256 levels: copies of images of more bits, float32 N x C x H x W."""
        self.check(images)
        if not self.keeps_depth:
            raise ConfigurationError(
                f"The shift {self.label} is made on the 256 levels of 8-bit images.",
                expected="8-bit images, or a shift that keeps more levels apart, such as gaussian_noise@3 or fog@3",
                got="images of more bits, of which 8 would be left",
                fix="bring them to 8 bits first: (values // 257).astype(np.uint8) of 16 bits",
            )
        named = check_keys(keys, len(images), self.acts_on)
        if not self.severity or not len(images):
            return self._copied(images)
        check_values(images)
        part = self._part(images)
        parts = [slice(start, start + part) for start in range(0, len(images), part)]
        with torch.no_grad():
            return torch.cat([self._transformed(images[some], named[some], seed).clamp_(0.0, 1.0) for some in parts])

    @property
    def keeps_depth(self) -> bool:
        """Whether `transform` keeps more than 256 levels apart, so that 16-bit images keep their depth."""
        return False

    @property
    def takes_bytes(self) -> bool:
        """Whether `transform` also accepts uint8 images."""
        return False

    def _part(self, images: Tensor) -> int:
        """Return how many images stay in a CPU's cache while they are shifted."""
        return max(1, CACHED // (self.footprint * images[0].numel()))

    def _transformed(self, images: Tensor, keys: Tensor, seed: int) -> Tensor:
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
            raise DataError("Image values are outside [0, 1].", expected=_IMAGES, got=f"values {values}", fix=fix)
