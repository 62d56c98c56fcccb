"""Frost on a window, made by rule: crystals that grow in from the edges, at several scales.

Seeds lie on a jittered grid. A seed's crystal grows fastest along its own direction, which points away from the
nearest edge, give or take; a pixel belongs to the crystal that reaches it first. Within a crystal, barbs branch off a
midrib at 60 degrees, as in ice ferns. Large crystals carry smaller ones, and a fractal haze lies under all. Each
texture has the mean colour and the contrast of one kind of frosted window.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from shiftproof.keyed import Keyed
from shiftproof.shifts.corruptions.plasma import plasma, plasma_side

SIDE = 384
"""Height and width of a texture, in pixels."""


class Look(NamedTuple):
    """The mean colour of a texture, 0..255, and the standard deviation of its brightness."""

    colour: tuple[float, float, float]
    contrast: float


LOOKS = (
    Look((83.0, 146.0, 163.0), 21.0),
    Look((196.0, 201.0, 210.0), 22.0),
    Look((201.0, 204.0, 209.0), 24.0),
    Look((134.0, 149.0, 162.0), 30.0),
    Look((109.0, 121.0, 132.0), 42.0),
)


class Growth(NamedTuple):
    """One scale of crystals: seeds along a side (a divisor of SIDE), barbs per seed spacing, and brightness."""

    seeds: int
    barbs: float
    share: float


GROWTHS = (Growth(4, 16.0, 1.0), Growth(12, 8.0, 1.1), Growth(48, 3.0, 0.9))
_HAZE = 0.9
_HAZE_DECAY = 1.55


@cache
def textures() -> tuple[Tensor, ...]:
    """Return the textures, [3, SIDE, SIDE] each in [0, 1]: always the same ones."""
    rng = Keyed(seed=0, keys=range(len(LOOKS)), path="frost")
    pattern = _cloud(rng, _HAZE_DECAY).mul_(_HAZE)
    for growth in GROWTHS:
        pattern += crystals(rng, growth).mul_(growth.share)
    pattern *= _cover(rng)
    pattern -= pattern.mean(dim=(1, 2), keepdim=True)
    pattern /= pattern.std(dim=(1, 2), keepdim=True)
    return tuple(
        (torch.tensor(look.colour).view(3, 1, 1) + look.contrast * plane).div_(255.0).clamp_(0.0, 1.0)
        for look, plane in zip(LOOKS, pattern, strict=True)
    )


def crystals(rng: Keyed, growth: Growth) -> Tensor:
    """Grow crystals of one scale, [N, SIDE, SIDE]. Lengths are in seed spacings; seeds outside the window grow too."""
    count, pixels = growth.seeds, SIDE // growth.seeds
    jitter = rng.uniform(shape=(2, count + 2, count + 2))
    cell = torch.arange(-1.0, count + 1)
    angle = _inward(cell[:, None] + jitter[:, 0], cell + jitter[:, 1], count)
    angle += rng.uniform(-1.0, 1.0, angle.shape[1:])
    tone = rng.uniform(-1.0, 1.0, angle.shape[1:])
    seeds = torch.stack([jitter[:, 0], jitter[:, 1], angle.cos(), angle.sin(), tone])

    # Pixels are laid out by cell, [N, count, pixels, count, pixels], and meet the seeds of the nine cells around.
    pixel = (torch.arange(pixels) + 0.5) / pixels
    first = torch.full((len(rng), count, pixels, count, pixels), math.inf)
    along, aside, tone = torch.zeros(3, *first.shape)
    for down in range(3):
        for across in range(3):
            near = seeds[:, :, down : down + count, None, across : across + count, None]
            y, x = pixel[:, None, None] - (near[0] + down - 1), pixel - (near[1] + across - 1)
            cosine, sine = near[2:4]
            forward, sideways = x * cosine + y * sine, y * cosine - x * sine
            arrival = (forward * torch.where(forward > 0, 0.6, 1.6)).square_().add_(sideways.square())
            won = arrival < first
            first = torch.where(won, arrival, first)
            along = torch.where(won, forward, along)
            aside = torch.where(won, sideways, aside)
            tone = torch.where(won, near[4], tone)
    return _shade(first.sqrt_(), along, aside, tone, growth.barbs).view(len(rng), SIDE, SIDE)


def _shade(arrival: Tensor, along: Tensor, aside: Tensor, tone: Tensor, barbs: float) -> Tensor:
    """Return the brightness of crystals at places along their midrib and aside of it."""
    out = aside.abs()
    phase = (along - out / math.sqrt(3)) * barbs + 7 * tone
    barb = 1 - 2 * (phase - phase.floor())  # bright at the leading side, falling off behind
    midrib = (-25 * out).exp()
    facet = 0.5 * tone + 0.25 * aside.sign()  # the two halves of a crystal face the light differently
    return facet + 0.5 * barb * (-2 * arrival).exp() + midrib - 0.6 * arrival


def _inward(y: Tensor, x: Tensor, count: int) -> Tensor:
    """Return the direction away from the nearest edge of a window of side `count`, in radians."""
    return torch.stack([x, y, count - x, count - y]).argmin(dim=0) * (math.pi / 2)


def _cloud(rng: Keyed, decay: float) -> Tensor:
    """Return fractal clouds, [N, SIDE, SIDE] in [-0.5, 0.5]."""
    side = plasma_side(SIDE, SIDE)
    return plasma(rng.uniform(shape=(side * side,)), decay)[:, :SIDE, :SIDE] - 0.5


def _cover(rng: Keyed) -> Tensor:
    """Return how much ice there is, [N, SIDE, SIDE]: most at the edges, least in the middle, with a ragged limit."""
    line = torch.linspace(-1, 1, SIDE).abs()
    edge = torch.maximum(line[:, None], line)
    return 0.6 + 0.4 * torch.sigmoid(8 * (edge + _cloud(rng, 1.9) - 0.5))
