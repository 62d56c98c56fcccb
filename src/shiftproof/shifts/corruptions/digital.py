"""Digital corruptions: brightness, contrast, saturation, JPEG compression, pixelation and elastic distortion."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from shiftproof.keyed import Keyed
from shiftproof.shifts.corruptions import elastic, jpeg
from shiftproof.shifts.corruptions.pixelate import pixelate
from shiftproof.shifts.image_shift import Shape
from shiftproof.shifts.levels import to_bytes
from shiftproof.shifts.tables import Parameters

_TINY = 2.0**-60
"""A difference no image can show, which keeps a quotient of two zeros defined."""


class Brightness:
    """Add to the value (the V of HSV) of every pixel, keeping its hue and saturation.

    Hue and saturation depend only on the ratios of the channels, so raising V to V' multiplies the pixel by V' / V.
    """

    def sample(self, rng: Keyed, shape: Shape, p: Parameters) -> None:
        """Draw nothing."""

    def apply(self, images: Tensor, drawn: None, p: Parameters) -> Tensor:
        """Multiply each pixel by V' / V; black, which has no hue, becomes grey."""
        images = images.clamp_min(_TINY)
        value = images.amax(dim=1, keepdim=True)
        return images.mul_((value + p.amount).clamp_(max=1.0).div_(value))


class Saturate:
    """Scale the saturation (the S of HSV) of every pixel and add to it, keeping hue and value.

    A channel lies below the value by V * S * k, where k depends on the hue alone, so changing S to S' multiplies its
    distance from the value by S' / S. Grey pixels have hue 0 by convention: what is added to their saturation turns
    them red. Images of one channel have no saturation and are returned unchanged.
    """

    def sample(self, rng: Keyed, shape: Shape, p: Parameters) -> None:
        """Draw nothing."""

    def apply(self, images: Tensor, drawn: None, p: Parameters) -> Tensor:
        """Move the channels away from the value, or towards it."""
        if images.shape[1] == 1:
            return images.clone()
        value = images.amax(dim=1, keepdim=True)
        below = value - images
        below[:, 1:].clamp_min_(_TINY)  # so that green and blue share the whole (empty) distance of a grey pixel
        spread = below.amax(dim=1, keepdim=True)  # V * S
        wanted = torch.minimum(spread * p.times + value * p.plus, value)
        return below.mul_(wanted.div_(spread)).neg_().add_(value)


class Contrast:
    """Move every value towards the mean of its channel."""

    def sample(self, rng: Keyed, shape: Shape, p: Parameters) -> None:
        """Draw nothing."""

    def apply(self, images: Tensor, drawn: None, p: Parameters) -> Tensor:
        """Interpolate between the mean and the image."""
        # Summed in double: the order of summation, which may depend on the batch, cannot show in a float32 mean.
        mean = images.mean(dim=(2, 3), keepdim=True, dtype=torch.float64)
        return torch.add((mean * (1.0 - p.factor)).float(), images, alpha=p.factor)


class Pixelate:
    """Shrink with a box filter and enlarge to visible squares, to the last bit as Pillow's BOX resampling does."""

    takes_bytes = True

    def sample(self, rng: Keyed, shape: Shape, p: Parameters) -> None:
        """Draw nothing."""

    def apply(self, images: Tensor, drawn: None, p: Parameters) -> Tensor:
        """Resample the uint8 levels, at least one square in each direction."""
        height, width = (max(1, int(side * p.factor)) for side in images.shape[2:])
        return pixelate(to_bytes(images), height, width)


class JpegCompression:
    """Encode as baseline JPEG with 4:2:0 chroma at a quality, and decode.

    On the CPU by Pillow's encoder; elsewhere by the same maths in tensors, see `jpeg.compress_tensor`.
    """

    takes_bytes = True

    def sample(self, rng: Keyed, shape: Shape, p: Parameters) -> None:
        """Draw nothing."""

    def apply(self, images: Tensor, drawn: None, p: Parameters) -> Tensor:
        """Compress the uint8 levels."""
        compress = jpeg.compress_pillow if images.device.type == "cpu" else jpeg.compress_tensor
        return compress(to_bytes(images), round(p.quality))


class Distortion(NamedTuple):
    """What an elastic distortion draws: moves of three points, and the cosines of the displacement field."""

    moves: Tensor
    coefficients: Tensor


class ElasticTransform:
    """Warp by a random affine map, then by smooth random displacements.

    The table's lengths are shares of the image side, so that a severity distorts a small and a large image alike.
    """

    def sample(self, rng: Keyed, shape: Shape, p: Parameters) -> Distortion:
        """Draw the moves in pixels, [N, 3, 2], and standard normal coefficients, [N, 2, modes, modes]."""
        unit = p.unit * math.sqrt(shape.height * shape.width)
        reach = p.affine * unit
        across, down = (elastic.modes(side, p.sigma * unit) for side in (shape.width, shape.height))
        return Distortion(rng.uniform(-reach, reach, (3, 2)), rng.normal(shape=(2, across, down)))

    def apply(self, images: Tensor, drawn: Distortion, p: Parameters) -> Tensor:
        """Warp twice, bilinearly."""
        warped = elastic.affine_warp(images, drawn.moves)
        field = _displacement(drawn, p, *images.shape[2:])
        return warped if field is None else elastic.displace(warped, field)

    def origins(self, drawn: Distortion, shape: Shape, p: Parameters) -> Tensor:
        """Follow both warps back."""
        return elastic.distorted_origins(drawn.moves, _displacement(drawn, p, *shape.spatial), *shape.spatial)


def _displacement(drawn: Distortion, p: Parameters, height: int, width: int) -> Tensor | None:
    """Return the smooth displacements in pixels, [N, 2, H, W]; None where the warp is affine alone."""
    if p.alpha == 0:  # as at the published 32-pixel severity 1
        return None
    unit = p.unit * math.sqrt(height * width)
    return elastic.smooth_field(drawn.coefficients, height, width, p.sigma * unit).mul_(p.alpha * unit)
