"""Baseline JPEG with 4:2:0 chroma: out of [0, 255] and back, by Pillow's encoder or by the same maths in tensors.

The tensor codec skips the entropy coding, which loses nothing, and follows libjpeg elsewhere (ITU-T T.81): the integer
colour transform, 2 x 2 averages of chroma, an 8 x 8 cosine transform, division by the quality's table, and triangle
filtering ("fancy upsampling") of chroma on the way back. It differs from the encoder only where libjpeg's fixed-point
transform rounds a coefficient the other way.
"""

from __future__ import annotations

import io
from functools import lru_cache

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from shiftproof.keyed import over_threads
from shiftproof.shifts import kernels

# The tables of T.81, Annex K, at quality 50.
_LUMA = (
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)
_CHROMA = (
    (17, 18, 24, 47, 99, 99, 99, 99),
    (18, 21, 26, 66, 99, 99, 99, 99),
    (24, 26, 56, 99, 99, 99, 99, 99),
    (47, 66, 99, 99, 99, 99, 99, 99),
    *[(99,) * 8] * 4,
)

_FIXED = 16
"""Bits after the point in libjpeg's colour transform; the rows below are rounded to them."""
_TO_YCC = ((19595, 38470, 7471), (-11059, -21709, 32768), (32768, -27439, -5329))
_TO_RGB = ((0, 91881), (-22554, -46802), (116130, 0))
_HALF = 1 << (_FIXED - 1)


def compress_pillow(levels: Tensor, quality: int) -> Tensor:
    """Return uint8 images on the CPU, N x C x H x W, as Pillow's JPEG encoder and decoder leave them.

    Images are spread over threads, as many as torch uses: the codec runs without the interpreter lock.
    """
    count, channels, height, width = levels.shape
    size, mode = (width, height), "L" if channels == 1 else "RGB"
    planes, decoded = levels.contiguous().numpy(), np.empty(levels.shape, np.uint8)

    def work(row: int) -> None:
        file = io.BytesIO()
        bands = [Image.frombuffer("L", size, plane, "raw", "L", 0, 1) for plane in planes[row]]
        Image.merge(mode, bands).save(file, "JPEG", quality=quality)
        # What the file says is known, so it is not opened as one but decoded at once.
        image = Image.frombytes(mode, size, file.getvalue(), "jpeg", mode, "")
        for plane, band in zip(decoded[row], mode, strict=True):
            plane[:] = np.frombuffer(image.tobytes("raw", band), np.uint8).reshape(plane.shape)

    over_threads(work, count, cost=height * width)
    return torch.from_numpy(decoded)


def compress_tensor(levels: Tensor, quality: int) -> Tensor:
    """Return uint8 images, N x C x H x W, after the losses of baseline JPEG, on any device."""
    height, width = levels.shape[2:]
    if kernels.usable(levels):
        return _compress_fused(levels.contiguous(), quality)
    # Edge columns are repeated to whole blocks, of 16 pixels for the sake of halved chroma; rows to whole pairs.
    padded = _repeat_edges(levels.to(torch.int32), -height % 2, -width % 16)
    if levels.shape[1] == 1:
        return _transform_and_quantize(padded, _LUMA, quality)[..., :height, :width].to(torch.uint8)
    luma, chroma = _to_luma_chroma(padded)
    luma = _transform_and_quantize(luma, _LUMA, quality)[..., :height, :width]
    chroma = _transform_and_quantize(_halve(chroma), _CHROMA, quality)
    chroma = _double(chroma[..., : -(-height // 2), : -(-width // 2)])[..., :height, :width]
    return _to_rgb(luma, chroma)


def _compress_fused(levels: Tensor, quality: int) -> Tensor:
    """Do the same with kernels, on CUDA."""
    from shiftproof.shifts.kernels import jpeg as fused

    transform = _block_transform(levels.device)

    def lossy(blocks: Tensor, table: tuple[tuple[int, ...], ...]) -> Tensor:
        coefficients = fused.quantize_(blocks @ transform.T, _steps(table, quality, levels.device))
        return coefficients @ transform

    luma = lossy(fused.luma_blocks(levels), _LUMA)
    chroma = lossy(fused.chroma_blocks(levels), _CHROMA) if levels.shape[1] == 3 else None
    return fused.assemble(luma, chroma, *levels.shape[2:])


def quantization_table(table: tuple[tuple[int, ...], ...], quality: int) -> list[list[int]]:
    """Return a base table scaled to a quality in 1..100, by libjpeg's convention."""
    scale = 5000 // quality if quality < 50 else 200 - 2 * quality
    return [[min(max((step * scale + 50) // 100, 1), 255) for step in row] for row in table]


def _to_luma_chroma(rgb: Tensor) -> tuple[Tensor, Tensor]:
    """Return Y [N, 1, H, W] and (Cb, Cr) [N, 2, H, W] in 0..255, int32."""
    planes = [_weighted(rgb, row) for row in _TO_YCC]
    luma = planes[0].add_(_HALF).bitwise_right_shift_(_FIXED)
    # Chroma is centred on 128; libjpeg rounds its halves down.
    chroma = torch.cat(planes[1:], dim=1).add_((128 << _FIXED) + _HALF - 1).bitwise_right_shift_(_FIXED)
    return luma, chroma


def _to_rgb(luma: Tensor, chroma: Tensor) -> Tensor:
    """Return RGB as uint8, N x 3 x H x W."""
    chroma = chroma - 128
    change = torch.cat([_weighted(chroma, row) for row in _TO_RGB], dim=1)
    return change.add_(_HALF).bitwise_right_shift_(_FIXED).add_(luma).clamp_(0, 255).to(torch.uint8)


def _weighted(planes: Tensor, weights: tuple[int, ...]) -> Tensor:
    """Return a weighted sum of planes, N x len(weights) x H x W -> N x 1 x H x W."""
    total = planes[:, :1] * weights[0]
    for channel, weight in enumerate(weights[1:], start=1):
        if weight:
            total.add_(planes[:, channel : channel + 1], alpha=weight)
    return total


def _halve(planes: Tensor) -> Tensor:
    """Average 2 x 2 pixels; halves are rounded down in even columns and up in odd ones, as libjpeg does."""
    total = planes[..., ::2, :] + planes[..., 1::2, :]
    total = total[..., ::2] + total[..., 1::2]
    bias = 1 + torch.arange(total.shape[-1], device=planes.device, dtype=torch.int32) % 2
    return total.add_(bias).bitwise_right_shift_(2)


def _double(planes: Tensor) -> Tensor:
    """Double both sides with the triangle filter (3/4, 1/4), in quarters first and rounded once."""
    above, below = _shifted(planes, -2)
    rows = torch.stack([3 * planes + above, 3 * planes + below], dim=3).flatten(2, 3)
    before, after = _shifted(rows, -1)
    columns = torch.stack([3 * rows + before + 8, 3 * rows + after + 7], dim=4)
    return columns.flatten(3, 4).bitwise_right_shift_(4)


def _repeat_edges(planes: Tensor, below: int, right: int) -> Tensor:
    """Repeat the last row and the last column."""
    planes = torch.cat([planes, planes[..., -1:].expand(-1, -1, -1, right)], dim=3)
    return torch.cat([planes, planes[..., -1:, :].expand(-1, -1, below, -1)], dim=2)


def _shifted(planes: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Return each value's neighbour before and after it along a dimension; at the ends, the value itself."""
    size = planes.shape[dim]
    first, last = planes.narrow(dim, 0, 1), planes.narrow(dim, size - 1, 1)
    before = torch.cat([first, planes.narrow(dim, 0, size - 1)], dim)
    after = torch.cat([planes.narrow(dim, 1, size - 1), last], dim)
    return before, after


def _transform_and_quantize(planes: Tensor, table: tuple[tuple[int, ...], ...], quality: int) -> Tensor:
    """Take 8 x 8 blocks through the cosine transform, the table and back: int32 in 0..255.

    Rows are repeated to whole blocks and stay: N x C x H x W -> N x C x (8 * ceil(H / 8)) x W.
    The products are made in double precision, whose error no rounding below can see: any order of summation, and so
    any batch size, gives the same integers.
    """
    transform, steps = _block_transform(planes.device), _steps(table, quality, planes.device)
    planes = _repeat_edges(planes, -planes.shape[2] % 8, 0)
    n, channels, height, width = planes.shape
    blocks = (planes - 128).view(n, channels, height // 8, 8, width // 8, 8).transpose(3, 4).double()
    coefficients = (blocks.reshape(-1, 64) @ transform.T).mul_(8.0).round_()  # libjpeg keeps three fractional bits
    sign = coefficients.sign()
    levels = coefficients.abs_().add_(4.0 * steps).div_(8.0 * steps).floor_().mul_(sign)
    # Halves, which flat blocks often meet, are rounded up.
    restored = (levels.mul_(steps) @ transform).add_(128.5 + 2.0**-20).floor_().clamp_(0.0, 255.0).to(torch.int32)
    return restored.view(n, channels, height // 8, width // 8, 8, 8).transpose(3, 4).reshape(planes.shape)


@lru_cache(maxsize=8)
def _block_transform(device: torch.device) -> Tensor:
    """Return the orthonormal 8 x 8 cosine transform as a matrix on flattened blocks, [64, 64] double."""
    index = torch.arange(8, dtype=torch.float64)
    line = torch.cos(torch.pi * index[:, None] * (2 * index + 1) / 16) / 2
    line[0] /= 2**0.5
    return torch.kron(line, line).to(device)


@lru_cache(maxsize=256)
def _steps(table: tuple[tuple[int, ...], ...], quality: int, device: torch.device) -> Tensor:
    """Return the quantisation steps of a flattened block, [64] double."""
    return torch.tensor(quantization_table(table, quality), dtype=torch.float64, device=device).flatten()
