"""Frequency-aware augmentation: noise of a random colour, random blur, single waves, and smooth veils over an image."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated

import torch
from annotated_types import Ge, Le
from torch import Tensor

from shiftproof.keyed import Keyed
from shiftproof.options import NotNegative, Positive, Share
from shiftproof.shifts.image_shift import Shape
from shiftproof.shifts.parametric import Parametric
from shiftproof.shifts.spectral.waves import radial_frequency

Frequency = Annotated[float, Ge(-0.5), Le(0.5)]


@dataclass(frozen=True)
class ColouredNoise(Parametric):
    """Gaussian noise whose amplitude goes with a random power of the frequency, from blue over white to brown.

    Its standard deviation is uniform between 0 and `std`, its power between -`slope` and `slope`. An image has it with
    probability `share`, and the same in all channels half of the time.
    """

    moves = False
    name: str = field(default="coloured_noise", init=False)
    std: Annotated[Positive, "The largest standard deviation, on the [0, 1] scale of images."] = 0.15
    slope: Annotated[NotNegative, "The largest power of the frequency that amplitudes go with."] = 1.0
    share: Annotated[Share, "The share of images that get noise."] = 1.0

    def draw(self, rng: Keyed, shape: Shape) -> tuple[Tensor, Tensor, Tensor]:
        """Draw white noise, and of each image the deviation and the power."""
        number = rng.fork("number").uniform(shape=(4,))
        noise = rng.fork("noise").normal(shape=shape)
        grey = (number[:, 0] < 0.5).view(-1, 1, 1, 1)
        noise = torch.where(grey, noise[:, :1], noise)
        return noise, number[:, 1] * self.std * (number[:, 2] < self.share), (2 * number[:, 3] - 1) * self.slope

    def transform(self, images: Tensor, drawn: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        """Colour the noise, and add it."""
        noise, std, power = drawn
        height, width = images.shape[2:]
        frequency = radial_frequency(height, width, device=images.device)[:, : width // 2 + 1].float().clamp_min(1.0)
        gain = frequency.log() * power[:, None, None]
        # Noise of standard deviation 1 stays one: gains have a mean square of 1 over the whole spectrum.
        full = radial_frequency(height, width, device=images.device).float().clamp_min(1.0).log()
        energy = (2 * full * power[:, None, None]).exp().mean(dim=2).mean(dim=1)
        spectrum = torch.fft.rfft2(noise).mul_(gain.exp()[:, None])
        coloured: Tensor = torch.fft.irfft2(spectrum, s=(height, width))
        return images + coloured * (std / energy.sqrt())[:, None, None, None]


@dataclass(frozen=True)
class RandomBlur(Parametric):
    """Blur by a Gaussian of a random shape and direction, or sharpening, for a `share` of images.

    The widths along two random axes are uniform between 0 and `width` pixels; of the images that are changed, one in
    four is sharpened by as much.
    """

    moves = False
    name: str = field(default="random_blur", init=False)
    width: Annotated[Positive, "The largest standard deviation of the blur, in pixels of 32."] = 1.5
    share: Annotated[Share, "The share of images that are changed."] = 0.5

    def draw(self, rng: Keyed, shape: Shape) -> Tensor:
        """Draw widths, direction, whether it is one at all, and whether it is sharpened."""
        return rng.uniform(shape=(5,))

    def transform(self, images: Tensor, drawn: Tensor) -> Tensor:
        """Multiply the spectrum by a Gaussian, or by what undoes a part of one."""
        height, width = images.shape[2:]
        along, across, turn, happens, sharp = drawn[:, :, None, None].unbind(1)
        y, x = (
            torch.fft.fftfreq(height, device=images.device)[:, None],
            torch.fft.rfftfreq(width, device=images.device),
        )
        angle = math.pi * turn
        first, second = x * angle.cos() + y * angle.sin(), y * angle.cos() - x * angle.sin()
        scale = 2 * (math.pi * self.width * math.sqrt(height * width) / 32) ** 2
        fall = torch.exp(-scale * ((along * first).square() + (across * second).square()))
        gain = torch.where(sharp < 0.25, 2.0 - fall, fall)
        gain = torch.where(happens < self.share, gain, torch.ones_like(gain))
        result: Tensor = torch.fft.irfft2(torch.fft.rfft2(images).mul_(gain[:, None]), s=(height, width))
        return result


@dataclass(frozen=True)
class RandomWave(Parametric):
    """Add a plane wave of a random frequency, direction, phase and colour, for a `share` of images.

    Frequencies, in periods a pixel, are uniform within `spread` of `down` and `across`: all that there are, by default.
    Amplitudes are uniform between `least` of `height` and `height`, either way. A wave is the same in all channels with
    probability `grey`.
    """

    moves = False
    name: str = field(default="random_wave", init=False)
    height: Annotated[Positive, "The largest amplitude, on the [0, 1] scale of images."] = 0.3
    share: Annotated[Share, "The share of images that get a wave."] = 0.5
    down: Annotated[Frequency, "The middle of the frequencies down the image, in periods a pixel."] = 0.0
    across: Annotated[Frequency, "The middle of the frequencies across the image, in periods a pixel."] = 0.0
    spread: Annotated[NotNegative, Le(0.5), "How far frequencies are from the middle, at most."] = 0.5
    least: Annotated[Share, "The least amplitude, as a share of the largest."] = 0.0
    grey: Annotated[Share, "The share of waves that are the same in all channels."] = 0.0

    def draw(self, rng: Keyed, shape: Shape) -> Tensor:
        """Draw the frequency, the phase, the amplitude of every channel, whether there is a wave, and if it is grey."""
        return rng.uniform(shape=(5 + shape.channels,))

    def transform(self, images: Tensor, drawn: Tensor) -> Tensor:
        """Add the waves."""
        height, width = images.shape[2:]
        middle, reach = (self.down, self.across), 2 * self.spread
        down, across = ((middle[place] + reach * (drawn[:, place] - 0.5))[:, None, None] for place in (0, 1))
        y = torch.arange(height, device=images.device)[:, None]
        x = torch.arange(width, device=images.device)
        wave = torch.sin(2 * math.pi * (down * y + across * x + drawn[:, 2, None, None]))
        size = torch.where(drawn[:, -1:] < self.grey, drawn[:, 4:5], drawn[:, 4:-1])
        size = 2 * size - 1
        size = (size.sign() * self.least + (1.0 - self.least) * size) * self.height * (drawn[:, 3:4] < self.share)
        return images + wave[:, None] * size[:, :, None, None]


@dataclass(frozen=True)
class Veil(Parametric):
    """Blend an image with a smooth field of a random colour, as haze, glare and shade do, for a `share` of images.

    The field is a colour plus noise whose amplitude falls with the frequency; how much of it there is varies from 0 to
    `depth`.
    """

    moves = False
    name: str = field(default="veil", init=False)
    depth: Annotated[Share, "The largest share of the field in the result."] = 0.7
    share: Annotated[Share, "The share of images that get a veil."] = 0.5

    def draw(self, rng: Keyed, shape: Shape) -> tuple[Tensor, Tensor]:
        """Draw the noise, the depth, the colour, and whether there is a veil."""
        noise = rng.fork("noise").normal(shape=(3, *shape.spatial))
        return noise, rng.fork("number").uniform(shape=(4 + shape.channels,))

    def transform(self, images: Tensor, drawn: tuple[Tensor, Tensor]) -> Tensor:
        """Blend the images with the fields."""
        noise, number = drawn
        height, width = images.shape[2:]
        frequency = radial_frequency(height, width, device=images.device)[:, : width // 2 + 1].float()
        # Of three planes, as a transform of a single one would have other bits; the first is used.
        spectrum = torch.fft.rfft2(noise).mul_(1.0 / (1.0 + frequency).pow(1.5))
        smooth: Tensor = torch.fft.irfft2(spectrum, s=(height, width))[:, :1]
        grey, spread = number[:, 2:3], number[:, 3:4]
        color = grey + spread * (number[:, 4:] - grey)
        part = (number[:, 0] * self.depth * (number[:, 1] < self.share))[:, None, None, None]
        return images + part * (color[:, :, None, None] + 0.5 * smooth - images)
