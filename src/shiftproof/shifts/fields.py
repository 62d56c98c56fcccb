"""Random fields: noise with a given spectrum, and Perlin's turbulence, a batch at a time.

The maths of both is stated on coordinates of pixels, so that fields exist for any image size.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from shiftproof.keyed import Keyed
from shiftproof.shifts.image_shift import Shape

LATTICE_SIZE = 256
"""Gradients in Perlin's table; the lattice repeats after this many points."""


def image_side(height: int, width: int) -> float:
    """Return the side of the square with as many pixels: the unit of length of size-dependent parameters."""
    return math.sqrt(height * width)


def pixel_axes(images: Tensor, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Return the rows, [H, 1], and the columns, [W], of the pixels of images, N x C x H x W."""
    height, width = images.shape[2:]
    return axes(height, width, images.device, dtype)


def axes(height: int, width: int, device: torch.device, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Return rows, [H, 1], and columns, [W]."""
    rows, columns = (torch.arange(side, device=device, dtype=dtype) for side in (height, width))
    return rows[:, None], columns


def random_points(rng: Keyed, shape: Shape, count: int, margin: float = 0.0) -> Tensor:
    """Draw points of the image, [N, count, 2] as row and column, at least a share `margin` of it from its borders."""
    points = rng.uniform(margin, 1 - margin, (count, 2))
    points[..., 0].mul_(shape.height)
    points[..., 1].mul_(shape.width)
    return points


def direction(down: Tensor, across: Tensor) -> Tensor:
    """Return the angle of the vectors (down, across), 0 along `down`, in (-pi, pi] as float32.

    In double precision: of a float32 arctangent, the last bit depends on the position in memory, hence on the batch.
    """
    return torch.atan2(across.double(), down.double()).float()


def radial_frequency(height: int, width: int, device: torch.device) -> Tensor:
    """Return the frequencies of `random_phase_field` in cycles per image side, [H, W // 2 + 1] float64."""
    step = 1 / image_side(height, width)
    down = torch.fft.fftfreq(height, step, device=device, dtype=torch.float64)
    across = torch.fft.rfftfreq(width, step, device=device, dtype=torch.float64)
    return torch.hypot(down[:, None], across)


def random_phase_field(phases: Tensor, amplitude: Tensor, height: int, width: int) -> Tensor:
    """Return fields of unit standard deviation, [..., H, W], from a spectrum's amplitude and half of its phases.

    `phases` are uniform in [0, 2 pi), [..., H * W // 2], for the first half of the frequencies in the order of the
    discrete Fourier transform; the second half repeats them backwards, as in the published generator. That pairs
    frequency k with -1 - k, so the fields are not stationary: the lowest frequencies beat with each other. The field
    is the real part of the transform, whose mean is kept. `amplitude` is [H, W // 2 + 1].
    """
    kept = slice(width // 2 + 1)
    # In double precision: the algorithm, which depends on the batch, cannot show in a field rounded to float32.
    spectrum = phases.new_empty((*phases.shape[:-1], height, width // 2 + 1), dtype=torch.complex128)
    # The real part of the transform is that of the spectrum's symmetric part, the mean of F(k) and conj F(-k). The
    # phase of -k is that of k - 1.
    wave = _both_halves(phases.cos(), 1.0, height, width)
    torch.add(wave[..., kept], wave.roll((1, 1), (-2, -1))[..., kept], out=spectrum.real)
    wave = _both_halves(phases.sin(), 0.0, height, width)
    torch.sub(wave[..., kept], wave.roll((1, 1), (-2, -1))[..., kept], out=spectrum.imag)
    field: Tensor = torch.fft.irfft2(spectrum.mul_(amplitude), s=(height, width))
    return field.div_(field.std(dim=(-2, -1), correction=0, keepdim=True)).float()


def _both_halves(half: Tensor, middle: float, height: int, width: int) -> Tensor:
    """Return the first half and its mirror image; an odd number of frequencies leaves one in the middle, of phase 0."""
    between = half.new_full((*half.shape[:-1], height * width % 2), middle)
    return torch.cat([half, between, half.flip(-1)], dim=-1).view(*half.shape[:-1], height, width)


class Gradients(NamedTuple):
    """Perlin's tables: `order`, a permutation [N, 256] that hashes lattice points, and `directions` [N, 256, 2]."""

    order: Tensor
    directions: Tensor


def turbulence(gradients: Gradients, height: int, width: int, cell: float, octaves: int) -> Tensor:
    """Return the sum over octaves of |Perlin noise| / frequency, [N, H, W]; `cell` is the first lattice's in pixels.

    Perlin 1985; every octave reads the same tables at lattice points twice as near to each other.
    """
    total = perlin(gradients, height, width, 1 / cell).abs_()
    for octave in range(1, octaves):
        total.add_(perlin(gradients, height, width, 2**octave / cell).abs_(), alpha=0.5**octave)
    return total


def perlin(gradients: Gradients, height: int, width: int, frequency: float) -> Tensor:
    """Return Perlin noise over the pixels, [N, H, W], with `frequency` lattice points per pixel.

    A value is the smooth mean, over the four lattice points around it, of the scalar products of their gradients with
    the vectors from them. The lattice is regular, so the mean is taken along the columns first, on lattice rows only.
    """
    down, across = _lattice(gradients, height, width, frequency)
    near, offset, fade = _cells(width, frequency, down.device)
    level = down[:, :, near] * (1 - fade) + down[:, :, near + 1] * fade
    slope = across[:, :, near] * ((1 - fade) * offset) + across[:, :, near + 1] * (fade * (offset - 1))
    near, offset, fade = _cells(height, frequency, down.device)
    offset, fade = offset[:, None], fade[:, None]
    value = level[:, near].mul_((1 - fade) * offset).add_(level[:, near + 1].mul_(fade * (offset - 1)))
    value.add_(slope[:, near].mul_(1 - fade)).add_(slope[:, near + 1].mul_(fade))
    return value.mul_(1.5)


def _lattice(gradients: Gradients, height: int, width: int, frequency: float) -> tuple[Tensor, Tensor]:
    """Return the two components of the gradients at the lattice points that the pixels lie between, [N, rows, cols]."""
    order, directions = gradients
    rows, columns = (
        torch.arange(int((side - 1) * frequency) + 2, device=order.device) % LATTICE_SIZE for side in (height, width)
    )
    point = (order[:, rows, None] + columns) % LATTICE_SIZE
    index = order.gather(1, point.flatten(1))
    down, across = (component.gather(1, index).view_as(point) for component in directions.unbind(2))
    return down, across


def _cells(side: int, frequency: float, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return the lattice point before each pixel along a side, the pixel's offset from it, and the next one's share."""
    position = torch.arange(side, device=device, dtype=torch.float64) * frequency
    near = position.floor()
    offset = (position - near).float()
    return near.long(), offset, offset.square() * (3 - 2 * offset)
