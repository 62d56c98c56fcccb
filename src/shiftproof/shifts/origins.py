"""Where the pixels of moved images come from, in whole pixels: what moves a label map as its image was moved.

Origins are int64 [N, H, W]: for every pixel the place, row * W + column, of the pixel before the move whose content it
shows, or OUTSIDE where that lies beyond the image, whatever the image itself shows there.
"""

from __future__ import annotations

import torch
from torch import Tensor

OUTSIDE = -1


def unmoved(count: int, height: int, width: int, device: torch.device) -> Tensor:
    """Return the origins of images that stay as they are."""
    return torch.arange(height * width, device=device).view(height, width).repeat(count, 1, 1)


def nearest(rows: Tensor, columns: Tensor, height: int, width: int) -> Tensor:
    """Return the origins of points of the image, which broadcast to [N, H, W]; pixels have whole rows and columns.

    A point that is NaN is outside.

    >>> nearest(torch.tensor([[[0.0], [0.6]]]), torch.tensor([0.4, 1.6]), 2, 2)
    tensor([[[ 0, -1],
             [ 2, -1]]])
    """
    row, column = (points.double().add(0.5).floor() for points in (rows, columns))
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    return torch.where(inside, row * width + column, OUTSIDE).long()


def in_turn(first: Tensor, second: Tensor) -> Tensor:
    """Return the origins after two moves, one after the other."""
    return take(first, second, OUTSIDE)


def take(values: Tensor, origins: Tensor, outside: float) -> Tensor:
    """Return values of pixels, [N, H, W], moved to where the origins say, with `outside` where they lie beyond."""
    moved = values.flatten(1).gather(1, origins.flatten(1).clamp_min(0)).view_as(values)
    return moved.masked_fill_(origins == OUTSIDE, outside)
