"""C-bar overlays: things between the camera and the scene (Mintun et al. 2021).

Constants are the published ones; S is the image side.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from shiftproof.keyed import Keyed
from shiftproof.shifts.fields import (
    direction,
    image_side,
    pixel_axes,
    radial_frequency,
    random_phase_field,
    random_points,
)
from shiftproof.shifts.image_shift import Shape
from shiftproof.shifts.tables import Parameters

_TURN = 2 * math.pi
_GREY = 128 / 255
_FEWEST_RAYS, _MOST_RAYS = 50, 199
_JITTER = 0.25
_STARS = 5
_BOARD = 40
"""Squares per side of the checkerboard before it repeats: more than any square image shows."""


class Stars(NamedTuple):
    """Stars, K per image: `centre` [N, K, 2], row and column; `rays` [N, K]; standard normal `jitter` [N, K, 199]."""

    centre: Tensor
    rays: Tensor
    jitter: Tensor


class Sparkles:
    """Put five white stars on the image, with rays of 0.1 S at strength 10; opacity 0 hides them."""

    def sample(self, rng: Keyed, shape: Shape, p: Parameters) -> Stars:
        """Draw centres anywhere and 50 to 199 rays of random length."""
        return _draw_stars(rng, shape, count=_STARS, margin=0.0)

    def apply(self, images: Tensor, stars: Stars, p: Parameters) -> Tensor:
        """Let each star cover its share of what the others leave."""
        radius = p.strength / 10 * 0.1 * image_side(*images.shape[2:])
        lengths = stars.jitter.mul(_JITTER * radius).add_(radius).clamp_min_(1.0)
        left = torch.ones_like(images[:, 0])
        for centre, rays, length in zip(*(part.unbind(1) for part in (stars.centre, stars.rays, lengths)), strict=True):
            light, profile = _star(images, centre, rays, length)
            left.mul_(light.mul_(profile).clamp_(max=1.0).mul_(-p.opacity).add_(1.0))
        return (images - 1.0).mul_(left[:, None]).add_(1.0)


class InverseSparkles:
    """Fade everything to white but a star of radius 0.25 S: the sharper its edge, the greater the strength."""

    def sample(self, rng: Keyed, shape: Shape, p: Parameters) -> Stars:
        """Draw a centre in the middle half and 50 to 199 rays of random length."""
        return _draw_stars(rng, shape, count=1, margin=0.25)

    def apply(self, images: Tensor, stars: Stars, p: Parameters) -> Tensor:
        """Keep the image as far as the star's light reaches."""
        radius = 0.25 * image_side(*images.shape[2:])
        length = stars.jitter[:, 0].mul(_JITTER * radius).add_(radius)
        light, profile = _star(images, stars.centre[:, 0], stars.rays[:, 0], length)
        kept = light.log_().mul_(1.3 * p.strength / 10).exp_().mul_(profile).clamp_(max=1.0)
        kept.sub_(1.0).mul_(p.opacity).add_(1.0)
        return (images - 1.0).mul_(kept[:, None]).add_(1.0)


def _draw_stars(rng: Keyed, shape: Shape, *, count: int, margin: float) -> Stars:
    """Draw stars whose centres keep a margin, a share of the image, from its borders."""
    rays = rng.integers(_FEWEST_RAYS, _MOST_RAYS + 1, (count,))
    return Stars(random_points(rng, shape, count, margin), rays, rng.normal(shape=(count, _MOST_RAYS)))


def _star(images: Tensor, centre: Tensor, rays: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
    """Return the light of a star, (ray length / distance)**2, and the profile across a ray, both [N, H, W].

    `centre` is [N, 2], `rays` [N], `length` [N, 199], of which the first `rays` are used. Between two rays, lengths
    are interpolated; the profile is 1 in the middle and 0.75 at the rays.
    """
    rows, columns = pixel_axes(images)
    down, across = rows - centre[:, 0, None, None], columns - centre[:, 1, None, None]
    position = direction(down, across).div_(_TURN).add_(0.5).mul_(rays[:, None, None])
    ray = position.floor()
    beyond = position.sub_(ray)
    # Every ray once and, after the last, the first two again: a pixel can lie on the seam.
    around = torch.arange(_MOST_RAYS + 2, device=images.device) % rays[:, None]
    table = length.gather(1, around)
    index = ray.long().flatten(1)
    here, after = (table.gather(1, at).view_as(beyond) for at in (index, index.add(1)))
    reach = after.sub_(here).mul_(beyond).add_(here)
    light = reach.square_().div_((down.square() + across.square()).add_(1e-4))
    return light, beyond.sub_(0.5).square_().neg_().add_(1.0)


class BlueNoiseSample:
    """Blacken the pixels where blue noise is below 0.3 strength - 2.5 standard deviations."""

    def sample(self, rng: Keyed, shape: Shape, p: Parameters) -> Tensor:
        """Draw half of the phases of one field."""
        return rng.uniform(0.0, _TURN, (shape.height * shape.width // 2,))

    def apply(self, images: Tensor, phases: Tensor, p: Parameters) -> Tensor:
        """Keep what is above the threshold."""
        height, width = images.shape[2:]
        field = random_phase_field(phases, radial_frequency(height, width, images.device), height, width)
        return images * (field > 0.3 * p.strength - 2.5)[:, None]


class Board(NamedTuple):
    """A checkerboard: `angle` and `square`, its side in pixels, [N]; a `chance` in [0, 1) per square, [N, 40, 40]."""

    angle: Tensor
    square: Tensor
    chance: Tensor


class CheckerboardCutout:
    """Cover black squares of a turned checkerboard with grey, all of them at strength 10."""

    def sample(self, rng: Keyed, shape: Shape, p: Parameters) -> Board:
        """Draw an angle, squares of 0.1 S to 0.25 S, and the chance each has to stay open."""
        side = image_side(*shape.spatial)
        square = rng.uniform(0.1 * side, 0.25 * side).clamp_min_(1.0)
        return Board(rng.uniform(0.0, _TURN), square, rng.uniform(shape=(_BOARD, _BOARD)))

    def apply(self, images: Tensor, board: Board, p: Parameters) -> Tensor:
        """Fill the squares of even parity whose chance is below the strength."""
        rows, columns = pixel_axes(images)
        cosine, sine = ((wave / board.square)[:, None, None] for wave in (board.angle.cos(), board.angle.sin()))
        u, v = rows * cosine + columns * sine, columns * cosine - rows * sine
        black = (u.floor() - v.floor()).remainder_(2) == 0
        # Rounding towards zero makes one of two squares at the origin; so do the published masks.
        row, column = (x.trunc_().long().remainder_(_BOARD) for x in (u, v))
        chance = board.chance.flatten(1).gather(1, row.mul_(_BOARD).add_(column).flatten(1)).view_as(black)
        covered = black & (chance < p.strength / 10)
        return images.masked_fill(covered[:, None], _GREY)


class Strokes(NamedTuple):
    """Lines of L per image: `middle` [N, L, 2], row and column, and `angle` [N, L] from the downward axis."""

    middle: Tensor
    angle: Tensor


class Lines:
    """Draw grey anti-aliased lines of length 2 S, as many as the image has rows at strength 10."""

    def sample(self, rng: Keyed, shape: Shape, p: Parameters) -> Strokes:
        """Draw middles anywhere and angles within a random range about a random angle."""
        count = int(p.strength / 10 * image_side(*shape.spatial))
        base, spread = rng.uniform(0.0, _TURN), rng.uniform(0.1 * _TURN, _TURN)
        angle = base[:, None] + spread[:, None] * rng.uniform(-0.5, 0.5, (count,))
        return Strokes(random_points(rng, shape, count), angle)

    def apply(self, images: Tensor, strokes: Strokes, p: Parameters) -> Tensor:
        """Let each line cover a pixel by one less its distance from the line."""
        rows, columns = pixel_axes(images)
        half = image_side(*images.shape[2:]) * torch.stack([strokes.angle.cos(), strokes.angle.sin()], dim=2)
        start, end = (strokes.middle - half).trunc_(), (strokes.middle + half).trunc_()
        length = (end - start).square().sum(dim=2, keepdim=True).sqrt_().clamp_min_(1.0)
        along = (end - start) / length
        left = torch.ones_like(images[:, 0])
        for first, step, reach in zip(start.unbind(1), along.unbind(1), length.unbind(1), strict=True):
            down, across = rows - first[:, 0, None, None], columns - first[:, 1, None, None]
            y, x = step[:, 0, None, None], step[:, 1, None, None]
            distance = (down * x - across * y).abs_()
            position = down * y + across * x
            beyond = (position < -0.5) | (position > reach[:, :, None] + 0.5)
            left.mul_(distance.masked_fill_(beyond, 1.0).clamp_(max=1.0))
        return (images - _GREY).mul_(left[:, None]).add_(_GREY)
