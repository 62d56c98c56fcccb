"""Transformations whose parameter an image can be smoothed over, so that a range of it is certified (Li et al. 2021).

phi(x, a) is *resolvable*: phi(phi(x, a), b) = phi(x, gamma(a, b)), exactly. Noise on the parameter of a transformed
image is then other noise on that of the image itself, and how much other says how far a class reaches (`laws`).
Clipping between the two, padding with anything but the other side, and a blur with sampled kernels break this, and with
it the certificate; `check_resolvable` refuses what is not.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from shiftproof.errors import ConfigurationError
from shiftproof.keyed import Keyed
from shiftproof.registry import unknown

AGREE = 1e-4
"""How far phi(phi(x, a), b) may be from phi(x, gamma(a, b)) by rounding alone."""
PIVOT = 0.5
"""The value that a change of contrast leaves alone."""


class Transformation(ABC):
    """A parametric transformation phi(x, a) with `size` parameters a, and the distribution of the noise on them.

    `limits` says which real changes of this kind the certificate does not cover.
    """

    name: ClassVar[str]
    size: ClassVar[int] = 1
    limits: ClassVar[str]

    def prepared(self, images: Tensor) -> Tensor:
        """Return what `apply` starts from, [N, ...]: what all samples of an image share is computed once."""
        return images

    @abstractmethod
    def draw(self, rng: Keyed, scale: float) -> Tensor:
        """Draw parameters, [N, size]."""

    @abstractmethod
    def apply(self, prepared: Tensor, parameters: Tensor) -> Tensor:
        """Return transformed images, of prepared ones [N, ...] by parameters [N, size]; values may leave [0, 1]."""

    @abstractmethod
    def composed(self, first: Tensor, then: Tensor) -> Tensor:
        """Return the parameters of one transformation after another, [N, size]."""

    def room(self, images: Tensor) -> Tensor:
        """Return how large a range keeps the values of each image in [0, 1], [N]."""
        return torch.full((len(images),), math.inf)

    def __call__(self, images: Tensor, parameters: Tensor) -> Tensor:
        """Return transformed images."""
        return self.apply(self.prepared(images), parameters)


class BrightnessChange(Transformation):
    """One number is added to all values."""

    name = "brightness"
    limits = (
        "clipping: the claim is about image + b, which is a real image as long as no value leaves [0, 1]; rounding to "
        "256 levels, but for b in multiples of 1/255"
    )

    def draw(self, rng: Keyed, scale: float) -> Tensor:
        """Draw Gaussian changes."""
        return rng.normal(std=scale, shape=(1,))

    def apply(self, prepared: Tensor, parameters: Tensor) -> Tensor:
        """Add them."""
        return prepared + parameters[:, :, None, None]

    def composed(self, first: Tensor, then: Tensor) -> Tensor:
        """Return their sum."""
        return first + then

    def room(self, images: Tensor) -> Tensor:
        """Return the distance of the values from 0 and 1."""
        values = images.flatten(1)
        return torch.minimum(values.amin(1), 1 - values.amax(1)).cpu()


class ContrastBrightness(Transformation):
    """c + e^k (x + b - c), for c one half: parameters (k, b)."""

    name = "contrast+brightness"
    size = 2
    limits = (
        "clipping: the claim is about 0.5 + c (image + b - 0.5), which is a real image as long as no value leaves "
        "[0, 1]; rounding to 256 levels"
    )

    def draw(self, rng: Keyed, scale: float) -> Tensor:
        """Draw Gaussian log contrasts and changes of brightness."""
        return rng.normal(std=scale, shape=(2,))

    def apply(self, prepared: Tensor, parameters: Tensor) -> Tensor:
        """Add, then multiply."""
        factor, added = parameters[:, 0].exp(), parameters[:, 1]
        return prepared * factor[:, None, None, None] + (PIVOT + factor * (added - PIVOT))[:, None, None, None]

    def composed(self, first: Tensor, then: Tensor) -> Tensor:
        """Contrasts multiply; a later brightness is changed by an earlier contrast."""
        k, b = first.unbind(1)
        return torch.stack([k + then[:, 0], b + (-k).exp() * then[:, 1]], 1)

    def room(self, images: Tensor) -> Tensor:
        """Return the r for which (1 + r) (m + r) = 1/2, m being how far values are from the pivot."""
        m = (images.flatten(1) - PIVOT).abs().amax(1).double()
        return ((((1 + m) ** 2 + 4 * (PIVOT - m).clamp(min=0)).sqrt() - (1 + m)) / 2).cpu()


class Blur(Transformation):
    """Gaussian blur of a variance in square pixels, by the discrete heat kernel with mirrored borders.

    A kernel that is sampled and cut off does not compose; this one does: cosine coefficients (DCT-II) are multiplied by
    exp(-a (2 - cos(pi i / H) - cos(pi j / W))). It is non-negative, sums to 1 and has variance a along each side.
    """

    name = "blur"
    limits = "blur by other kernels (sampled and cut off, lenses, motion); sharpening; rounding to 256 levels"

    def prepared(self, images: Tensor) -> Tensor:
        """Return cosine coefficients."""
        down, across = (cosines(side, images.device) for side in images.shape[2:])
        return down @ images @ across.T

    def draw(self, rng: Keyed, scale: float) -> Tensor:
        """Draw exponential variances."""
        return rng.uniform(shape=(1,)).neg_().add_(1.0).log_().mul_(-scale)

    def apply(self, prepared: Tensor, parameters: Tensor) -> Tensor:
        """Damp the coefficients, and back."""
        height, width = prepared.shape[2:]
        down, across = (cosines(side, prepared.device) for side in (height, width))
        fall = [
            1 - torch.cos(torch.arange(side, device=prepared.device) * (math.pi / side)) for side in (height, width)
        ]
        rows, columns = (torch.exp(-parameters * each) for each in fall)
        damped = prepared * rows[:, None, :, None] * columns[:, None, None, :]
        return down.T @ damped @ across

    def composed(self, first: Tensor, then: Tensor) -> Tensor:
        """Variances add up."""
        return first + then


class Translation(Transformation):
    """Cyclic shifts by whole pixels, down and across: what leaves at one side comes in at the other."""

    name = "translation"
    size = 2
    limits = "shifts that bring in black, mirrored or new pixels: only cyclic ones compose; parts of a pixel"

    def draw(self, rng: Keyed, scale: float) -> Tensor:
        """Draw rounded Gaussian numbers of pixels."""
        return rng.normal(std=scale, shape=(2,)).add_(0.5).floor_()

    def apply(self, prepared: Tensor, parameters: Tensor) -> Tensor:
        """Move the pixels."""
        height, width = prepared.shape[2:]
        moves = parameters.long()
        rows = (torch.arange(height, device=prepared.device) - moves[:, :1]) % height
        columns = (torch.arange(width, device=prepared.device) - moves[:, 1:]) % width
        flat = (rows[:, :, None] * width + columns[:, None, :]).view(len(prepared), 1, -1)
        return prepared.flatten(2).gather(2, flat.expand(-1, prepared.shape[1], -1)).view_as(prepared)

    def composed(self, first: Tensor, then: Tensor) -> Tensor:
        """Shifts add up."""
        return first + then


TRANSFORMATIONS: Mapping[str, Transformation] = {
    each.name: each for each in (BrightnessChange(), ContrastBrightness(), Blur(), Translation())
}
"""What an image can be smoothed over, by name."""


def transformation(name: str) -> Transformation:
    """Return a transformation by name."""
    if name not in TRANSFORMATIONS:
        raise unknown("transformation", name, TRANSFORMATIONS)
    return TRANSFORMATIONS[name]


_COSINES: dict[tuple[int, str], Tensor] = {}


def cosines(side: int, device: torch.device) -> Tensor:
    """Return the orthonormal matrix of the discrete cosine transform (DCT-II), [side, side]."""
    if (side, str(device)) not in _COSINES:
        places = torch.arange(side, dtype=torch.float64)
        matrix = torch.cos(math.pi / side * (places[None, :] + 0.5) * places[:, None]) * math.sqrt(2 / side)
        matrix[0] /= math.sqrt(2)
        _COSINES[side, str(device)] = matrix.float().to(device)
    return _COSINES[side, str(device)]


def check_resolvable(phi: Transformation, shape: tuple[int, ...], scale: float) -> None:
    """Refuse a transformation of which two are not one, on images of a shape under noise of a scale."""
    images = Keyed(0, torch.arange(4), path="resolvable/images").uniform(shape=shape)
    first, then = (phi.draw(Keyed(0, torch.arange(4), path=f"resolvable/{part}"), scale) for part in ("one", "two"))
    twice, once = phi(phi(images, first), then), phi(images, phi.composed(first, then))
    off = float((twice - once).abs().max()) / max(1.0, float(once.abs().max()))
    if not off <= AGREE:
        raise ConfigurationError(
            f"The transformation {phi.name!r} cannot be certified.",
            expected="a transformation of which two in a row equal one with composed parameters",
            got=f"images that differ by {off:.3g}",
            fix="do not clip, pad or resample inside it; the certificate would be void",
        )
