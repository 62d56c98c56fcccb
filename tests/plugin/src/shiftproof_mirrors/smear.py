"""A shift: each image is blended with a copy of itself that is moved sideways."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from shiftproof.keyed import Keyed
from shiftproof.shifts.base import Shape, Shift

REACH = 0.25
"""The furthest move, as a share of the width."""


@dataclass(frozen=True)
class Smear(Shift):
    """Blend each image with itself, moved left or right by up to a fourth of its width."""

    category = "blur"
    frequency = "low"

    def draw(self, rng: Keyed, shape: Shape) -> Tensor:
        """Draw how far each image is moved, in pixels, [N]."""
        reach = REACH * shape.width
        return ((2 * rng.uniform(shape=(1,))[:, 0] - 1) * reach).round().long()

    def transform(self, images: Tensor, drawn: Tensor) -> Tensor:
        """Mix in more of the copy the higher the severity: at 5 it is all there is."""
        moved = torch.stack([image.roll(int(step), -1) for image, step in zip(images, drawn, strict=True)])
        return torch.lerp(images, moved, self.severity / 5)
