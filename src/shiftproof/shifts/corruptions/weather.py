"""Weather: fog, frost, snow and spatter."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from shiftproof.keyed import Keyed
from shiftproof.shifts.color import luma
from shiftproof.shifts.corruptions.frost import Frost
from shiftproof.shifts.corruptions.plasma import plasma, plasma_side
from shiftproof.shifts.corruptions.spatter import Spatter
from shiftproof.shifts.filters import motion_blur
from shiftproof.shifts.image_shift import Shape
from shiftproof.shifts.levels import quantize_
from shiftproof.shifts.tables import Parameters

__all__ = ["Fog", "Frost", "Snow", "Spatter"]


class Fog:
    """Add a fractal cloud, dimming the image so that its brightest value stays where it was."""

    def sample(self, rng: Keyed, shape: Shape, p: Parameters) -> Tensor:
        """Draw the offsets of the cloud, [N, side**2]."""
        return rng.uniform(shape=(plasma_side(*shape.spatial) ** 2,))

    def apply(self, images: Tensor, unit: Tensor, p: Parameters) -> Tensor:
        """Mix (image + thickness * cloud) * peak / (peak + thickness), with the cloud's top left corner."""
        height, width = images.shape[2:]
        cloud = plasma(unit, p.decay)[:, None, :height, :width]
        peak = images.amax(dim=(1, 2, 3), keepdim=True)
        dim = peak / (peak + p.thickness)
        return torch.addcmul(cloud * (dim * p.thickness), images, dim)


class Flakes(NamedTuple):
    """What snow draws: a field of normal numbers, one per flake, and the direction of the wind."""

    field: Tensor
    angle: Tensor


class Snow:
    """Whiten the image and add a layer of flakes, smeared by the wind, and the same layer turned by 180 degrees."""

    def sample(self, rng: Keyed, shape: Shape, p: Parameters) -> Flakes:
        """Draw the part of the layer that zooming in keeps, [N, 1, h, w], and an angle in degrees, [N]."""
        kept = [math.ceil(side / p.zoom) for side in shape.spatial]
        return Flakes(rng.normal(p.loc, p.scale, (1, *kept)), rng.uniform(-135.0, -45.0))

    def apply(self, images: Tensor, drawn: Flakes, p: Parameters) -> Tensor:
        """Make the layer and lay it over the whitened image."""
        layer = _zoomed(drawn.field, images.shape[2], images.shape[3], p.zoom)
        layer = quantize_(F.threshold(layer, p.threshold, 0.0))
        # The published generator stores the blurred layer as an 8-bit image.
        layer = quantize_(motion_blur(layer, drawn.angle, p.radius, p.sigma))
        snow = layer + layer.flip(2, 3)
        white = torch.maximum(images, luma(images) * 1.5 + 0.5)
        return torch.lerp(white, images, p.mix).add_(snow)


def _zoomed(field: Tensor, height: int, width: int, zoom: float) -> Tensor:
    """Enlarge a field bilinearly, its corner values at the corners, and keep the middle: height x width."""
    size = [round(side * zoom) for side in field.shape[2:]]
    large = F.interpolate(field, size, mode="bilinear", align_corners=True)
    top, left = (size[0] - height) // 2, (size[1] - width) // 2
    return large[:, :, top : top + height, left : left + width]
