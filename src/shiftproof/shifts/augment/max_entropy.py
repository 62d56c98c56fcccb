"""Maximum-entropy augmentation: random filters, colour curves and warps, as unspecific as their strength allows.

After PRIME (Modas et al. 2022): of all transformations of a strength those are drawn that assume least, so that a
network is not trained for the corruptions it will be tested on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from annotated_types import Ge, Le
from torch import Tensor

from shiftproof.keyed import Keyed
from shiftproof.options import NotNegative
from shiftproof.shifts.image_shift import Shape
from shiftproof.shifts.levels import to_levels
from shiftproof.shifts.parametric import Parametric

LEVELS = 256
CURVES = 8
"""Sines that a colour curve is a sum of."""
WAVES = 4
"""Sines along each side that a warp is a sum of."""
TAPS = 5
"""The side of a random filter, in pixels."""
KINDS = 4
"""What a step of a chain can be: nothing, a filter, a colour curve or a warp."""


class Primitives(NamedTuple):
    """What is drawn for N images, W chains and D steps: which primitive, its numbers, and the shares of the chains."""

    which: Tensor
    filters: Tensor
    curves: Tensor
    warps: Tensor
    weights: Tensor
    kept: Tensor


@dataclass(frozen=True)
class Prime(Parametric):
    """Mix `width` chains of up to `depth` random filters, colour curves and warps with each other and the image.

    A filter is the identity plus Gaussian taps; a curve adds a sum of sines to every channel's values, fixed at black
    and white; a warp moves pixels by a sum of sines that is 0 at the border. Weights are drawn as AugMix draws them.
    """

    footprint: ClassVar[int] = 3

    moves = False
    name: str = field(default="prime", init=False)
    width: Annotated[int, Ge(1), Le(8), "How many chains are mixed."] = 3
    depth: Annotated[int, Ge(1), Le(8), "The primitives of a chain, at most."] = 2
    taps: Annotated[NotNegative, "The standard deviation of a filter's taps."] = 0.2
    curve: Annotated[NotNegative, "The standard deviation of a colour curve."] = 0.15
    pixels: Annotated[NotNegative, "The standard deviation of a warp, in pixels of 32."] = 1.0

    def draw(self, rng: Keyed, shape: Shape) -> Primitives:
        """Draw the chains and their weights."""
        chains = (self.width, self.depth)
        which = rng.fork("which").integers(0, KINDS, chains).cpu()
        mixed = rng.fork("mixed").uniform()
        # Normalised exponentials are Dirichlet(1, ..., 1); 1 - u is in (0, 1].
        weights = (1.0 - rng.fork("weights").uniform(shape=(self.width,))).log_().neg_()
        weights = weights / weights.sum(dim=1, keepdim=True).clamp_min(1e-12) * mixed[:, None]
        strength = rng.fork("strength").uniform(shape=(*chains, KINDS - 1))
        return Primitives(
            which,
            rng.fork("filters").normal(0.0, self.taps, (*chains, TAPS * TAPS)) * strength[..., :1],
            rng.fork("curves").normal(0.0, self.curve, (*chains, shape.channels * CURVES)) * strength[..., 1:2],
            rng.fork("warps").normal(0.0, self.pixels / 32, (*chains, 2 * WAVES * WAVES)) * strength[..., 2:],
            weights,
            1.0 - mixed,
        )

    def transform(self, images: Tensor, drawn: Primitives) -> Tensor:
        """Send copies of the images through the chains, all at once, and mix them."""
        count = len(images)
        views = images[:, None].repeat(1, self.width, 1, 1, 1).flatten(0, 1)
        for step in range(self.depth):
            which = drawn.which[:, :, step].flatten()
            for kind, change in enumerate((filtered, curved, warped), start=1):
                rows = (which == kind).nonzero()[:, 0].to(images.device)
                if len(rows):
                    numbers = drawn[kind][:, :, step].flatten(0, 1)[rows]
                    views[rows] = change(views[rows], numbers).clamp_(0.0, 1.0)
        mixed = images * drawn.kept[:, None, None, None]
        for chain, weight in enumerate(drawn.weights.unbind(1)):
            mixed.addcmul_(views.view(count, self.width, *images.shape[1:])[:, chain], weight[:, None, None, None])
        return mixed


# What follows adds up a sum of a few waves by one operation a wave, for all images: the order does not depend on how
# many there are, as that of a matrix product would, and kernels are few where launching them is what takes time.


def filtered(images: Tensor, taps: Tensor) -> Tensor:
    """Return images, as on a torus, under filters that are the identity plus taps, [N, TAPS * TAPS]."""
    height, width = images.shape[2:]
    place = torch.arange(TAPS * TAPS, device=images.device)[:, None, None]
    down = (place // TAPS - TAPS // 2) * torch.fft.fftfreq(height, device=images.device)[:, None]
    across = (place % TAPS - TAPS // 2) * torch.fft.rfftfreq(width, device=images.device)
    angles = -2 * math.pi * (down + across)
    waves = torch.stack([angles.cos(), angles.sin()], dim=1)
    gain = torch.zeros(len(images), 2, height, width // 2 + 1, device=images.device)
    gain[:, 0] = 1.0
    for tap, wave in zip(taps[:, :, None, None, None].unbind(1), waves.unbind(0), strict=True):
        gain.addcmul_(tap, wave)
    # A transform of one small plane would have other bits than one of many.
    spectrum = torch.fft.rfft2(images).mul_(torch.complex(gain[:, :1], gain[:, 1:]))
    result: Tensor = torch.fft.irfft2(spectrum, s=(height, width))
    return result


def curved(images: Tensor, curves: Tensor) -> Tensor:
    """Return images whose values went through curves, x + sum_k b_k / sqrt(k) sin(pi k x), [N, C * CURVES]."""
    count, channels, height, width = images.shape
    values = torch.arange(LEVELS, device=images.device) / (LEVELS - 1)
    order = torch.arange(1, CURVES + 1, device=images.device)[:, None]
    sines = torch.sin(math.pi * order * values) / order.sqrt()
    table = values.repeat(count, channels, 1)
    for numbers, sine in zip(curves.view(count, channels, CURVES, 1).unbind(2), sines.unbind(0), strict=True):
        table.addcmul_(numbers, sine)
    picked = to_levels(images).flatten(2).long()
    return table.gather(2, picked).view(count, channels, height, width)


def warped(images: Tensor, warps: Tensor) -> Tensor:
    """Return images whose pixels come from places moved by sums of sines, [N, 2 * WAVES * WAVES], shares of a side."""
    height, width = images.shape[2:]
    order = torch.arange(1, WAVES + 1, device=images.device)[:, None]
    down, across = ((torch.arange(side, device=images.device) + 0.5) / side for side in (height, width))
    rows, columns = torch.sin(math.pi * order * down), torch.sin(math.pi * order * across)
    sizes = torch.hypot(order.float(), order.T.float()).reciprocal()
    waves = (sizes[:, :, None, None] * rows[:, None, :, None] * columns[:, None]).flatten(0, 1)
    move = torch.zeros(len(images), 2, height, width, device=images.device)
    for numbers, wave in zip(warps.view(-1, 2, WAVES * WAVES, 1, 1).unbind(2), waves.unbind(0), strict=True):
        move.addcmul_(numbers, wave)
    grid = torch.stack(torch.meshgrid(2 * across - 1, 2 * down - 1, indexing="xy"), dim=2)
    grid = grid + 2 * move.permute(0, 2, 3, 1)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="reflection", align_corners=False)
