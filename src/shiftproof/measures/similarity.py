"""Structural similarity of images (Wang et al. 2004), batched; equal to scikit-image's with its default settings."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

WINDOW = 7
"""The side of the square over which local means and variances are taken, with equal weights."""

AT_ONCE = {"cpu": 2**17, "cuda": 2**25}
"""Values that are compared at a time: what is computed of them stays in a processor's cache, and fills a GPU."""

_C1, _C2 = 0.01**2, 0.03**2  # for values in [0, 1]
_PIXELS = WINDOW * WINDOW


def structural_similarity(images: Tensor, others: Tensor) -> Tensor:
    """Return the mean structural similarity of each pair of images, [N] float64, from -1 to 1 (equal).

    Both are [N, C, H, W] in [0, 1] with sides of at least 7 pixels. Local means and (sample) variances are taken over
    every 7 x 7 window that lies within the image; the index is averaged over windows and channels.
    """
    return _compared(_similarity, images, others)


def level_similarity(levels: Tensor, others: Tensor) -> Tensor:
    """Return the same of stored images, [N, C, H, W] as whole float32 numbers 0..255: exact sums, in a third the time.

    >>> levels = torch.arange(64.0).reshape(1, 1, 8, 8)
    >>> level_similarity(levels, levels).tolist()
    [1.0]
    """
    return _compared(_level_similarity, levels, others)


def _compared(compare: Callable[[Tensor, Tensor], Tensor], images: Tensor, others: Tensor) -> Tensor:
    """Compare images with others, so many at a time as the device is best at."""
    if images.shape != others.shape or images.ndim != 4 or min(images.shape[2:]) < WINDOW:
        raise ValueError(
            f"structural similarity needs two batches N x C x H x W of one shape with sides of at least {WINDOW}; "
            f"got {tuple(images.shape)} and {tuple(others.shape)}"
        )
    most = AT_ONCE.get(images.device.type, AT_ONCE["cpu"])
    size = max(1, most // images[0].numel()) if len(images) else 1
    places = range(0, max(1, len(images)), size)
    return torch.cat([compare(images[at : at + size], others[at : at + size]) for at in places])


def _similarity(images: Tensor, others: Tensor) -> Tensor:
    # In double precision: a variance is the small difference of two large means.
    x, y = images.double(), others.double()
    mean_x, mean_y = _box_sum(x) / _PIXELS, _box_sum(y) / _PIXELS
    unbiased = _PIXELS / (_PIXELS - 1)
    covariance = (_box_sum(x * y) / _PIXELS - mean_x * mean_y) * unbiased
    variances = (_box_sum(x * x + y * y) / _PIXELS - mean_x.square() - mean_y.square()) * unbiased
    index = (2 * mean_x * mean_y + _C1) * (2 * covariance + _C2)
    index /= (mean_x.square() + mean_y.square() + _C1) * (variances + _C2)
    return index.mean(dim=(1, 2, 3))


def _level_similarity(x: Tensor, y: Tensor) -> Tensor:
    # Sums of whole numbers below 2^24, which float32 holds, and differences of products below 2^31, which int32 holds:
    # differences are exact, and only then rounded to float32.
    sum_x, sum_y, products, squares = (_box_sum(each).int() for each in (x, y, x * y, (x * x).addcmul_(y, y)))
    of_means, of_squares = sum_x * sum_y, (sum_x * sum_x).addcmul_(sum_y, sum_y)
    covariance = products.mul_(_PIXELS).sub_(of_means).float().mul_(2).add_(_C2 * 255**2 * _PIXELS * (_PIXELS - 1))
    variances = squares.mul_(_PIXELS).sub_(of_squares).float().add_(_C2 * 255**2 * _PIXELS * (_PIXELS - 1))
    index = of_means.float().mul_(2).add_(_C1 * 255**2 * _PIXELS**2).mul_(covariance)
    index /= of_squares.float().add_(_C1 * 255**2 * _PIXELS**2).mul_(variances)
    return index.mean(dim=(1, 2, 3), dtype=torch.float64)


def _box_sum(values: Tensor) -> Tensor:
    """Return the sum over every window that lies within the image, [N, C, H - 6, W - 6]."""
    for dimension in (2, 3):
        length = values.shape[dimension] - WINDOW + 1
        pairs = values.narrow(dimension, 0, length + 5) + values.narrow(dimension, 1, length + 5)
        total = pairs.narrow(dimension, 0, length) + pairs.narrow(dimension, 2, length)
        total += pairs.narrow(dimension, 4, length)  # six of seven, in half as many additions
        total += values.narrow(dimension, 6, length)
        values = total
    return values
