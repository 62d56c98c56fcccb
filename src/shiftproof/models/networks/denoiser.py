"""A small network that takes noise off images, told how much there is (Salman et al. 2020: denoised smoothing)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTHS = (32, 80, 76)
"""Channels at full, half and a quarter of the size: 0.6 million weights, less than 1.2 MB in half precision."""


class Denoiser(nn.Module):
    """From noisy images to clean ones: a U-net of three levels whose output is added to its input.

    `sigmas` are the least and the largest standard deviation that it was trained for. The last layer starts at zero, so
    that an untrained one changes nothing. Most of its arithmetic is at half and a quarter of the size.
    """

    def __init__(self, channels: int = 3, sigmas: tuple[float, float] = (0.0, 1.0)) -> None:
        super().__init__()
        full, half, quarter = WIDTHS
        self.register_buffer("sigmas", torch.tensor(sigmas, dtype=torch.float64))
        self.begin = _layers(channels + 1, full, full)
        self.to_half = _layers(full, half, half, half, stride=2)
        self.bottom = _layers(half, quarter, quarter, quarter, half, stride=2)
        self.from_half = _layers(2 * half, half, half, full)
        self.finish = _layers(2 * full, full, full)
        self.end = nn.Conv2d(full, channels, 3, padding=1)
        nn.init.zeros_(self.end.weight)
        nn.init.zeros_(self.end.bias)  # type: ignore[arg-type]

    @property
    def range(self) -> tuple[float, float]:
        """The least and the largest noise that it was trained for."""
        low, high = self.get_buffer("sigmas").tolist()
        return round(float(low), 6), round(float(high), 6)

    def forward(self, images: Tensor, sigma: Tensor | float) -> Tensor:
        """Return clean images of noisy ones, [N, C, H, W]; `sigma` is one number, or one of each image, [N]."""
        height, width = images.shape[2:]
        level = torch.as_tensor(sigma, dtype=images.dtype, device=images.device).expand(len(images))
        seen = torch.cat([images, level[:, None, None, None].expand(-1, 1, height, width)], 1)
        seen = functional.pad(seen, (0, -width % 4, 0, -height % 4), mode="replicate")
        full = self.begin(seen)
        half = self.to_half(full)
        half = torch.cat([half, _doubled(self.bottom(half))], 1)
        change: Tensor = self.end(self.finish(torch.cat([full, _doubled(self.from_half(half))], 1)))
        return images + change[:, :, :height, :width]


class Denoised(nn.Module):
    """A classifier behind a denoiser: what is smoothed is the two of them. `sigma` is the noise that will come in.

    `denoiser` is a `Denoiser`, or any module from images to images, which must know the noise itself. The classifier is
    any callable.
    """

    def __init__(self, denoiser: nn.Module, model: Callable[[Tensor], Tensor], sigma: float) -> None:
        super().__init__()
        self.denoiser, self.model, self.sigma = denoiser, model, float(sigma)

    def forward(self, images: Tensor) -> Tensor:
        """Return the classifier's scores of denoised images."""
        clean = self.denoiser(images, self.sigma) if isinstance(self.denoiser, Denoiser) else self.denoiser(images)
        return self.model(clean)


def _layers(before: int, *widths: int, stride: int = 1) -> nn.Sequential:
    """Return normalised convolutions, one for each width, the first of them with the stride."""
    made: list[nn.Module] = []
    for width in widths:
        made += [nn.Conv2d(before, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
        before, stride = width, 1
    return nn.Sequential(*made)


def _doubled(images: Tensor) -> Tensor:
    return functional.interpolate(images, scale_factor=2.0, mode="nearest")
