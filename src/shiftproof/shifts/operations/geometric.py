"""Geometric operations: batched affine maps with one set of parameters per image.

As in `enhance`, images are *levels* (whole numbers 0..255 in float32, N x C x H x W) and parameters are float64 tensors
[N]. Sampling is as in Pillow's `Image.transform`: pixel centres lie at half-integers, values are interpolated
bilinearly and truncated, and a pixel whose source lies outside the image is filled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from shiftproof.shifts.origins import nearest

Fill = Literal["black", "grey", "edge", "reflect"]
"""What lies outside the image: level 0, level 128, the nearest pixel, or the image mirrored at its border."""
Filled = Annotated[Fill, "What lies outside the image."]

_CONSTANTS = {"black": 0.0, "grey": 128.0}


class Affine(NamedTuple):
    """The source (a x + b y + c, d x + e y + f) of the output point (x, y); each coefficient is a tensor [N].

    Coordinates run from 0 to 1 across the image.
    """

    a: Tensor
    b: Tensor
    c: Tensor
    d: Tensor
    e: Tensor
    f: Tensor


def rotation(degrees: Tensor, height: int, width: int) -> Affine:
    """Return the map of `rotate`."""
    angle = torch.deg2rad(degrees)
    cosine, sine = angle.cos(), angle.sin()
    across, down = sine * (height / width), sine * (width / height)
    a, b, d, e = cosine, -across, down, cosine
    return Affine(a, b, (1 - a - b) / 2, d, e, (1 - d - e) / 2)


def translation(right: Tensor, down: Tensor, height: int, width: int) -> Affine:
    """Return the map of `translate`."""
    one, zero = torch.ones_like(right), torch.zeros_like(right)
    across, along = (right * width).round() / width, (down * height).round() / height
    return Affine(one, zero, -across, zero, one, -along)


def shearing_x(slope: Tensor, height: int, width: int) -> Affine:
    """Return the map of `shear_x`."""
    one, zero = torch.ones_like(slope), torch.zeros_like(slope)
    return Affine(one, -slope * (height / width), zero, zero, one, zero)


def shearing_y(slope: Tensor, height: int, width: int) -> Affine:
    """Return the map of `shear_y`."""
    one, zero = torch.ones_like(slope), torch.zeros_like(slope)
    return Affine(one, zero, zero, -slope * (width / height), one, zero)


def scaling(factor: Tensor, height: int, width: int) -> Affine:
    """Return the map of `scale`."""
    shrink, zero = 1.0 / factor, torch.zeros_like(factor)
    start = (1.0 - shrink) / 2
    return Affine(shrink, zero, start, zero, shrink, start)


def mirroring(like: Tensor, height: int, width: int) -> Affine:
    """Return the map of `flip`."""
    one, zero = torch.ones_like(like), torch.zeros_like(like)
    return Affine(-one, zero, one, zero, one, zero)


MAPS: Mapping[str, Callable[[Tensor, int, int], Affine]] = {
    "rotate": rotation,
    "translate_x": lambda share, height, width: translation(share, torch.zeros_like(share), height, width),
    "translate_y": lambda share, height, width: translation(torch.zeros_like(share), share, height, width),
    "shear_x": shearing_x,
    "shear_y": shearing_y,
    "scale": scaling,
    "flip": mirroring,
}
"""The maps of the operations by name, of a level [N] and the image's height and width."""


def rotate(levels: Tensor, degrees: Tensor, fill: Fill = "black") -> Tensor:
    """Rotate about the centre, counter-clockwise."""
    return affine(levels, rotation(degrees, *levels.shape[2:]), fill)


def translate_x(levels: Tensor, share: Tensor, fill: Fill = "black") -> Tensor:
    """Move to the right by a share of the width, rounded to whole pixels."""
    return translate(levels, share, torch.zeros_like(share), fill)


def translate_y(levels: Tensor, share: Tensor, fill: Fill = "black") -> Tensor:
    """Move down by a share of the height, rounded to whole pixels."""
    return translate(levels, torch.zeros_like(share), share, fill)


def translate(levels: Tensor, right: Tensor, down: Tensor, fill: Fill = "black") -> Tensor:
    """Move by shares of width and height, rounded to whole pixels."""
    return affine(levels, translation(right, down, *levels.shape[2:]), fill)


def shear_x(levels: Tensor, slope: Tensor, fill: Fill = "black") -> Tensor:
    """Move each row to the right by `slope` times its distance from the top."""
    return affine(levels, shearing_x(slope, *levels.shape[2:]), fill)


def shear_y(levels: Tensor, slope: Tensor, fill: Fill = "black") -> Tensor:
    """Move each column down by `slope` times its distance from the left."""
    return affine(levels, shearing_y(slope, *levels.shape[2:]), fill)


def scale(levels: Tensor, factor: Tensor, fill: Fill = "black") -> Tensor:
    """Magnify about the centre; factors under 1 shrink."""
    return affine(levels, scaling(factor, *levels.shape[2:]), fill)


def flip(levels: Tensor) -> Tensor:
    """Mirror left and right."""
    return levels.flip(3)


def affine_origins(source: Affine, height: int, width: int) -> Tensor:
    """Return where the pixels of images that `affine` samples come from, [N, H, W] as in `shifts.origins`."""
    device = source.a.device
    # In pixels, of which the centres lie at halves: moves by whole pixels stay whole.
    x = torch.arange(width, device=device, dtype=torch.float64) + 0.5
    y = torch.arange(height, device=device, dtype=torch.float64)[:, None] + 0.5
    a, b, c, d, e, f = (coefficient.double()[:, None, None] for coefficient in source)
    columns = a * x + b * (width / height) * y + c * width
    rows = d * (height / width) * x + e * y + f * height
    return nearest(rows - 0.5, columns - 0.5, height, width)


def affine(levels: Tensor, source: Affine, fill: Fill = "black") -> Tensor:
    """Sample every output pixel at its source point, bilinearly, and truncate to levels."""
    images, _, height, width = levels.shape
    device = levels.device
    x = (torch.arange(width, device=device, dtype=torch.float64) + 0.5) / width
    y = (torch.arange(height, device=device, dtype=torch.float64)[:, None] + 0.5) / height
    a, b, c, d, e, f = (coefficient[:, None, None] for coefficient in source)
    # grid_sample counts from -1 to 1. Sums of small tensors: only the grid itself has the size of an image.
    grid = torch.empty(images, height, width, 2, device=device)
    torch.add((2 * a * x - 1).float(), (2 * (b * y + c)).float(), out=grid[..., 0])
    torch.add((2 * d * x - 1).float(), (2 * (e * y + f)).float(), out=grid[..., 1])
    padding = "reflection" if fill == "reflect" else "border"
    sampled = F.grid_sample(levels, grid, mode="bilinear", padding_mode=padding, align_corners=False)
    # The grid is a float32: a level that its rounding missed by a little must not fall to the next one.
    sampled.add_(min(max(height, width) * 2.0**-13, 0.5)).floor_()
    if fill in _CONSTANTS:
        across, along = grid.abs_().unbind(3)
        inside = torch.maximum(across, along).le_(1.0)[:, None]  # 1 or 0: multiplying is faster than a masked fill
        sampled.mul_(inside).add_(1.0 - inside, alpha=_CONSTANTS[fill])
    return sampled
