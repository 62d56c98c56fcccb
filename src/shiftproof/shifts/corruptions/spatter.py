"""Spatter: drops of water or mud on the lens.

Where smoothed noise exceeds a threshold there is liquid. Mud covers what is behind it. Water brightens it, more so
the further from the drop's outline and on the side turned to the light: the published generator finds outlines as
Canny does, takes the distance to them, equalises it, shades it as a relief and blurs it, in 8-bit images throughout.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from shiftproof.keyed import Keyed
from shiftproof.shifts import kernels
from shiftproof.shifts.color import luma
from shiftproof.shifts.filters import correlate, gaussian_blur
from shiftproof.shifts.image_shift import Shape
from shiftproof.shifts.tables import Parameters

WATER = (175 / 255, 238 / 255, 238 / 255)
MUD = (63 / 255, 42 / 255, 20 / 255)

_FURTHEST = 20
"""Distances to an outline are cut off here, in pixels."""
_FINE = 512
"""Distances are counted in fractions of a pixel this fine, to fit 16-bit integers."""
_STEPS = (
    *((1, 0, 1.0), (0, 1, 1.0)),
    *((1, 1, 1.4), (1, -1, 1.4)),
    *((1, 2, 2.1969), (2, 1, 2.1969), (1, -2, 2.1969), (2, -1, 2.1969)),
)
"""Moves (down, across) and lengths whose shortest sums approximate Euclidean distances (Borgefors 1986)."""

_ALL = torch.ones(3, 3)
_LIGHT = torch.tensor([[-2.0, -1.0, 0.0], [-1.0, 1.0, 1.0], [0.0, 1.0, 2.0]])
"""Sums of a pixel and its neighbours: all of them, and those on the lit side less those on the other."""


class Spatter:
    """Splash water on the image, or mud where the table says so."""

    def sample(self, rng: Keyed, shape: Shape, p: Parameters) -> Tensor:
        """Draw one normal number per pixel, [N, 1, H, W]."""
        return rng.normal(p.loc, p.scale, (1, *shape.spatial))

    def apply(self, images: Tensor, field: Tensor, p: Parameters) -> Tensor:
        """Find the drops and colour them; one-channel images get the colour's luma."""
        liquid = gaussian_blur(field, p.sigma)
        if p.mud >= 0.5:
            mask = gaussian_blur((liquid > p.threshold).float(), p.strength)
            mask = torch.where(mask < 0.8, 0.0, mask)
            return torch.lerp(images, _colour(MUD, images.shape[1], images.device), mask)
        levels = torch.where(liquid < p.threshold, 0.0, liquid * 255.0).clamp_(max=255.0).to(torch.uint8)
        colour = _colour(WATER, images.shape[1], images.device)
        return torch.addcmul(images, relief(levels[:, 0])[:, None], colour, value=p.strength)


def relief(levels: Tensor) -> Tensor:
    """Return how much light drops throw, [N, H, W] in [0, 1], from uint8 images that are 0 between the drops."""
    distance = chamfer_distance(outlines(levels))
    depth = equalize(_sum3(distance.float()).div_(9 * _FINE).to(torch.uint8))
    lit = _lit(depth).clamp_(0, 255)
    light = _sum3(lit.float()).div_(9).round_().mul_(levels)
    # Without a drop there is no light: 0 / 1.
    return light.div_(light.amax(dim=(1, 2), keepdim=True).clamp_min_(1.0))


def outlines(levels: Tensor) -> Tensor:
    """Return the thin edges of uint8 images, [N, H, W] bool, by Canny's method with thresholds 50 and 150.

    An edge is a ridge of the Sobel gradient above the upper threshold, or above the lower one and beside such a point.
    Canny follows faint ridges further; drops, whose outlines are steps from 0, have hardly any.
    """
    if kernels.usable(levels):
        from shiftproof.shifts.kernels import spatter as fused

        return fused.outlines(levels.contiguous())
    framed = _frame(levels.short(), "edge")
    tall = framed[:, :-2] + 2 * framed[:, 1:-1] + framed[:, 2:]
    wide = framed[:, :, :-2] + 2 * framed[:, :, 1:-1] + framed[:, :, 2:]
    gx, gy = tall[:, :, 2:] - tall[:, :, :-2], wide[:, 2:] - wide[:, :-2]
    same_sign = (gx ^ gy) >= 0
    gx, gy = gx.abs_(), gy.abs_()
    strength = gx + gy
    (nw, n, ne), (w, _, e), (sw, s, se) = _neighbours(_frame(strength, "zero"))
    # A ridge is no lower than its two neighbours across: along x or y if the gradient is within 22.5 degrees of it,
    # whose tangent is 12 / 29 to four digits, else along a diagonal.
    along_x, along_y = gy * 29 < gx * 12, gy * 12 > gx * 29
    diagonal = torch.where(same_sign, (strength > nw) & (strength > se), (strength > ne) & (strength > sw))
    upright = torch.where(along_y, (strength > n) & (strength >= s), diagonal)
    ridge = torch.where(along_x, (strength > w) & (strength >= e), upright)
    strong = ridge & (strength > 150)
    near = _frame(strong, "zero")
    near = near[:, :-2] | near[:, 1:-1] | near[:, 2:]
    near = near[:, :, :-2] | near[:, :, 1:-1] | near[:, :, 2:]
    return near & ridge & (strength > 50)


def chamfer_distance(marks: Tensor) -> Tensor:
    """Return the distance of every pixel to the nearest mark, [N, H, W] bool -> int16, in 1 / 512 pixel, at most 20.

    A shortest path takes each kind of step some number of times, in any order. So paths are extended by one kind of
    step after the other, by 1, 2, 4, ... of them at once.
    """
    distance = marks.logical_not().short().mul_(_FURTHEST * _FINE)
    height, width = marks.shape[1:]
    for down, across, length in _STEPS:
        times = 1
        while times * length < _FURTHEST and times * down < height and times * abs(across) < width:
            distance = _step(distance, times * down, times * across, round(times * length * _FINE))
            times *= 2
    return distance


def _step(distance: Tensor, down: int, across: int, length: int) -> Tensor:
    """Extend paths by a step and by its opposite; may change `distance`."""
    if kernels.usable(distance):
        from shiftproof.shifts.kernels import spatter as fused

        return fused.step(distance, down, across, length)
    further = distance + length
    for way in (1, -1):
        (ys, ys_from), (xs, xs_from) = _overlap(way * down), _overlap(way * across)
        nearer = distance[:, ys, xs]
        torch.minimum(nearer, further[:, ys_from, xs_from], out=nearer)
    return distance


def equalize(levels: Tensor) -> Tensor:
    """Equalise the histograms of small whole numbers, [N, H, W] uint8 up to 20 -> int16 in 0..255."""
    flat = levels.flatten(1)
    below = _count_up_to(levels)
    total = flat.shape[1]
    lowest = torch.where(below == 0, total, below).amin(dim=1, keepdim=True)
    # The lowest level present becomes 0, the highest 255.
    equal = ((below - lowest).clamp_min_(0) * 255.0 / (total - lowest).clamp_min_(1)).round_().short()
    return equal.gather(1, flat.long()).view(levels.shape)


def _count_up_to(levels: Tensor) -> Tensor:
    """Return how many pixels are at most 0, 1, ..., 20, [N, 21] int64."""
    if kernels.usable(levels):
        from shiftproof.shifts.kernels import spatter as fused

        return fused.histogram(levels.contiguous())[:, : _FURTHEST + 1].cumsum(dim=1)
    bins = _FURTHEST + 1
    first = torch.arange(len(levels), device=levels.device)[:, None] * bins
    counts = torch.bincount((levels.flatten(1) + first).flatten(), minlength=len(levels) * bins)
    return counts.view(-1, bins).cumsum(dim=1)


def _lit(depth: Tensor) -> Tensor:
    """Shade a relief lit from the lower right, [N, H, W] whole numbers."""
    if kernels.usable(depth):
        return correlate(depth[:, None].float(), _LIGHT)[:, 0]
    (nw, n, _), (w, here, e), (_, s, se) = _neighbours(_frame(depth, "mirror"))
    return (here + e).add_(s).add_(se, alpha=2).sub_(nw, alpha=2).sub_(n).sub_(w)


def _sum3(planes: Tensor) -> Tensor:
    """Add up 3 x 3 pixels, mirrored about the border pixels."""
    if kernels.usable(planes):
        return correlate(planes[:, None], _ALL)[:, 0]
    framed = _frame(planes, "mirror")
    rows = (framed[:, :-2] + framed[:, 1:-1]).add_(framed[:, 2:])
    return (rows[:, :, :-2] + rows[:, :, 1:-1]).add_(rows[:, :, 2:])


def _frame(planes: Tensor, kind: Literal["edge", "mirror", "zero"]) -> Tensor:
    """Add one pixel on every side of [N, H, W]: the border pixel again, the one inside it, or 0."""
    for dim in (1, 2):
        last = planes.shape[dim] - 1
        inset = 1 if kind == "mirror" else 0
        before, after = planes.narrow(dim, inset, 1), planes.narrow(dim, last - inset, 1)
        if kind == "zero":
            before = after = torch.zeros_like(before)
        planes = torch.cat([before, planes, after], dim)
    return planes


def _neighbours(framed: Tensor) -> list[list[Tensor]]:
    """Return the nine shifted views of framed planes, by rows."""
    height, width = framed.shape[1] - 2, framed.shape[2] - 2
    return [[framed[:, y : y + height, x : x + width] for x in range(3)] for y in range(3)]


def _overlap(shift: int) -> tuple[slice, slice]:
    """Return the slices of a line that are `shift` pixels after others, and of those others."""
    if shift >= 0:
        return slice(shift, None), slice(None, -shift or None)
    return slice(None, shift), slice(-shift, None)


@lru_cache(maxsize=16)
def _colour(rgb: tuple[float, float, float], channels: int, device: torch.device) -> Tensor:
    """Return a colour to mix into images, or its luma for images of one channel, [1, C, 1, 1]."""
    colour = torch.tensor(rgb).view(1, 3, 1, 1)
    return (luma(colour) if channels == 1 else colour).to(device)
