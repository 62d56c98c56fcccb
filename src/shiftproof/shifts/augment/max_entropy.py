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
from shiftproof.shifts import kernels
from shiftproof.shifts.image_shift import Shape
from shiftproof.shifts.levels import to_bytes
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
                rows = (which == kind).nonzero()[:, 0].to(images.device, non_blocking=True)
                if len(rows):
                    numbers = drawn[kind][:, :, step].flatten(0, 1)[rows]
                    views[rows] = change(views[rows], numbers).clamp_(0.0, 1.0)
        mixed = images * drawn.kept[:, None, None, None]
        for chain, weight in enumerate(drawn.weights.unbind(1)):
            mixed.addcmul_(views.view(count, self.width, *images.shape[1:])[:, chain], weight[:, None, None, None])
        return mixed


def filtered(images: Tensor, taps: Tensor) -> Tensor:
    """Return images, as on a torus, under filters that are the identity plus taps, [N, TAPS * TAPS]."""
    height, width = images.shape[2:]
    place = torch.arange(TAPS * TAPS, device=images.device)[:, None, None]
    down = (place // TAPS - TAPS // 2) * torch.fft.fftfreq(height, device=images.device)[:, None]
    across = (place % TAPS - TAPS // 2) * torch.fft.rfftfreq(width, device=images.device)
    angles = -2 * math.pi * (down + across)
    waves = torch.stack([angles.cos(), angles.sin()], dim=3)
    identity = torch.zeros_like(waves[0])
    identity[..., 0] = 1.0
    gain = torch.view_as_complex(plus_waves(identity, taps, waves))
    # A transform of one small plane would have other bits than one of many.
    spectrum = torch.fft.rfft2(images).mul_(gain[:, None])
    result: Tensor = torch.fft.irfft2(spectrum, s=(height, width))
    return result


def curved(images: Tensor, curves: Tensor) -> Tensor:
    """Return images whose values went through curves, x + sum_k b_k / sqrt(k) sin(pi k x), [N, C * CURVES]."""
    values = torch.arange(LEVELS, device=images.device) / (LEVELS - 1)
    order = torch.arange(1, CURVES + 1, device=images.device)[:, None]
    table = plus_waves(values, curves.view(-1, CURVES), torch.sin(math.pi * order * values) / order.sqrt())
    picked = to_bytes(images).flatten(2).long()
    return table.view(*images.shape[:2], LEVELS).gather(2, picked).view_as(images)


def warped(images: Tensor, warps: Tensor) -> Tensor:
    """Return images whose pixels come from places moved by sums of sines, [N, 2 * WAVES * WAVES], shares of a side."""
    height, width = images.shape[2:]
    order = torch.arange(1, WAVES + 1, device=images.device)[:, None]
    down, across = ((torch.arange(side, device=images.device) + 0.5) / side for side in (height, width))
    rows, columns = torch.sin(math.pi * order * down), torch.sin(math.pi * order * across)
    sizes = torch.hypot(order.float(), order.T.float()).reciprocal()
    waves = (sizes[:, :, None, None] * rows[:, None, :, None] * columns[:, None]).flatten(0, 1)
    move = plus_waves(torch.zeros_like(waves[0]), warps.view(-1, WAVES * WAVES), waves).view(-1, 2, height, width)
    grid = torch.stack(torch.meshgrid(2 * across - 1, 2 * down - 1, indexing="xy"), dim=2)
    grid = torch.add(grid, move.permute(0, 2, 3, 1), alpha=2)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="reflection", align_corners=False)


def plus_waves(start: Tensor, numbers: Tensor, waves: Tensor) -> Tensor:
    """Return start [...] plus the sum over k of numbers[:, k] times waves[k], [R, K] and [K, ...] -> [R, ...].

    Wave by wave: the order does not depend on how many rows there are, as that of a matrix product would.
    """
    if kernels.usable(numbers):
        from shiftproof.shifts.kernels import waves as fused

        return fused.plus_waves(start, numbers, waves)
    total = start.repeat(len(numbers), *[1] * start.ndim)
    for number, wave in zip(numbers.view(*numbers.shape, *[1] * start.ndim).unbind(1), waves.unbind(0), strict=True):
        total.addcmul_(number, wave)
    return total
