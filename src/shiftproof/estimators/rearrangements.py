"""Changes of images that no corruption is like: channels, occlusion, composition and resolution.

Calibration needs shifts of many families. The catalogue has noise, blur, weather, colour and moves; these are the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from annotated_types import Gt, Lt
from torch import Tensor

from shiftproof.keyed import Keyed
from shiftproof.options import Count, Positive
from shiftproof.shifts import Shape
from shiftproof.shifts.parametric import Parametric

Part = Literal["centre", "left", "patches"]


class _Drawless(Parametric):
    """A shift in which nothing is random."""

    def draw(self, rng: Keyed, shape: Shape) -> None:
        """Nothing is random."""


@dataclass(frozen=True)
class ChannelOrder(_Drawless):
    """Colour channels in another order: blue, green, red; grey images stay as they are."""

    moves = False
    name: str = field(default="channel_order", init=False)

    def transform(self, images: Tensor, drawn: None) -> Tensor:
        """Turn the channels round."""
        return images.flip(1)


@dataclass(frozen=True)
class Gamma(_Drawless):
    """Values to a power: above 1 is darker, below 1 brighter."""

    moves = False
    name: str = field(default="gamma", init=False)
    power: Annotated[Positive, "The power."] = 2.0

    def transform(self, images: Tensor, drawn: None) -> Tensor:
        """Raise the values."""
        return images.pow(self.power)


@dataclass(frozen=True)
class Occlusion(Parametric):
    """A part of the image in one grey: a square in the centre, the left side, or four squares anywhere."""

    moves = False
    name: str = field(default="occlusion", init=False)
    part: Annotated[Part, "Where."] = "centre"
    share: Annotated[float, Gt(0), Lt(1), "How much of the image, at most where squares may overlap."] = 0.25
    level: Annotated[float, "The grey, from 0 to 1."] = 0.0

    def draw(self, rng: Keyed, shape: Shape) -> Tensor:
        """Draw where four squares begin, [N, 4, 2] in [0, 1]."""
        return rng.uniform(shape=(4, 2))

    def transform(self, images: Tensor, drawn: Tensor) -> Tensor:
        """Cover the part."""
        height, width = images.shape[2:]
        covered = images.clone()
        if self.part == "left":
            covered[..., : round(self.share * width)] = self.level
            return covered
        squares = 1 if self.part == "centre" else drawn.shape[1]
        high, wide = (max(1, round((self.share / squares) ** 0.5 * side)) for side in (height, width))
        starts = drawn if self.part == "patches" else torch.full_like(drawn[:, :1], 0.5)
        for image, places in zip(covered, starts.tolist(), strict=True):
            for down, right in places:
                top, left = round(down * (height - high)), round(right * (width - wide))
                image[:, top : top + high, left : left + wide] = self.level
        return covered


@dataclass(frozen=True)
class DoubleExposure(_Drawless):
    """The image with itself upside down laid over it."""

    name: str = field(default="double_exposure", init=False)
    weight: Annotated[float, Gt(0), Lt(1), "The weight of what is laid over."] = 0.3

    def transform(self, images: Tensor, drawn: None) -> Tensor:
        """Mix the two."""
        return torch.lerp(images, images.flip(2), self.weight)


@dataclass(frozen=True)
class Tiles(_Drawless):
    """The image, made small, as tiles."""

    name: str = field(default="tiles", init=False)
    a_side: Annotated[Count, "Tiles a side."] = 2

    def transform(self, images: Tensor, drawn: None) -> Tensor:
        """Lay the tiles, and cut off what is over."""
        height, width = images.shape[2:]
        small = F.interpolate(images, size=(-(-height // self.a_side), -(-width // self.a_side)), mode="area")
        return small.repeat(1, 1, self.a_side, self.a_side)[..., :height, :width]


@dataclass(frozen=True)
class ShuffledPatches(Parametric):
    """Patches of the image in a random order."""

    name: str = field(default="shuffled_patches", init=False)
    a_side: Annotated[Count, "Patches a side."] = 2

    def draw(self, rng: Keyed, shape: Shape) -> Tensor:
        """Draw the orders, [N, patches]."""
        return rng.permutation(self.a_side**2)

    def transform(self, images: Tensor, drawn: Tensor) -> Tensor:
        """Exchange the patches; pixels that are over at the right and the bottom stay."""
        k = self.a_side
        count, channels, height, width = images.shape
        high, wide = height // k, width // k
        inner = images[..., : k * high, : k * wide].reshape(count, channels, k, high, k, wide)
        patches = inner.permute(0, 2, 4, 1, 3, 5).flatten(1, 2)
        mixed = patches[torch.arange(count, device=images.device)[:, None], drawn.to(images.device)]
        made = images.clone()
        made[..., : k * high, : k * wide] = (
            mixed.view(count, k, k, channels, high, wide)
            .permute(0, 3, 1, 4, 2, 5)
            .reshape(count, channels, k * high, k * wide)
        )
        return made


@dataclass(frozen=True)
class LowResolution(_Drawless):
    """The image at a fraction of its size, and back, by squares or smoothly."""

    moves = False
    name: str = field(default="low_resolution", init=False)
    factor: Annotated[Positive, "How many times smaller."] = 2.0
    back: Annotated[Literal["nearest", "bilinear"], "How it comes back to its size."] = "nearest"

    def transform(self, images: Tensor, drawn: None) -> Tensor:
        """Make them small and large again."""
        size = [max(1, round(side / self.factor)) for side in images.shape[2:]]
        small = F.interpolate(images, size=size, mode="area")
        return F.interpolate(small, size=images.shape[2:], mode=self.back)
