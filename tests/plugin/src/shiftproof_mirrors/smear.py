"""A shift: each image is blended with a copy of itself that is moved sideways."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from shiftproof.keyed import Keyed
from shiftproof.shifts import ImageShift, Shape


@dataclass(frozen=True)
class Smear(ImageShift):
    """Blend each image with itself, moved left or right by up to `reach`, a share of its width."""

    reach: float = 0.25
    category = "blur"
    frequency = "low"
    moves = True

    def draw(self, rng: Keyed, shape: Shape) -> Tensor:
        """Draw how far each image is moved, in pixels, [N]."""
        return ((2 * rng.uniform(shape=(1,))[:, 0] - 1) * self.reach * shape.width).round().long()

    def transform(self, images: Tensor, drawn: Tensor) -> Tensor:
        """Mix in more of the copy the higher the severity: at 5 it is all there is."""
        moved = torch.stack([image.roll(int(step), -1) for image, step in zip(images, drawn, strict=True)])
        return torch.lerp(images, moved, self.severity / 5)
