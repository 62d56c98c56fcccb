"""What can be measured of an image without knowing what it shows: brightness, contrast, sharpness and the like."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

EXTREMES: Mapping[str, tuple[str, str]] = {
    "brightness": ("dark", "bright"),
    "contrast": ("flat", "contrasty"),
    "sharpness": ("blurred", "sharp"),
    "noise": ("smooth", "noisy"),
    "colourfulness": ("pale", "colourful"),
    "entropy": ("plain", "detailed"),
    "saturation": ("unclipped", "clipped"),
    "pixels": ("small", "large"),
    "aspect": ("tall", "wide"),
    "bytes per pixel": ("heavily compressed", "lightly compressed"),
}
"""What images are called whose statistic is lowest, and highest."""

_LUMA = (0.299, 0.587, 0.114)
_LAPLACIAN = ((0.0, 1.0, 0.0), (1.0, -4.0, 1.0), (0.0, 1.0, 0.0))
_NOISE = ((1.0, -2.0, 1.0), (-2.0, 4.0, -2.0), (1.0, -2.0, 1.0))
_CLIPPED = 1.5 / 255


def image_statistics(images: Tensor) -> dict[str, NDArray[np.float64]]:
    """Compute statistics of images [N, C, H, W] in [0, 1], each [N].

    brightness is the mean of luma (ITU-R 601), contrast its standard deviation, entropy that of its 256 levels in bits,
    sharpness the logarithm of the variance of its Laplacian (low if blurred), noise the standard deviation estimated
    with Immerkaer's mask (1996), colourfulness that of Hasler and Suesstrunk (2003), and saturation the share of values
    that are black or white.

    Args:
        images: Images [N, C, H, W] in [0, 1].

    >>> grey = torch.full((1, 3, 8, 8), 0.5)
    >>> {name: round(float(value[0]), 3) for name, value in image_statistics(grey).items() if name != "sharpness"}
    {'brightness': 0.5, 'contrast': 0.0, 'noise': 0.0, 'colourfulness': 0.0, 'entropy': 0.0, 'saturation': 0.0}
    """
    images = images.double()
    colours = images if images.shape[1] == 3 else images.expand(-1, 3, -1, -1)
    red, green, blue = colours.unbind(1)
    luma = sum(weight * channel for weight, channel in zip(_LUMA, (red, green, blue), strict=True))
    assert isinstance(luma, Tensor)
    made = {
        "brightness": luma.mean((1, 2)),
        "contrast": luma.flatten(1).std(1, correction=0),
        "sharpness": (_filtered(luma, _LAPLACIAN).flatten(1).var(1, correction=0) + 1e-8).log(),
        "noise": _filtered(luma, _NOISE).abs().mean((1, 2)) * (np.pi / 2) ** 0.5 / 6,
        "colourfulness": _colourfulness(red - green, (red + green) / 2 - blue),
        "entropy": _entropy(luma),
        "saturation": ((images < _CLIPPED) | (images > 1 - _CLIPPED)).double().mean((1, 2, 3)),
    }
    return {name: values.cpu().numpy() for name, values in made.items()}


def _filtered(luma: Tensor, mask: tuple[tuple[float, ...], ...]) -> Tensor:
    return F.conv2d(luma[:, None], luma.new_tensor(mask)[None, None])[:, 0]


def _colourfulness(red_green: Tensor, yellow_blue: Tensor) -> Tensor:
    spread = sum(each.flatten(1).var(1, correction=0) for each in (red_green, yellow_blue))
    mean = sum(each.mean((1, 2)) ** 2 for each in (red_green, yellow_blue))
    assert isinstance(spread, Tensor)
    assert isinstance(mean, Tensor)
    return spread.sqrt() + 0.3 * mean.sqrt()


def _entropy(luma: Tensor) -> Tensor:
    """Return the entropy of the levels of each image, in bits."""
    levels = (luma * 255).round().long().clamp(0, 255).flatten(1)
    levels = levels + 256 * torch.arange(len(levels), device=levels.device)[:, None]
    shares = torch.bincount(levels.flatten(), minlength=256 * len(levels)).view(-1, 256) / levels.shape[1]
    bits: Tensor = torch.special.entr(shares).sum(1).double() / math.log(2)
    return bits
