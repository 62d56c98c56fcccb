"""Casts of colour, as of another light or camera: the hue turned, every channel stretched and moved."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated

import torch
from annotated_types import Ge, Le
from torch import Tensor

from shiftproof.keyed import Keyed
from shiftproof.options import BelowOne, NotNegative, Share
from shiftproof.shifts.image_shift import Shape
from shiftproof.shifts.parametric import Parametric

More = Annotated[float, Ge(-1), Le(1)]


@dataclass(frozen=True)
class ColourCast(Parametric):
    """Turn the hue by a random angle, multiply every channel by a random gain and add a random bias to it.

    Angles are uniform within `turn` of a circle either way, gains within `gain` of 1, biases within `bias` of 0. `red`,
    `green` and `blue` are added to that, where an image has three channels; only then is its hue turned. An image has a
    cast with probability `share`.
    """

    moves = False
    name: str = field(default="colour_cast", init=False)
    gain: Annotated[BelowOne, "How far a gain is from 1, at most."] = 0.3
    bias: Annotated[NotNegative, "How far a bias is from 0, at most, on the [0, 1] scale of images."] = 0.2
    turn: Annotated[NotNegative, Le(0.5), "How far the hue is turned, at most, as a share of a circle."] = 0.1
    share: Annotated[Share, "The share of images that get a cast."] = 0.5
    red: Annotated[More, "What every cast adds to red."] = 0.0
    green: Annotated[More, "What every cast adds to green."] = 0.0
    blue: Annotated[More, "What every cast adds to blue."] = 0.0

    def draw(self, rng: Keyed, shape: Shape) -> Tensor:
        """Draw whether there is a cast, the turn, and the gain and the bias of every channel, in [-1, 1)."""
        return rng.uniform(-1.0, 1.0, (2 + 2 * shape.channels,))

    def transform(self, images: Tensor, drawn: Tensor) -> Tensor:
        """Change the colours."""
        channels = images.shape[1]
        gain, bias = drawn[:, 2 : 2 + channels] * self.gain, drawn[:, 2 + channels :] * self.bias
        made = images
        if channels == 3:
            made = turned(images, 2 * math.pi * self.turn * drawn[:, 1])
            bias = bias + torch.tensor([self.red, self.green, self.blue], device=images.device)
        made = made * (1.0 + gain)[:, :, None, None] + bias[:, :, None, None]
        return torch.where((drawn[:, 0] < 2 * self.share - 1)[:, None, None, None], made, images)


def turned(images: Tensor, angle: Tensor) -> Tensor:
    """Return images [N, 3, H, W] whose colours are turned about the grey axis, by angles [N]."""
    size = angle[:, None, None, None]
    grey = (images[:, :1] + images[:, 1:2] + images[:, 2:]) / 3
    colour = images - grey
    across = (colour.roll(1, 1) - colour.roll(-1, 1)) / math.sqrt(3)
    return grey + colour * size.cos() + across * size.sin()
