"""Something in front of the lens: a square of one shade over a part of every image."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from annotated_types import Gt, Le
from torch import Tensor

from shiftproof.keyed import Keyed
from shiftproof.options import Share
from shiftproof.shifts.image_shift import Shape
from shiftproof.shifts.parametric import Parametric


@dataclass(frozen=True)
class Occlude(Parametric):
    """Cover a square of one shade of grey, at the same place of every image."""

    moves = False
    keeps_depth = True
    name: str = field(default="occlude", init=False)
    x: Annotated[Share, "Its centre, as a share of the width."] = 0.5
    y: Annotated[Share, "Its centre, as a share of the height."] = 0.5
    size: Annotated[float, Gt(0), Le(1), "Its side, as a share of the shorter side of the image."] = 0.25
    shade: Annotated[Share, "0 is black, 1 is white."] = 0.5

    def draw(self, rng: Keyed, shape: Shape) -> None:
        """Draw nothing."""

    def transform(self, images: Tensor, drawn: None) -> Tensor:
        """Cover the square, or the part of it that lies in the image."""
        height, width = images.shape[2:]
        side = max(1, round(self.size * min(height, width)))
        top, left = round(self.y * height - side / 2), round(self.x * width - side / 2)
        covered = images.clone()
        covered[:, :, max(top, 0) : max(top + side, 0), max(left, 0) : max(left + side, 0)] = self.shade
        return covered
