"""Foreign inputs: of no class that any model has, made in the size of the data. Whatever a model answers is wrong."""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from shiftproof.keyed import Keyed
from shiftproof.shifts import Shape, Shift
from shiftproof.shifts.parametric import Parametric
from shiftproof.shifts.text.base import TextShift


@dataclass(frozen=True)
class _Made(Parametric):
    """Images that have nothing of those they stand for but the size."""

    def transform(self, images: Tensor, drawn: Tensor) -> Tensor:
        """Return what was drawn."""
        return drawn.to(images)


@dataclass(frozen=True)
class NoiseImages(_Made):
    """Every value drawn alone, uniform in [0, 1]."""

    name: str = field(default="noise_images", init=False)

    def draw(self, rng: Keyed, shape: Shape) -> Tensor:
        """Draw the values."""
        return rng.uniform(shape=tuple(shape))


@dataclass(frozen=True)
class BlobImages(_Made):
    """Smooth spots of colour: 4 x 4 random values, magnified."""

    name: str = field(default="blob_images", init=False)

    def draw(self, rng: Keyed, shape: Shape) -> Tensor:
        """Draw the spots."""
        few = rng.uniform(shape=(shape[0], 4, 4))
        return F.interpolate(few, size=tuple(shape[1:]), mode="bicubic", align_corners=False).clamp(0, 1)


@dataclass(frozen=True)
class StripeImages(_Made):
    """Waves of two colours in one direction, two to eight across the image."""

    name: str = field(default="stripe_images", init=False)

    def draw(self, rng: Keyed, shape: Shape) -> Tensor:
        """Draw direction, frequency, phase and the two colours."""
        angle, phase = (2 * torch.pi * each for each in rng.fork("place").uniform(shape=(2,)).unbind(1))
        waves = rng.fork("waves").uniform(2, 8)
        colours = rng.fork("colours").uniform(shape=(2, shape[0], 1, 1))
        y, x = (torch.linspace(0, 1, side, device=rng.device) for side in shape[1:])
        along = x * angle.cos()[:, None, None] + y[:, None] * angle.sin()[:, None, None]
        weight = torch.sin(2 * torch.pi * waves[:, None, None] * along + phase[:, None, None])[:, None] / 2 + 0.5
        return torch.lerp(colours[:, 0], colours[:, 1], weight)


@dataclass(frozen=True)
class ShuffledPixels(Parametric):
    """The pixels of the images in random order: their colours, and nothing else of them."""

    name: str = field(default="shuffled_pixels", init=False)

    def draw(self, rng: Keyed, shape: Shape) -> Tensor:
        """Draw the orders."""
        return rng.permutation(shape[1] * shape[2])

    def transform(self, images: Tensor, drawn: Tensor) -> Tensor:
        """Put the pixels in their order."""
        places = drawn.to(images.device)[:, None].expand(-1, images.shape[1], -1)
        return images.flatten(2).gather(2, places).view_as(images)


@dataclass(frozen=True)
class RandomLetters(TextShift):
    """Texts in which every letter is another: words of no language, as long as those of the texts."""

    name: str = field(default="random_letters", init=False)

    def edit(self, text: str, rng: np.random.Generator) -> str:
        """Return the text in random letters."""
        drawn = iter(rng.integers(0, 26, len(text)).tolist())
        return "".join(string.ascii_lowercase[next(drawn)] if letter.isalnum() else letter for letter in text)


FOREIGN: Mapping[str, Mapping[str, Shift]] = {
    "images": {
        "noise": NoiseImages(),
        "smooth spots of colour": BlobImages(),
        "stripes": StripeImages(),
        "their own pixels in random order": ShuffledPixels(),
    },
    "texts": {"words of random letters": RandomLetters(severity=1)},
}
"""Kind of inputs -> what foreign inputs are, in words -> what makes them in place of the data's own."""
