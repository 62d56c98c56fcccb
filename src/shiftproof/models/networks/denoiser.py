"""A small network that takes noise off images, told how much there is (Salman et al. 2020: denoised smoothing)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTHS = (32, 64, 96)
"""Channels at full, half and a quarter of the size: about 0.5 million weights, 1 MB in half precision."""


class Denoiser(nn.Module):
    """From noisy images to clean ones: a U-net of three levels whose output is added to its input.

    `sigmas` are the least and the largest standard deviation that it was trained for. The last layer starts at zero, so
    that an untrained one changes nothing. Most of its arithmetic is at half and a quarter of the size.
    """

    def __init__(self, channels: int = 3, sigmas: tuple[float, float] = (0.0, 1.0)) -> None:
        super().__init__()
        full, half, quarter = WIDTHS
        self.register_buffer("sigmas", torch.tensor(sigmas, dtype=torch.float64))
        self.begin = nn.Conv2d(channels + 1, full, 3, padding=1)
        self.full_in, self.half_in, self.quarter_in = _Block(full), _Block(half), _Block(quarter)
        self.to_half = nn.Conv2d(full, half, 3, stride=2, padding=1)
        self.to_quarter = nn.Conv2d(half, quarter, 3, stride=2, padding=1)
        self.from_quarter = nn.Conv2d(quarter, half, 3, padding=1)
        self.from_half = nn.Conv2d(half, full, 3, padding=1)
        self.join_half, self.join_full = nn.Conv2d(2 * half, half, 1), nn.Conv2d(2 * full, full, 1)
        self.half_out, self.full_out = _Block(half), _Block(full)
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
        full = self.full_in(self.begin(seen))
        half = self.half_in(self.to_half(full))
        quarter = self.quarter_in(self.to_quarter(half))
        half = self.half_out(self.join_half(torch.cat([half, _doubled(self.from_quarter(quarter))], 1)))
        full = self.full_out(self.join_full(torch.cat([full, _doubled(self.from_half(half))], 1)))
        change: Tensor = self.end(full)
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


class _Block(nn.Module):
    """Two convolutions on a normalised input, added to it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.GroupNorm(8, width), nn.GroupNorm(8, width)])
        self.convs = nn.ModuleList([nn.Conv2d(width, width, 3, padding=1) for _ in range(2)])

    def forward(self, seen: Tensor) -> Tensor:
        made = seen
        for norm, conv in zip(self.norms, self.convs, strict=True):
            made = conv(functional.silu(norm(made)))
        return seen + made


def _doubled(images: Tensor) -> Tensor:
    return functional.interpolate(images, scale_factor=2.0, mode="nearest")
