"""C-bar warps: pixels that move (Mintun et al. 2021). Sampling is bilinear, and black outside the image.

Constants are the published ones; S is the image side.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from shiftproof.keyed import Keyed
from shiftproof.shifts.fields import axes, image_side
from shiftproof.shifts.filters import gaussian_blur
from shiftproof.shifts.image_shift import Shape
from shiftproof.shifts.origins import nearest, unmoved
from shiftproof.shifts.tables import Parameters

_TURN = 2 * math.pi


def sample_at(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Return the images, N x C x H x W, at the given rows and columns, which broadcast to [N, H, W]."""
    height, width = images.shape[2:]
    grid = torch.empty(len(images), height, width, 2, device=images.device)
    # grid_sample counts from -1 to 1 between the centres of the border pixels.
    grid[..., 0] = columns * (2 / (width - 1)) - 1
    grid[..., 1] = rows * (2 / (height - 1)) - 1
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=True)


class PinchAndTwirl:
    """Pinch and turn discs on a grid of `whirls` by `whirls`, clockwise or not at random.

    At strength 10 a disc's middle turns by a quarter, and the exponent of the pinch is `pinch` + 0.4. The published
    generator writes its result disc by disc into the array it reads from, but no disc reads what another wrote.
    """

    def sample(self, rng: Keyed, shape: Shape, p: Parameters) -> Tensor:
        """Draw the sense of every disc, -1 or 1, [N, whirls, whirls] by row and column."""
        whirls = round(p.whirls)
        return rng.integers(0, 2, (whirls, whirls)).mul_(2).sub_(1).float()

    def apply(self, images: Tensor, senses: Tensor, p: Parameters) -> Tensor:
        """Sample each disc at its turned and pinched points; what is outside the discs stays."""
        inside, rows, columns = self._seen(senses, p, *images.shape[2:])
        return torch.where(inside, sample_at(images, rows, columns), images)

    def origins(self, senses: Tensor, shape: Shape, p: Parameters) -> Tensor:
        """Take each disc from its turned and pinched points."""
        inside, rows, columns = self._seen(senses, p, *shape.spatial)
        stays = unmoved(1, *shape.spatial, senses.device)
        return torch.where(inside, nearest(rows, columns, *shape.spatial), stays)

    def _seen(self, senses: Tensor, p: Parameters, height: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return which pixels are in a disc, [H, W], and the rows and columns that they show, [N, H, W]."""
        whirls = senses.shape[1]
        tall, wide = height // whirls, width // whirls
        rows, columns = axes(height, width, senses.device, torch.float64)
        row_cell, column_cell = ((rows // tall).clamp_(max=whirls - 1), (columns // wide).clamp_(max=whirls - 1))
        middle_row, middle_column = (row_cell + 0.5) * tall, (column_cell + 0.5) * wide
        down, across = rows - middle_row, columns - middle_column
        distance = torch.hypot(down, across) / (min(tall, wide) / 2)
        inside = (distance > 0) & (distance < 1)
        # The same in all images: points along the pixel's own direction, and turned a quarter from it.
        share = torch.where(inside, distance, 1.0)
        stretch = (share * (math.pi / 2)).sin_().log_().mul_(-(p.strength / 10 * 0.4 + p.pinch)).exp_()
        turn = (1 - share).square_().mul_(p.strength / 10 * math.pi / 2)
        straight, sideways = turn.cos() * stretch, turn.sin() * stretch
        sense = senses.index_select(1, row_cell.flatten().long()).index_select(2, column_cell.long())
        seen_rows = (middle_row + down * straight).float() - sense * (across * sideways).float()
        seen_columns = (middle_column + across * straight).float() + sense * (down * sideways).float()
        return inside, seen_rows, seen_columns


class Waves(NamedTuple):
    """The waves of a ripple, down and across: `wavelength` in pixels and `phase`, each [N, 2]."""

    wavelength: Tensor
    phase: Tensor


class Ripple:
    """Move rows and columns to and fro in sine waves of amplitude 0.025 S at strength 10."""

    def sample(self, rng: Keyed, shape: Shape, p: Parameters) -> Waves:
        """Draw wavelengths of 0.1 S to 0.3 S and phases."""
        side = image_side(*shape.spatial)
        return Waves(rng.uniform(0.1 * side, 0.3 * side, (2,)), rng.uniform(0.0, _TURN, (2,)))

    def apply(self, images: Tensor, waves: Waves, p: Parameters) -> Tensor:
        """Sample each pixel at its row and its column moved by their waves."""
        return sample_at(images, *self._seen(waves, p, *images.shape[2:]))

    def origins(self, waves: Waves, shape: Shape, p: Parameters) -> Tensor:
        """Take each pixel from its row and its column moved by their waves."""
        return nearest(*self._seen(waves, p, *shape.spatial), *shape.spatial)

    def _seen(self, waves: Waves, p: Parameters, height: int, width: int) -> tuple[Tensor, Tensor]:
        """Return the rows, [N, H, 1], and the columns, [N, 1, W], that the pixels show."""
        amplitude = p.strength / 10 * 0.025 * image_side(height, width)
        moved = []
        both = axes(height, width, waves.phase.device)
        for axis, wavelength, phase in zip(both, *(part.unbind(1) for part in waves), strict=True):
            angle = axis * (_TURN / wavelength)[:, None, None] + phase[:, None, None]
            moved.append(angle.sin_().mul_(amplitude).add_(axis))
        return moved[0], moved[1]


class Water(NamedTuple):
    """Moving water: `time` and `size`, the period of its surface in pixels, each [N]."""

    time: Tensor
    size: Tensor


class CausticRefraction:
    """See the image through a lens shaped like the light on the ground of a pool, and lit by it.

    At strength 10 the lens is 0.5 S thick and the light has twice the slope of the pattern.
    """

    def sample(self, rng: Keyed, shape: Shape, p: Parameters) -> Water:
        """Draw a time of 0.5 to 2 and a period of 0.75 S to 1.25 S."""
        side = image_side(*shape.spatial)
        return Water(rng.uniform(0.5, 2.0), rng.uniform(0.75 * side, 1.25 * side))

    def apply(self, images: Tensor, water: Water, p: Parameters) -> Tensor:
        """Bend each ray by Snell's law at the slope of the pattern, and add the slope as light."""
        bent, rows, columns, light = self._seen(water, p, *images.shape[2:])
        seen = torch.where(bent[:, None], sample_at(images, rows, columns), images)
        return seen.add_(light.mul_(p.strength / 10 * 2.0)[:, None])

    def origins(self, water: Water, shape: Shape, p: Parameters) -> Tensor:
        """Follow each ray back; one that is not bent comes from its own pixel."""
        _, rows, columns, _ = self._seen(water, p, *shape.spatial)
        return nearest(rows, columns, *shape.spatial)

    def _seen(self, water: Water, p: Parameters, height: int, width: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return which rays are bent, the rows and columns that they show, and the slope, each [N, H, W]."""
        rows, columns = axes(height, width, water.time.device)
        pattern = gaussian_blur(_caustics(rows, columns, water)[:, None], 1.0, mode="reflect")[:, 0]
        pattern = F.pad(pattern, (1, 1, 1, 1))
        down = pattern[:, 2:, 1:-1] - pattern[:, :-2, 1:-1]
        across = pattern[:, 1:-1, 2:] - pattern[:, 1:-1, :-2]
        bend = _refraction(down.square() + across.square())
        thickness = p.strength / 10 * 0.5 * image_side(height, width)
        shift = bend * thickness
        return bend > 0, rows + down * shift, columns + across * shift, down - across


def _caustics(rows: Tensor, columns: Tensor, water: Water) -> Tensor:
    """Return the pattern of light under water, [N, H, W] in [0, 1] (after a shader by joltz0r and Dave Hoskins)."""
    time, size = (values[:, None, None] for values in water)
    # Shares of the period, a whole turn; the pattern's strength falls with the distance from a point far outside.
    y, x = ((axis / size).frac().mul_(_TURN) for axis in (rows, columns))
    far_y, far_x = (turn - 250 for turn in (y, x))
    # 250 less 40 turns: the same angle, with more of its bits left.
    y, x = (turn.add_(40 * _TURN - 250) for turn in (y, x))
    i, j = y, x
    total = y.new_ones(len(y), y.shape[1], x.shape[2])
    for fold in range(5):
        t = time * (1 - 3.5 / (fold + 1))
        i, j = y + ((t - i).cos_() + (t + j).sin_()), x + ((t - j).sin_() + (t + i).cos_())
        sine, cosine = (i + t).sin_(), (j + t).cos_()
        length = (far_y * cosine).square_().add_((far_x * sine).square_()).sqrt_()
        total.add_(sine.mul_(cosine).abs_().div_(length), alpha=1 / 0.005)
    light = total.div_(5).log_().mul_(1.4).exp_().neg_().add_(1.17)
    return light.square_().square_().square_().clamp_(max=1.0)


def _refraction(slope: Tensor) -> Tensor:
    """Return how far a ray from above is bent, per unit of slope, at surfaces with the given squared slope.

    With index of refraction 4: the ray leaves at the angle between the normal, at angle a, and that of sine
    sin(a) / 4, and moves by the sine of it. Where the cosine of a is above 0.999, the ray goes straight on.
    """
    cosine = (slope + 1).rsqrt()
    sine = slope * cosine.square()
    bend = (1 - sine / 16).sqrt_().sub_(cosine, alpha=0.25).mul_(cosine)
    return bend.masked_fill_(cosine >= 1 - 1e-3, 0.0)
