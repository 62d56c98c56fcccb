"""C-bar noise: fields that are added to an image or mixed with it (Mintun et al. 2021).

Constants are the published ones, for images of 0..255 levels; S is the image side. A strength of 10 is the whole of
the amount named beside it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from shiftproof.keyed import Keyed
from shiftproof.shifts.fields import (
    LATTICE_SIZE,
    Gradients,
    direction,
    image_side,
    pixel_axes,
    radial_frequency,
    random_phase_field,
    random_points,
    turbulence,
)
from shiftproof.shifts.image_shift import Shape
from shiftproof.shifts.tables import Parameters

_TURN = 2 * math.pi


class PlaneWave(NamedTuple):
    """One wave per image: `frequency` [N, 2], radians per pixel down and across, and `phase` [N]."""

    frequency: Tensor
    phase: Tensor


class SingleFrequencyGreyscale:
    """Add a plane wave, the same to all channels: 196 levels at strength 10."""

    def sample(self, rng: Keyed, shape: Shape, p: Parameters) -> PlaneWave:
        """Draw a frequency uniform in (-pi, pi) for one axis, and a smaller one for the other."""
        large = rng.uniform(-math.pi, math.pi)
        small = rng.uniform(-1.0, 1.0) * large.abs()
        frequency = torch.stack([small, large], dim=1).gather(1, rng.permutation(2))
        return PlaneWave(frequency, rng.uniform(0.0, _TURN))

    def apply(self, images: Tensor, wave: PlaneWave, p: Parameters) -> Tensor:
        """Add sin(down + across) in the form sin(down) cos(across) + cos(down) sin(across)."""
        rows, columns = pixel_axes(images)
        down = wave.frequency[:, 0, None, None] * rows + wave.phase[:, None, None]
        across = wave.frequency[:, 1, None, None] * columns
        amplitude = p.strength / 10 * 196 / 255
        field = (down.sin() * amplitude) * across.cos()
        field.add_((down.cos() * amplitude) * across.sin())
        return images + field[:, None]


class Rings(NamedTuple):
    """Wavy rings: `centre` [N, 2], row and column; `petals`, `amplitude` and `width` [N], lengths in pixels."""

    centre: Tensor
    petals: Tensor
    amplitude: Tensor
    width: Tensor


class CocentricSineWaves:
    """Add rings about a point, whose radius waves with the angle: 128 levels from edge to edge at strength 10.

    The profile of a ring is a saw tooth, so the name promises more sines than there are.
    """

    def sample(self, rng: Keyed, shape: Shape, p: Parameters) -> Rings:
        """Draw a centre anywhere, up to 10 waves per turn, and amplitude and ring width of up to a tenth of S."""
        tenth = image_side(*shape.spatial) / 10
        centre = random_points(rng, shape, 1)[:, 0]
        return Rings(centre, rng.uniform(0, 10), rng.uniform(0, tenth), tenth - rng.uniform(0, tenth))

    def apply(self, images: Tensor, rings: Rings, p: Parameters) -> Tensor:
        """Add the distance from the inner edge of the ring, in ring widths, less one half."""
        rows, columns = pixel_axes(images)
        down, across = rows - rings.centre[:, 0, None, None], columns - rings.centre[:, 1, None, None]
        petals, amplitude, width = (values[:, None, None] for values in rings[1:])
        radius = (down.square() + across.square()).sqrt_()
        waves = direction(down, across).mul_(petals).sin_().mul_(amplitude)
        saw = radius.add_(waves).div_(width)
        saw.sub_(saw.floor()).sub_(0.5)
        return images + saw.mul_(p.strength / 10 * 128 / 255)[:, None]


class Plasma(NamedTuple):
    """The numbers of a plasma, each [N]: `time`, `folds` (a whole number), `sharpness` and `scale` in pixels."""

    time: Tensor
    folds: Tensor
    sharpness: Tensor
    scale: Tensor


class PlasmaNoise:
    """Fade the image and add a coloured plasma, coordinates folded by sines again and again: 64 levels at strength 10.

    An image of one channel gets the plasma's red.
    """

    def sample(self, rng: Keyed, shape: Shape, p: Parameters) -> Plasma:
        """Draw three turns of time, 4 to 6 folds, a sharpness of 0.5 to 1 and a scale of 0.075 S to 0.2 S."""
        side = image_side(*shape.spatial)
        return Plasma(
            rng.uniform(0.0, 3 * _TURN),
            rng.integers(4, 7),
            rng.uniform(0.5, 1.0),
            rng.uniform(0.075 * side, 0.2 * side),
        )

    def apply(self, images: Tensor, plasma: Plasma, p: Parameters) -> Tensor:
        """Mix image and plasma."""
        rows, columns = pixel_axes(images)
        time, folds, sharpness, scale = (values[:, None, None] for values in plasma)
        y, x = rows / scale, columns / scale
        frequency, slowness, size = 1.0, 1.0, torch.ones_like(sharpness)
        for fold in range(6):
            reach = torch.where(fold < folds, 1 / size, 0.0)
            shift = time / slowness
            first, second = (y * frequency + shift).cos_() * reach, (x * frequency + shift).sin_() * reach
            x, y = x + (first - 0.3 * second), y + (second + 0.3 * first)
            frequency, slowness, size = frequency * 1.93, slowness * 1.15, size * (2.25 - sharpness)
        green = (x + y).add_(time.sin()).mul_(0.5).sin_()
        channels = [x.sub_(time).sin_(), green, y.add_(time).sin_()]
        share = p.strength / 10 * 64 / 255
        return torch.stack(channels[: images.shape[1]], dim=1).mul_(share).add_(images, alpha=1 - share)


class PerlinNoise:
    """Mix the image with Perlin turbulence of five octaves, half and half at strength 10."""

    def sample(self, rng: Keyed, shape: Shape, p: Parameters) -> Gradients:
        """Draw the tables; directions are those of points uniform in a square."""
        points = rng.uniform(-1.0, 1.0, (LATTICE_SIZE, 2))
        length = points.square().sum(dim=2, keepdim=True).sqrt_().clamp_min_(2.0**-24)
        return Gradients(rng.permutation(LATTICE_SIZE), points / length)

    def apply(self, images: Tensor, gradients: Gradients, p: Parameters) -> Tensor:
        """Brighten the middle grey by half of the turbulence and mix."""
        height, width = images.shape[2:]
        cell = 32 / 224 * image_side(height, width)
        cloud = turbulence(gradients, height, width, cell, octaves=5).mul_(0.5).add_(0.5).clamp_(max=1.0)
        share = p.strength / 10 * 0.5
        return torch.add(cloud.mul_(share)[:, None], images, alpha=1 - share)


class BrownishNoise:
    """Add noise with a spectrum of 1 / (1 + r**2), independent in each channel: 64 levels at strength 10."""

    def sample(self, rng: Keyed, shape: Shape, p: Parameters) -> Tensor:
        """Draw half of the phases of every channel."""
        return rng.uniform(0.0, _TURN, (shape.channels, shape.height * shape.width // 2))

    def apply(self, images: Tensor, phases: Tensor, p: Parameters) -> Tensor:
        """Scale the field to its standard deviation and add it."""
        height, width = images.shape[2:]
        amplitude = 1 / (radial_frequency(height, width, images.device).square() + 1)
        field = random_phase_field(phases, amplitude, height, width)
        return field.mul_(p.strength / 10 * 64 / 255).add_(images)
