"""Random framing as shifts: translate, pad, erase, flip and crop; the neighbourhoods of Ng et al. 2023, A.5."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

import torch
from annotated_types import Gt, Le
from torch import Tensor

from shiftproof.keyed import Keyed
from shiftproof.options import Share
from shiftproof.shifts.image_shift import Shape
from shiftproof.shifts.levels import to_levels
from shiftproof.shifts.operations.geometric import Affine, Filled, affine, affine_origins, translate, translation
from shiftproof.shifts.origins import OUTSIDE, nearest
from shiftproof.shifts.parametric import Parametric

TRIES = 10
"""Rectangles drawn per image; the first that fits is taken."""

Flip = Annotated[Share, "The probability that an image is mirrored."]


class Rectangles(NamedTuple):
    """One rectangle of whole pixels per image; each tensor is [N] int64."""

    top: Tensor
    left: Tensor
    height: Tensor
    width: Tensor


@dataclass(frozen=True)
class RandomTranslate(Parametric):
    """Move by up to `limit` of width and height, uniformly, in whole pixels."""

    moves = True
    name: str = field(default="random_translate", init=False)
    limit: Annotated[float, Gt(0), Le(1), "The furthest move, as a share of width and height."] = 0.1
    fill: Filled = "black"

    def draw(self, rng: Keyed, shape: Shape) -> Tensor:
        """Draw the shares of width and height, [N, 2]."""
        return rng.uniform(-self.limit, self.limit, (2,)).double()

    def origins(self, rng: Keyed, shape: Shape) -> Tensor:
        """Take each pixel from before the move."""
        drawn = self.draw(rng, shape)
        return affine_origins(translation(drawn[:, 0], drawn[:, 1], *shape.spatial), *shape.spatial)

    def transform(self, images: Tensor, drawn: Tensor) -> Tensor:
        """Move the images."""
        return translate(to_levels(images), drawn[:, 0], drawn[:, 1], self.fill).div_(255.0)


@dataclass(frozen=True)
class PadCrop(Parametric):
    """Mirror with probability `flip`, pad with black and crop at random: a move of up to `pad` of each side.

    The usual framing of small images in training; 1/8 is 4 pixels of 32.
    """

    moves = True
    keeps_depth = True
    name: str = field(default="pad_crop", init=False)
    pad: Annotated[Share, "The furthest move, as a share of each side."] = 0.125
    flip: Flip = 0.5

    def draw(self, rng: Keyed, shape: Shape) -> tuple[Tensor, Tensor, Tensor]:
        """Draw whether to mirror, and the moves down and to the right in pixels, each [N]."""
        down, right = round(self.pad * shape.height), round(self.pad * shape.width)
        return rng.uniform() < self.flip, rng.integers(-down, down + 1), rng.integers(-right, right + 1)

    def transform(self, images: Tensor, drawn: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        """Look every pixel up where it comes from."""
        found = self._origins(drawn, *images.shape[2:])[:, None].expand_as(images)
        return images.flatten(2).gather(2, found.flatten(2).clamp_min(0)).view_as(images).mul_(found != OUTSIDE)

    def origins(self, rng: Keyed, shape: Shape) -> Tensor:
        """Take each pixel from before the move, and before it was mirrored."""
        return self._origins(self.draw(rng, shape), *shape.spatial)

    def _origins(self, drawn: tuple[Tensor, Tensor, Tensor], height: int, width: int) -> Tensor:
        mirrored, down, right = drawn
        rows = torch.arange(height, device=down.device) - down[:, None]
        columns = torch.arange(width, device=down.device) - right[:, None]
        columns = torch.where(mirrored[:, None], width - 1 - columns, columns)
        return nearest(rows[:, :, None], columns[:, None, :], height, width)


@dataclass(frozen=True)
class RandomErase(Parametric):
    """Blacken a rectangle of `smallest` to `largest` of the area, height to width 1/3 to 10/3 (Zhong et al. 2020)."""

    moves = False
    keeps_depth = True
    name: str = field(default="random_erase", init=False)
    smallest: Annotated[float, Gt(0), Le(1), "The smallest rectangle, as a share of the area."] = 0.02
    largest: Annotated[float, Gt(0), Le(1), "The largest rectangle, as a share of the area."] = 0.33

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.smallest <= self.largest, "smallest <= largest")

    def draw(self, rng: Keyed, shape: Shape) -> Rectangles:
        """Draw the rectangles; where none fits the image, an empty one."""
        return _rectangles(rng, shape, (self.smallest, self.largest), (1 / 3, 10 / 3))

    def transform(self, images: Tensor, drawn: Rectangles) -> Tensor:
        """Erase them."""
        rows = _within(drawn.top, drawn.height, images.shape[2], images.device)
        columns = _within(drawn.left, drawn.width, images.shape[3], images.device)
        return images.masked_fill((rows[:, :, None] & columns[:, None, :])[:, None], 0.0)


@dataclass(frozen=True)
class FlipCrop(Parametric):
    """Mirror with probability `flip`; crop `smallest` of the area or more, height to width 3/4 to 4/3; resize back."""

    moves = True
    name: str = field(default="flip_crop", init=False)
    flip: Flip = 0.5
    smallest: Annotated[float, Gt(0), Le(1), "The smallest crop, as a share of the area."] = 0.08

    def draw(self, rng: Keyed, shape: Shape) -> tuple[Tensor, Rectangles]:
        """Draw whether to mirror, [N], and the crop; where none fits the image, all of it."""
        mirrored = rng.uniform() < self.flip
        top, left, height, width = _rectangles(rng, shape, (self.smallest, 1.0), (3 / 4, 4 / 3))
        none = height == 0
        return mirrored, Rectangles(
            top, left, height.masked_fill(none, shape.height), width.masked_fill(none, shape.width)
        )

    def transform(self, images: Tensor, drawn: tuple[Tensor, Rectangles]) -> Tensor:
        """Sample the crops at the size of the images; pixels just outside a crop take part in its border."""
        return affine(to_levels(images), self._source(drawn, *images.shape[2:]), "edge").div_(255.0)

    def origins(self, rng: Keyed, shape: Shape) -> Tensor:
        """Take each pixel from within its crop."""
        return affine_origins(self._source(self.draw(rng, shape), *shape.spatial), *shape.spatial)

    def _source(self, drawn: tuple[Tensor, Rectangles], rows: int, columns: int) -> Affine:
        mirrored, (top, left, height, width) = drawn[0], (each.double() for each in drawn[1])
        across, zero = width / columns, torch.zeros_like(width)
        return Affine(
            a=torch.where(mirrored, -across, across),
            b=zero,
            c=left / columns + torch.where(mirrored, across, zero),
            d=zero,
            e=height / rows,
            f=top / rows,
        )


def _rectangles(rng: Keyed, shape: Shape, area: tuple[float, float], ratio: tuple[float, float]) -> Rectangles:
    """Draw rectangles with uniform area and log-uniform ratio of height to width, empty where none fits the image."""
    share = rng.uniform(*area, (TRIES,)).double() * (shape.height * shape.width)
    slimness = rng.uniform(math.log(ratio[0]), math.log(ratio[1]), (TRIES,)).double().exp()
    height, width = (share * slimness).sqrt().round(), (share / slimness).sqrt().round()
    fits = (height >= 1) & (height <= shape.height) & (width >= 1) & (width <= shape.width)
    first = fits.int().argmax(dim=1, keepdim=True)
    found = fits.gather(1, first)[:, 0]
    height = height.gather(1, first)[:, 0].masked_fill(~found, 0.0)
    width = width.gather(1, first)[:, 0].masked_fill(~found, 0.0)
    where = rng.uniform(shape=(2,)).double()
    top = (where[:, 0] * (shape.height - height + 1)).floor().masked_fill(~found, 0.0)
    left = (where[:, 1] * (shape.width - width + 1)).floor().masked_fill(~found, 0.0)
    return Rectangles(*(each.long() for each in (top, left, height, width)))


def _within(start: Tensor, length: Tensor, size: int, device: torch.device) -> Tensor:
    """Return which of `size` places lie in each image's stretch, [N, size]."""
    place = torch.arange(size, device=device)
    return (place >= start[:, None]) & (place < (start + length)[:, None])
