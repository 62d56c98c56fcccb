"""Linear filters for batches of images: Gaussian and motion blur, correlation with a kernel, weighted look-ups.

Every filter gives an image the same bits in any batch. Convolutions and matrix products choose their algorithm by
batch size, so they are not used: `weighted_rows` sums in the order of its index, and Fourier transforms act on each
plane by itself. On CUDA a kernel makes all of these sums directly.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from shiftproof.shifts import kernels

Border = Literal["nearest", "reflect", "reflect-101"]
"""How an image goes on beyond its edge: `aaa|abc|ccc`, `cba|abc|cba` or `.cb|abc|ba.`."""

_DIRECT = 2
"""Kernels that reach this many pixels are quicker as plain sums than by Fourier transform."""


def weighted_rows(table: Tensor, index: Tensor, weights: Tensor) -> Tensor:
    """Return weighted sums of rows of a table: [R, D], [M, K] whole numbers, [M, K] -> [M, D].

    Summing an embedding bag is this very operation, in one pass over memory and in the order of the index.
    """
    return F.embedding_bag(index, table, mode="sum", per_sample_weights=weights)


def border_index(position: Tensor, side: int, mode: Border) -> Tensor:
    """Return which of the pixels 0..side-1 stands at each position, inside the image or beyond its edge."""
    if mode == "nearest":
        return position.clamp(0, side - 1)
    # Mirrored images repeat: every 2 * side pixels with edge pixels doubled, two pixels sooner without.
    shared = 1 if mode == "reflect-101" else 0
    period = max(2 * (side - shared), 1)
    position = position.remainder(period)
    return torch.where(position < side, position, period - 1 + shared - position)


def gaussian_blur(images: Tensor, sigma: float, *, mode: Border = "nearest", truncate: float = 4.0) -> Tensor:
    """Blur with a Gaussian of `sigma` pixels cut off at `truncate` sigmas, N x C x H x W -> N x C x H x W.

    The result is that of `scipy.ndimage.gaussian_filter` over height and width.
    """
    radius = int(truncate * sigma + 0.5)
    if radius == 0:
        return images.clone()
    if _summable(images, radius, mode):
        offsets, still, weights = _gaussian_taps(sigma, radius, images.device)
        mixed = _sum_moved(images, offsets, still, weights, mode, (radius, 0))
        return _sum_moved(mixed, still, offsets, weights, mode, (0, radius))
    blurred = images
    for side in images.shape[2:]:
        # Rows are summed, then columns become rows.
        index, weights = _gaussian_window(side, sigma, radius, mode, images.device)
        blurred = _mix_rows(blurred.contiguous(), index, weights).transpose(2, 3)
    return blurred.contiguous()


def correlate(images: Tensor, kernel: Tensor) -> Tensor:
    """Correlate every channel with one kernel, mirroring images about their edge pixels.

    N x C x H x W, [K, K] -> N x C x H x W. K is odd, and the kernel must equal its own reflections in both axes, so
    that its Fourier transform is real.
    """
    height, width = images.shape[2:]
    reach = len(kernel) // 2
    if _summable(images, reach, "reflect-101"):
        return _sum_moved(images, *_kernel_taps(kernel, images.device), "reflect-101", (reach, reach))
    if reach <= _DIRECT:
        mirrored = _mirror(images, reach)
        total = torch.zeros_like(images)
        for row, weights in enumerate(kernel.tolist()):
            for column, weight in enumerate(weights):
                total.add_(mirrored[:, :, row : row + height, column : column + width], alpha=weight)
        return total
    size = _fast_length(height + 2 * reach), _fast_length(width + 2 * reach)
    centred = F.pad(kernel.to(images), (0, size[1] - len(kernel), 0, size[0] - len(kernel)))
    response = torch.fft.rfft2(centred.roll((-reach, -reach), dims=(0, 1))).real
    spectrum = torch.fft.rfft2(_mirror(images, reach), s=size).mul_(response)
    filtered: Tensor = torch.fft.irfft2(spectrum, s=size)
    return filtered[:, :, reach : reach + height, reach : reach + width]


def motion_blur(images: Tensor, angle: Tensor, radius: float, sigma: float) -> Tensor:
    """Smear each image in one direction, N x C x H x W and angles in degrees [N] -> N x C x H x W.

    A pixel becomes the mean of the 2 * radius + 1 pixels met when walking from it at the angle (0 is to the right, 90
    down) in steps of one pixel, with weights that fall off as one half of a Gaussian of `sigma` pixels. Edges are
    repeated.
    """
    height, width = images.shape[2:]
    steps, weights = _walk(round(radius), sigma, images.device)
    angle = torch.deg2rad(angle.double())
    dx, dy = (torch.ceil(steps * along[:, None] - 0.5).long() for along in (angle.cos(), angle.sin()))
    if _summable(images, 0, "nearest"):
        return _sum_moved(images, dy.int(), dx.int(), weights, "nearest", (len(steps) - 1, len(steps) - 1))

    # On a torus that is larger than the image by the longest walk, all walks of an image leave it on the same side:
    # the margin is filled from there.
    reach = len(steps) - 1
    size = _fast_length(height + reach), _fast_length(width + reach)
    extended = _extend(_extend(images, size[0], angle.sin() > 0, 2), size[1], angle.cos() > 0, 3)
    cells = dy.remainder(size[0]) * size[1] + dx.remainder(size[1])
    kernel = images.new_zeros(len(images), size[0] * size[1])
    kernel.scatter_add_(1, cells, weights.expand(len(images), -1))
    response = torch.fft.rfft2(kernel.view(-1, 1, *size)).conj()
    spectrum = torch.fft.rfft2(extended).mul_(response)
    smeared: Tensor = torch.fft.irfft2(spectrum, s=size)
    return smeared[:, :, :height, :width]


def _summable(images: Tensor, reach: int, mode: Border) -> bool:
    """Whether a kernel can sum images moved by up to `reach`: on CUDA, and mirrored at most once."""
    return kernels.usable(images) and (mode == "nearest" or reach < min(images.shape[2:]))


def _sum_moved(
    images: Tensor, down: Tensor, across: Tensor, weights: Tensor, mode: Border, reach: tuple[int, int]
) -> Tensor:
    """Return sums over k of images moved by down[k], across[k], at most `reach`, times weights[k]; on CUDA."""
    from shiftproof.shifts.kernels import filters

    return filters.sum_moved(images.contiguous(), down, across, weights, mode, reach)


@lru_cache(maxsize=32)
def _gaussian_taps(sigma: float, radius: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return the offsets of a Gaussian's taps, as many zeros, and their weights, [K] each."""
    offsets = torch.arange(-radius, radius + 1, dtype=torch.int32)
    weights = torch.exp(-0.5 * (offsets.double() / sigma) ** 2)
    weights = (weights / weights.sum()).float()
    return offsets.to(device), torch.zeros_like(offsets, device=device), weights.to(device)


@lru_cache(maxsize=32)
def _kernel_taps(kernel: Tensor, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return the moves down and across of a kernel's taps other than 0, and their weights, [K] each.

    The cache knows a kernel by its identity: kernels are cached themselves.
    """
    down, across = kernel.nonzero(as_tuple=True)
    reach, weights = len(kernel) // 2, kernel[down, across].float()
    return (down - reach).int().to(device), (across - reach).int().to(device), weights.to(device)


@lru_cache(maxsize=32)
def _walk(radius: int, sigma: float, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the steps of a walk, float64, and their weights: one half of a Gaussian, [2 * radius + 1] each."""
    steps = torch.arange(2 * radius + 1, dtype=torch.float64)
    weights = torch.exp(-0.5 * (steps / max(sigma, 1e-6)) ** 2)
    return steps.to(device), (weights / weights.sum()).float().to(device)


def _mix_rows(images: Tensor, index: Tensor, weights: Tensor) -> Tensor:
    """Replace row h of every plane by the sum of rows index[h], weighted; index and weights are [H, K]."""
    count, channels, height, width = images.shape
    planes = torch.arange(count * channels, device=images.device).mul_(height)
    rows = (planes[:, None, None] + index).view(-1, index.shape[1])
    mixed = weighted_rows(images.view(-1, width), rows, weights.repeat(count * channels, 1))
    return mixed.view(images.shape)


@lru_cache(maxsize=32)
def _gaussian_window(side: int, sigma: float, radius: int, mode: Border, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return which pixels of a line make each pixel of the blurred line, and their weights: two of [side, K]."""
    offsets = torch.arange(-radius, radius + 1)
    kernel = torch.exp(-0.5 * (offsets.double() / sigma) ** 2)
    kernel = (kernel / kernel.sum()).expand(side, -1)
    index = border_index(torch.arange(side)[:, None] + offsets, side, mode)
    if len(offsets) > side:
        # A kernel longer than the line meets pixels again and again: add up their weights.
        kernel = torch.zeros(side, side, dtype=torch.float64).scatter_add_(1, index, kernel)
        index = torch.arange(side).expand(side, -1)
    return index.to(device), kernel.float().contiguous().to(device)


def _mirror(images: Tensor, reach: int) -> Tensor:
    """Extend images on all sides by their mirror images about the edge pixels."""
    height, width = images.shape[2:]
    if reach < min(height, width):
        return F.pad(images, (reach, reach, reach, reach), mode="reflect")
    for dim, side in ((2, height), (3, width)):
        position = torch.arange(-reach, side + reach, device=images.device)
        images = images.index_select(dim, border_index(position, side, "reflect-101"))
    return images


def _extend(images: Tensor, size: int, forward: Tensor, dim: int) -> Tensor:
    """Lengthen one axis to `size` with copies of the last line where `forward`, of the first one elsewhere."""
    side = images.shape[dim]
    first, last = images.narrow(dim, 0, 1), images.narrow(dim, side - 1, 1)
    margin = torch.where(forward[:, None, None, None], last, first)
    shape = list(images.shape)
    shape[dim] = size - side
    return torch.cat([images, margin.expand(shape)], dim=dim)


def _fast_length(length: int) -> int:
    """Return the next length that Fourier transforms of real numbers like: even, with small prime factors."""
    from scipy.fft import next_fast_len

    return 2 * next_fast_len((length + 1) // 2)
