"""Spectral shifts and spectra: power-law noise (CIFAR-10-F), Fourier basis noise, radial frequency (Sun et al. 2022).

Frequencies are counted in cycles per image side; on an image that is not square the side is the geometric mean of
height and width. The discrete Fourier transform is the unnormalised one of [0, 1] images.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated

import torch
from torch import Tensor

from shiftproof.errors import ConfigurationError
from shiftproof.keyed import Keyed
from shiftproof.options import BelowOne, NotNegative, Positive
from shiftproof.shifts.image_shift import Shape
from shiftproof.shifts.parametric import Parametric

REFERENCE_AREA = 32 * 32
"""The image area that the bounds on amplitudes stand for."""


@dataclass(frozen=True)
class PowerLaw(Parametric):
    """Noise with energy around one radial frequency, falling off by a power law (Sun et al. 2022, section 6.1).

    The noise has amplitude clip(A(f), low, high) / (|f - center| + 1) ** alpha, where A is the image's own amplitude,
    varied by a factor in [1 - spread, 1 + spread], and random phase; over all channels its L2 norm is `eps`, before
    values are clipped to [0, 1]. The paper publishes no bounds of its clip: `low` and `high` are ours. At 32 pixels
    most amplitudes of a photograph are below 20, so there the noise falls off by the power law alone. They are given
    for 32 x 32 pixels and grow with the image's area, as the amplitudes of a magnified image do.
    """

    moves = False
    keeps_depth = True
    name: str = field(default="power_law", init=False)
    eps: Annotated[Positive, "The L2 norm of the noise."]
    center: Annotated[NotNegative, "The radial frequency with most energy."]
    alpha: Annotated[NotNegative, "How fast the energy falls off."]
    spread: Annotated[BelowOne, "By how much of itself an amplitude is varied."] = 0.2
    low: Annotated[Positive, "The least amplitude, for 32 x 32 pixels."] = 20.0
    high: Annotated[Positive, "The largest amplitude, for 32 x 32 pixels."] = 200.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.low <= self.high, "low <= high")

    def draw(self, rng: Keyed, shape: Shape) -> tuple[Tensor, Tensor]:
        """Draw the factors and phases of the half spectrum, each N x C x H x (W // 2 + 1)."""
        if self.center > math.sqrt(shape.height * shape.width) / 2:
            raise ConfigurationError(
                f"Images of {shape.height} x {shape.width} pixels have no frequency {self.center:g}.",
                expected="a center of at most half the image side",
                got=self.label,
            )
        half = (shape.channels, shape.height, shape.width // 2 + 1)
        return rng.uniform(1 - self.spread, 1 + self.spread, half), rng.uniform(0.0, 2 * math.pi, half)

    def transform(self, images: Tensor, drawn: tuple[Tensor, Tensor]) -> Tensor:
        """Add the noise."""
        factor, phase = drawn
        height, width = images.shape[2:]
        grow = height * width / REFERENCE_AREA
        frequency = radial_frequency(height, width, device=images.device)[:, : width // 2 + 1]
        fall = ((frequency - self.center).abs() + 1).pow(-self.alpha).float()
        amplitude = torch.fft.rfft2(images).abs().clamp_(self.low * grow, self.high * grow).mul_(fall).mul_(factor)
        spectrum = make_real_(torch.complex(amplitude * phase.cos(), amplitude * phase.sin()), width)
        noise: Tensor = torch.fft.irfft2(spectrum, s=(height, width))
        # Rows first: the sum over a whole image would be split among threads by the size of the batch.
        energy = noise.square().sum(dim=3).double().sum(dim=(1, 2))
        scale = (self.eps / energy.sqrt()).float()
        return images + noise * scale[:, None, None, None]


@dataclass(frozen=True)
class FourierBasis(Parametric):
    """One frequency, `i` cycles down and `j` across, added with L2 norm `eps` per channel and a random sign each.

    The noise of Fourier sensitivity maps (Yin et al. 2019); negative frequencies are the other diagonals.
    """

    moves = False
    keeps_depth = True
    name: str = field(default="fourier_basis", init=False)
    i: Annotated[int, "Cycles down the image."]
    j: Annotated[int, "Cycles across the image."]
    eps: Annotated[Positive, "The L2 norm of the wave, per channel."] = 4.0

    def draw(self, rng: Keyed, shape: Shape) -> Tensor:
        """Draw a sign per channel, N x C."""
        if 2 * abs(self.i) > shape.height or 2 * abs(self.j) > shape.width:
            raise ConfigurationError(
                f"Images of {shape.height} x {shape.width} pixels have no frequency ({self.i}, {self.j}).",
                expected="at most half the height and half the width, either sign",
                got=self.label,
            )
        return rng.integers(0, 2, (shape.channels,)).mul_(2).sub_(1)

    def transform(self, images: Tensor, drawn: Tensor) -> Tensor:
        """Add the wave."""
        wave = fourier_basis(self.i, self.j, *images.shape[2:], device=images.device).mul_(self.eps)
        return images + drawn[:, :, None, None] * wave


def fourier_basis(i: int, j: int, height: int, width: int, *, device: torch.device | None = None) -> Tensor:
    """Return the real basis image of two conjugate frequencies, H x W, with L2 norm 1."""
    y = (torch.arange(height, device=device)[:, None] * i % height).double() / height
    x = (torch.arange(width, device=device) * j % width).double() / width
    wave = torch.cos((y + x) * (2 * math.pi))
    return wave.div_(wave.square().sum().sqrt()).float()


def frequency_sets(side: int = 32) -> Iterator[PowerLaw]:
    """Yield the published test sets (192 at side 32, CIFAR-10-F): eps 8, 10, 12; every centre; four powers."""
    for eps in (8.0, 10.0, 12.0):
        for alpha in (0.5, 1.0, 2.0, 3.0):
            for center in range(1, side // 2 + 1):
                yield PowerLaw(eps, float(center), alpha)


def radial_frequency(height: int, width: int, *, device: torch.device | None = None) -> Tensor:
    """Return the distance of every frequency from 0, H x W float64, in the order of `torch.fft.fft2`."""
    side = math.sqrt(height * width)
    down = torch.fft.fftfreq(height, 1 / side, dtype=torch.float64, device=device)
    across = torch.fft.fftfreq(width, 1 / side, dtype=torch.float64, device=device)
    return torch.hypot(down[:, None], across)


def amplitude_spectrum(images: Tensor) -> Tensor:
    """Return the amplitude of every frequency, N x C x H x W, in the order of `torch.fft.fft2`."""
    amplitude: Tensor = torch.fft.fft2(images).abs()
    return amplitude


def radial_profile(spectrum: Tensor) -> Tensor:
    """Average a spectrum ... x H x W over rings of whole radial frequency 0, 1, ..., side / 2: ... x rings, float64."""
    height, width = spectrum.shape[-2:]
    rings = int(math.sqrt(height * width)) // 2 + 1
    ring = radial_frequency(height, width, device=spectrum.device).round().long().clamp_(max=rings).flatten()
    counts = torch.bincount(ring, minlength=rings + 1)
    sums = spectrum.new_zeros((*spectrum.shape[:-2], rings + 1), dtype=torch.float64)
    sums.index_add_(-1, ring, spectrum.flatten(-2).double())
    return (sums / counts)[..., :rings]


def make_real_(half: Tensor, width: int) -> Tensor:
    """Make a half spectrum, ... x H x (W // 2 + 1), that of a real image, in place.

    Frequencies in the first and, for even width, the last column have their conjugates there too: the lower ones are
    copied from the upper, and those that are their own conjugates turn onto the real axis.
    """
    height = half.shape[-2]
    for column in (0, -1) if width % 2 == 0 else (0,):
        half[..., height // 2 + 1 :, column] = half[..., 1 : (height + 1) // 2, column].flip(-1).conj()
        for row in (0, height // 2) if height % 2 == 0 else (0,):
            value = half[..., row, column]
            half[..., row, column] = torch.where(value.real < 0, -value.abs(), value.abs()).to(half.dtype)
    return half
