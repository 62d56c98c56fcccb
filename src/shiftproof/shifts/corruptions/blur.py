"""Blur: Gaussian, defocus, glass, motion and zoom."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shiftproof.keyed import Keyed
from shiftproof.shifts import kernels
from shiftproof.shifts.filters import border_index, correlate, gaussian_blur, motion_blur, weighted_rows
from shiftproof.shifts.image_shift import Shape
from shiftproof.shifts.levels import quantize_
from shiftproof.shifts.tables import Parameters

_BAND = 2**18
"""How many look-ups of a zoom blur are prepared at a time: few enough to stay in a processor's cache."""


class GaussianBlur:
    """Blur with a Gaussian."""

    def sample(self, rng: Keyed, shape: Shape, p: Parameters) -> None:
        """Draw nothing."""

    def apply(self, images: Tensor, drawn: None, p: Parameters) -> Tensor:
        """Filter."""
        return gaussian_blur(images, p.sigma)


class DefocusBlur:
    """Blur with a disk, the image of a point that a lens does not focus; edges are mirrored."""

    def sample(self, rng: Keyed, shape: Shape, p: Parameters) -> None:
        """Draw nothing."""

    def apply(self, images: Tensor, drawn: None, p: Parameters) -> Tensor:
        """Filter."""
        return correlate(images, disk(p.radius, p.alias))


@lru_cache(maxsize=64)
def disk(radius: float, alias: float) -> Tensor:
    """Return a disk with its steps smoothed by a Gaussian of `alias` pixels, [K, K] float64 with K odd.

    The disk is drawn on a grid of 17 pixels, or larger where it does not fit, and smoothed over 3 x 3 pixels (5 x 5
    above radius 8), with the grid mirrored at its border. Where the disk touches that border, as it does at radii 8
    and 10, its rim so counts a little more than once and images gain 1% of brightness: the published generator's way.
    """
    half, reach = (8, 1) if radius <= 8 else (math.ceil(radius), 2)
    axis = torch.arange(-half, half + 1, dtype=torch.float64)
    drawn = (axis[:, None] ** 2 + axis**2 <= radius**2).double()
    offsets = torch.arange(-reach, reach + 1)
    taps = torch.exp(-0.5 * (offsets.double() / alias) ** 2)
    smoothing = torch.zeros(len(axis), len(axis), dtype=torch.float64)
    index = border_index(torch.arange(len(axis))[:, None] + offsets, len(axis), "reflect-101")
    smoothing.scatter_add_(1, index, (taps / taps.sum()).expand(len(axis), -1))
    kernel = smoothing @ (drawn / drawn.sum()) @ smoothing.T
    # Rows and columns that add nothing at the precision of images only cost time.
    margin = int((kernel.amax(0) > 1e-9).nonzero().min())
    return kernel[margin : len(kernel) - margin, margin : len(kernel) - margin]


class GlassBlur:
    """Blur, exchange pixels with near neighbours, blur again: a view through frosted glass.

    The exchange visits pixels from the bottom right to the top left and copies onto each one a random neighbour, as
    that neighbour is by then.
    """

    rounds = True

    def sample(self, rng: Keyed, shape: Shape, p: Parameters) -> Tensor:
        """Draw the numbers that choose a neighbour, one for every exchange and pixel."""
        return rng.uniform(shape=(round(p.iterations), *shape.spatial))

    def apply(self, images: Tensor, unit: Tensor, p: Parameters) -> Tensor:
        """Blur, truncate as the published generator does, exchange and blur."""
        blurred = quantize_(gaussian_blur(images, p.sigma))
        return gaussian_blur(exchange(blurred, unit, round(p.delta)), p.sigma)


def exchange(images: Tensor, unit: Tensor, delta: int) -> Tensor:
    """Return images, N x C x H x W, after local exchanges; `unit` and `delta` as for `exchange_sources`."""
    if kernels.usable(images):
        from shiftproof.shifts.kernels import blur

        return blur.exchange(images, unit, delta)
    source = exchange_sources(unit, delta)
    return images.flatten(2).gather(2, source[:, None].expand(-1, images.shape[1], -1)).view(images.shape)


def exchange_sources(unit: Tensor, delta: int) -> Tensor:
    """Return the pixel whose value ends at each pixel after local exchanges, [N, H * W] int64.

    `unit` holds numbers in [0, 1), [N, exchanges, H, W], that choose offsets in [-delta, delta) for both axes. A value
    is found by following look-ups until one meets a pixel that was not visited before; pointer doubling follows all
    of these paths at once.
    """
    count, _, height, width = unit.shape
    total = count * height * width
    whole = torch.int32 if 2 * total < 2**31 else torch.int64
    # Node i < total is pixel i after the exchange; node total + i is pixel i before it, where paths end.
    nodes = torch.arange(2 * total, dtype=whole, device=unit.device)
    jumped = nodes.clone()
    pixels = source = nodes[:total].clone()
    # A pixel further on has been visited already, so a path goes on from there; any other has its old value still.
    offsets = torch.arange(-delta, delta, dtype=whole, device=unit.device)
    step = (offsets[:, None] * width + offsets).flatten()
    step = torch.where(step > 0, step, step + total)
    scanned = (slice(None), slice(delta + 1, height - delta + 1), slice(delta + 1, width - delta + 1))
    for choice in unit.unbind(1):
        # Numbers are at most 1 - 2**-24, so the product rounds to less than the number of choices.
        chosen = choice[scanned].mul(len(step)).to(whole)
        steps = torch.full((count, height, width), total, dtype=whole, device=unit.device)
        steps[scanned] = step.index_select(0, chosen.flatten()).view(chosen.shape)
        torch.add(steps.flatten(), pixels, out=nodes[:total])
        for _ in range(_doublings(height * width, delta)):
            torch.index_select(nodes, 0, nodes[:total], out=jumped[:total])
            nodes, jumped = jumped, nodes
        source = source.repeat(2).index_select(0, nodes[:total])
    first = torch.arange(count, device=unit.device)[:, None] * (height * width)
    return source.view(count, -1) - first


def _doublings(pixels: int, delta: int) -> int:
    """Return how many doublings end every path of an image, but for one image in 10**10.

    A path goes on with the chance that a neighbour has been visited, so long paths are rare.
    """
    onward = (delta - 1) * (2 * delta + 1) / (2 * delta) ** 2
    if onward == 0:
        return 0
    longest = math.log(1e-10 / pixels) / math.log(onward)
    return math.ceil(math.log2(longest))


class MotionBlur:
    """Smear in a random direction within 45 degrees of the horizontal."""

    def sample(self, rng: Keyed, shape: Shape, p: Parameters) -> Tensor:
        """Draw one angle per image, in degrees."""
        return rng.uniform(-45.0, 45.0)

    def apply(self, images: Tensor, angle: Tensor, p: Parameters) -> Tensor:
        """Filter."""
        return motion_blur(images, angle, p.radius, p.sigma)


class ZoomBlur:
    """The mean of an image and of its enlargements by 1, 1 + step, ... below stop, as when zooming during exposure.

    Enlargement 1 is the image too, which so counts twice.
    """

    def sample(self, rng: Keyed, shape: Shape, p: Parameters) -> None:
        """Draw nothing."""

    def apply(self, images: Tensor, drawn: None, p: Parameters) -> Tensor:
        """Sum the four pixels of every enlargement that make a pixel: the same pixels and weights in all images."""
        count, channels, height, width = images.shape
        if kernels.usable(images):
            from shiftproof.shifts.kernels import blur

            return blur.sum_zoomed(images, _zoom_scales(height, width, p.stop, p.step, images.device))
        rows, row_weights, columns, column_weights = _zoom_lookups(height, width, p.stop, p.step, images.device)
        pixels = images.view(count * channels, -1).T.contiguous()
        zoomed = torch.empty_like(images)
        band = max(1, _BAND // columns.numel())
        for top in range(0, height, band):
            lines = slice(top, min(top + band, height))
            index = (rows[lines, None] + columns).flatten(0, 1)
            weights = (row_weights[lines, None] * column_weights).flatten(0, 1)
            values = weighted_rows(pixels, index, weights).T
            zoomed[:, :, lines] = values.view(count, channels, -1, width)
        return zoomed


@lru_cache(maxsize=32)
def _zoom_lookups(height: int, width: int, stop: float, step: float, device: torch.device) -> tuple[Tensor, ...]:
    """Return rows (as positions of their first pixels) with weights, [H, 4K], and columns with weights, [W, 4K].

    Pixel (h, w) is the sum over 4K look-ups of pixel rows[h] + columns[w] times both weights.
    """
    zooms, share = _zooms(stop, step)
    rows, row_weights = zoom_taps(height, zooms)
    columns, column_weights = zoom_taps(width, zooms)
    vertical, horizontal = (rows * width, row_weights * share[:, None]), (columns, column_weights)
    lookups = []
    for (pixels, weights), across in ((vertical, 3), (horizontal, 2)):
        # [side, K, 2] -> [side, K, 2, 2]: the same for both pixels across.
        for taps, kind in ((pixels, torch.int32), (weights, torch.float32)):
            lookups.append(taps.unsqueeze(across).expand(-1, -1, 2, 2).flatten(1).to(device, kind))
    return tuple(lookups)


@lru_cache(maxsize=32)
def _zoom_scales(height: int, width: int, stop: float, step: float, device: torch.device) -> Tensor:
    """Return where enlargements read, [K, 5]: first row and distance of rows, the same of columns, and the share."""
    zooms, share = _zooms(stop, step)
    places = [zoom_positions(side, zooms) for side in (height, width)]
    scales = [scale for place in places for scale in (place[0], place[1] - place[0])]
    return torch.stack([*scales, share], dim=1).to(device, torch.float32)


def _zooms(stop: float, step: float) -> tuple[NDArray[np.float64], Tensor]:
    """Return the enlargements and their shares in the mean, [K] each."""
    zooms = np.arange(1.0, stop, step)
    return zooms, torch.from_numpy(np.where(zooms == 1.0, 2.0, 1.0) / (len(zooms) + 1))


def zoom_taps(side: int, zooms: NDArray[np.float64]) -> tuple[Tensor, Tensor]:
    """Return the two pixels around each pixel of an enlarged line, and their weights: two of [side, K, 2]."""
    position = zoom_positions(side, zooms)
    lower = position.floor().clamp_(max=side - 2)
    after = position - lower
    return torch.stack([lower, lower + 1], dim=2).long(), torch.stack([1 - after, after], dim=2)


def zoom_positions(side: int, zooms: NDArray[np.float64]) -> Tensor:
    """Return where the pixels of an enlarged line lie in the line, [side, K].

    A line is cut to its middle side / zoom pixels, stretched so that end pixels fall on end pixels, and trimmed.
    """
    crop = np.ceil(side / zooms)
    size = np.rint(crop * zooms)
    start, trim = (side - crop) // 2, (size - side) // 2
    return torch.from_numpy(start + (np.arange(side)[:, None] + trim) * (crop - 1) / (size - 1))
