"""C-bar blurs: motion about the centre, and colours that a lens magnifies by different amounts (Mintun et al. 2021)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from shiftproof.keyed import Keyed
from shiftproof.shifts import splines
from shiftproof.shifts.fields import pixel_axes
from shiftproof.shifts.filters import weighted_rows
from shiftproof.shifts.image_shift import Shape
from shiftproof.shifts.tables import Parameters

_EXPOSURES = 21
_MARGIN = (1, 2, 1, 2)
"""Mirrored coefficients left, right, above and below of an image, which a spline at its border takes."""


class CircularMotionBlur:
    """Average 21 rotations about the centre, up to 15 degrees either way at strength 10, weighted exp(-2 t**2).

    Rotated images are cubic splines; outside, the border pixels go on, darkened by the share `outside`. All images are
    blurred alike, so every output pixel is a weighted sum of rows of a matrix with one column per image and channel.
    """

    def sample(self, rng: Keyed, shape: Shape, p: Parameters) -> None:
        """Draw nothing."""

    def apply(self, images: Tensor, drawn: None, p: Parameters) -> Tensor:
        """Add up the rotations."""
        coefficients = F.pad(splines.coefficients(images), _MARGIN, mode="reflect")
        matrix = coefficients.flatten(2).flatten(0, 1).T.contiguous()
        moments = [2 * exposure / (_EXPOSURES - 1) - 1 for exposure in range(_EXPOSURES)]
        weights = [math.exp(-2 * moment**2) for moment in moments]
        blurred = matrix.new_zeros(images.shape[2] * images.shape[3], matrix.shape[1])
        for moment, weight in zip(moments, weights, strict=True):
            angle = math.radians(moment * p.strength / 10 * 15)
            light = weight / sum(weights)
            index, share = _rotation(images, angle, light, light * (1 - p.outside))
            blurred.add_(weighted_rows(matrix, index, share))
        return blurred.T.reshape(images.shape)


def _rotation(images: Tensor, angle: float, inside: float, outside: float) -> tuple[Tensor, Tensor]:
    """Return the rows of padded coefficients that rotated images take at each pixel, [H * W, 16], and their weights.

    The weights of a pixel sum to `inside` where it comes from inside the image, to `outside` elsewhere.
    """
    height, width = images.shape[2:]
    middle_row, middle_column = (height - 1) / 2, (width - 1) / 2
    down, across = pixel_axes(images, torch.float64)
    down, across = down - middle_row, across - middle_column
    row = (down * math.cos(angle) + across * math.sin(angle)).add_(middle_row).flatten()
    column = (across * math.cos(angle) - down * math.sin(angle)).add_(middle_column).flatten()
    within = (row >= 0) & (row <= height - 1) & (column >= 0) & (column <= width - 1)
    near_row, near_column = row.clamp_(0, height - 1).floor(), column.clamp_(0, width - 1).floor()
    # The margin before the image makes the first of four coefficients the one at the pixel's own index.
    before, after = _MARGIN[:2]
    pitch = before + width + after
    four = torch.arange(4, device=images.device)
    index = (near_row * pitch + near_column).long()[:, None] + (four[:, None] * pitch + four).flatten()
    across_share = splines.weights((column - near_column).float())
    down_share = splines.weights((row - near_row).float()) * torch.where(within, inside, outside)[:, None]
    return index, (down_share[:, :, None] * across_share[:, None, :]).flatten(1)


class TransverseChromaticAbberation:
    """Magnify the channels by 1, 1 + s / 2 and 1 + s, in random order, where s is 0.5 at strength 10.

    The published interpolation is a cubic spline with the pixels as its coefficients, which smooths even the channel
    that keeps its size; `softness` 0 turns that off. Its result is rounded to the nearest level.
    """

    def sample(self, rng: Keyed, shape: Shape, p: Parameters) -> Tensor:
        """Draw the rank of each channel's magnification, 0 to 2, [N, 3]; of one channel, the first counts."""
        return rng.permutation(3)

    def apply(self, images: Tensor, ranks: Tensor, p: Parameters) -> Tensor:
        """Bring the channels into the order of magnification, magnify, and bring them back."""
        image = torch.arange(len(images), device=images.device)[:, None]
        ordered = images.expand(-1, 3, -1, -1)[image, ranks.argsort(dim=1)]
        scale = p.strength / 10 * 0.5
        zooms = (1.0, 1 + scale / 2, 1 + scale)
        planes = [_magnify(plane, zoom, p.softness) for plane, zoom in zip(ordered.unbind(1), zooms, strict=True)]
        return torch.stack(planes, dim=1)[image, ranks[:, : images.shape[1]]].add_(0.5 / 255)


def _magnify(planes: Tensor, zoom: float, softness: float) -> Tensor:
    """Return the middle of magnified planes, [N, H, W]; the first and last pixel of both sizes fall together."""
    for axis, form in ((2, (-1,)), (1, (-1, 1))):
        side = planes.shape[axis]
        larger = round(side * zoom)
        position = torch.arange(side, device=planes.device, dtype=torch.float64) + (larger - side) // 2
        index, share = splines.taps(position * ((side - 1) / (larger - 1)), side, softness)
        terms = [planes.index_select(axis, tap) for tap in index.unbind(1)]
        planes = torch.zeros_like(planes)
        for term, weight in zip(terms, share.float().unbind(1), strict=True):
            planes.add_(term.mul_(weight.view(form)))
    return planes
