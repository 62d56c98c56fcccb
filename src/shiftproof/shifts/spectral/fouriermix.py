"""FourierMix as a shift: amplitudes and phases perturbed alike at all frequencies, mixed with affine views.

Sun et al. 2022, "Certified Adversarial Defenses Meet Out-of-Distribution Corruptions", section 4 and algorithm 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from annotated_types import Ge, Le
from torch import Tensor

from shiftproof.keyed import Keyed
from shiftproof.registry import unknown
from shiftproof.shifts.image_shift import Shape
from shiftproof.shifts.parametric import Parametric

AMPLITUDES = (0.2, 0.3, 0.4, 0.5, 0.6)
"""The severities of the amplitude: factors are uniform in [1 - s, 1 + s]."""

PHASES: Mapping[str, tuple[float, ...]] = MappingProxyType(
    {
        "cifar": tuple(math.pi * share for share in (1 / 12, 1 / 10, 1 / 8, 1 / 6, 1 / 4)),
        "imagenet": tuple(math.pi * share for share in (1 / 4, 3 / 10, 3 / 8, 1 / 2, 3 / 4)),
    }
)
"""The severities of the phase: noise is truncated at [-s, s]. Large images bear more."""

PHASE_SIGMA = 5.0
"""The standard deviation of the Gaussian before it is truncated: so wide that what is left is nearly uniform."""

DEGREES, SHARE, ZOOM, SLOPE = 15.0, 0.1, 0.1, 0.1
"""Limits of the affine views: rotation, moves as a share of the side, change of scale, shear. The paper names none."""


class FourierDraws(NamedTuple):
    """What FourierMix draws for N images and B branches.

    `factor` and `phase` [N, B, C, H, W // 2 + 1] change the half spectrum; `spectral` and `moved` [N, B] are the shares
    of a branch's two images in the result, and `kept` [N] that of the image itself. `motion` [N, B, 5] holds the affine
    views' rotation, moves to the right and down, scale and shear.
    """

    factor: Tensor
    phase: Tensor
    spectral: Tensor
    moved: Tensor
    kept: Tensor
    motion: Tensor


@dataclass(frozen=True)
class FourierMix(Parametric):
    """Mix `branches` views, each a Fourier perturbation blended with an affine view, and the image itself.

    A branch multiplies every amplitude by U(1 - a, 1 + a) and adds to every phase a Gaussian truncated at +-p, with
    severities a and p of its own drawn from `AMPLITUDES` and from `PHASES[preset]`, and blends the result with a random
    affine view of the image by Beta(1, 1). Branches are mixed by Dirichlet(1), their mixture and the image by
    Beta(1, 1).
    """

    footprint: ClassVar[int] = 3

    moves = False
    name: str = field(default="fouriermix", init=False)
    branches: Annotated[int, Ge(1), Le(8), "How many views are mixed."] = 3
    preset: Annotated[str, "The data set whose phases are drawn from."] = "cifar"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.preset not in PHASES:
            raise unknown("preset of FourierMix", self.preset, PHASES)

    def draw(self, rng: Keyed, shape: Shape) -> FourierDraws:
        """Draw the perturbations of the half spectra, the affine views and all weights."""
        count = self.branches
        half = (count, shape.channels, shape.height, shape.width // 2 + 1)
        # All single numbers in one draw: [N, 9, B], and one more for each image.
        numbers = rng.uniform(shape=(9 * count + 1,))
        kept, each = numbers[:, -1], numbers[:, :-1].view(len(rng), 9, count)
        severities = torch.tensor([AMPLITUDES, PHASES[self.preset]], device=rng.device)
        amplitude, limit = (
            row[(share * len(row)).long()][:, :, None, None, None]
            for row, share in zip(severities, each[:, :2].unbind(1), strict=True)
        )
        # Normalised exponentials are Dirichlet(1, ..., 1); 1 - u is in (0, 1].
        weights = (1.0 - each[:, 2]).log_().neg_()
        weights = weights / weights.sum(dim=1, keepdim=True).clamp_min(1e-12) * (1.0 - kept)[:, None]
        blend = each[:, 3]
        limits = torch.tensor([math.radians(DEGREES), SHARE, SHARE, ZOOM, SLOPE], device=rng.device)
        coarse, fine = halves(rng.uniform(shape=half))
        return FourierDraws(
            factor=coarse.mul_(amplitude / 2048.0).add_(1 - amplitude),
            phase=truncated_normal_(fine, limit, PHASE_SIGMA),
            spectral=weights * blend,
            moved=weights * (1.0 - blend),
            kept=kept,
            motion=(each[:, 4:].transpose(1, 2) * 2.0 - 1.0) * limits,
        )

    def transform(self, images: Tensor, drawn: FourierDraws) -> Tensor:
        """Perturb, move and mix."""
        height, width = images.shape[2:]
        # Mixing commutes with the transform, so all branches together need a single inverse one.
        spectrum = torch.fft.rfft2(images).mul_(multiplier(drawn, width))
        mixed: Tensor = torch.fft.irfft2(spectrum, s=(height, width))
        mixed.addcmul_(images, drawn.kept[:, None, None, None])
        views = moved(images, drawn.motion)
        for branch, share in enumerate(drawn.moved.unbind(1)):
            mixed.addcmul_(views[:, :, branch], share[:, None, None, None])
        return mixed


def halves(unit: Tensor) -> tuple[Tensor, Tensor]:
    """Split each uniform number in [0, 1) into two independent ones, of the upper and the lower 12 of its 24 bits.

    The first is a whole number below 4096, the second in [0, 1). Drawing is a large part of the work, and neither
    amplitudes nor phases need more bits.
    """
    scaled = unit.mul_(4096.0)
    upper = scaled.floor()
    return upper, scaled.sub_(upper)


def multiplier(drawn: FourierDraws, width: int) -> Tensor:
    """Return what the half spectrum is multiplied by, [N, C, H, W // 2 + 1] complex: all branches, by their shares.

    The spectrum must stay that of a real image: where two frequencies of the half are conjugates of each other, the
    lower one follows the upper, and those that are their own conjugates have no phase to change.
    """
    height = drawn.factor.shape[3]
    real = torch.zeros_like(drawn.factor[:, 0])
    imaginary, plain = torch.zeros_like(real), torch.zeros_like(real)
    # One branch after the other: a sum over them would be split by the size of the batch.
    for branch, share in enumerate(drawn.spectral.unbind(1)):
        amplitude, phase = drawn.factor[:, branch] * share[:, None, None, None], drawn.phase[:, branch]
        real.addcmul_(amplitude, phase.cos())
        imaginary.addcmul_(amplitude, phase.sin())
        plain.add_(amplitude)
    made = torch.complex(real, imaginary)
    for column in (0, -1) if width % 2 == 0 else (0,):
        made[..., height // 2 + 1 :, column] = made[..., 1 : (height + 1) // 2, column].flip(-1).conj()
        for row in (0, height // 2) if height % 2 == 0 else (0,):
            made[..., row, column] = plain[..., row, column].to(made.dtype)
    return made


def truncated_normal_(unit: Tensor, limit: Tensor, sigma: float) -> Tensor:
    """Turn uniform numbers in [0, 1) into Gaussian ones of deviation `sigma` truncated at +-limit, in place.

    By the inverse of the distribution function: sqrt(2) sigma erfinv((2 u - 1) erf(limit / (sqrt(2) sigma))).
    """
    scale = math.sqrt(2.0) * sigma
    reach = torch.erf(limit / scale)
    return unit.mul_(2 * reach).sub_(reach).erfinv_().mul_(scale)


def moved(images: Tensor, motion: Tensor) -> Tensor:
    """Return affine views about the centre, black outside the image: [N, C, B, H, W] for motions [N, B, 5]."""
    height, width = images.shape[2:]
    angle, right, down, zoom, slope = motion.unbind(2)
    cosine, sine = angle.cos() / (1 + zoom), angle.sin() / (1 + zoom)
    # The source of the point (x, y), both from -1 to 1, is (a x + b y - 2 right, d x + e y - 2 down).
    across = torch.stack([cosine, sine * (width / height)])[..., None, None]
    along = torch.stack([(slope * cosine - sine) * (height / width), cosine + slope * sine])[..., None, None]
    start = torch.stack([right, down])[..., None, None] * -2.0
    x, y = ((torch.arange(side, device=images.device) * 2 + 1).float() / side - 1 for side in (width, height))
    grid = torch.empty(*motion.shape[:2], height, width, 2, device=images.device)
    for axis in range(2):
        torch.add(across[axis] * x, along[axis] * y[:, None] + start[axis], out=grid[..., axis])
    grid = grid.flatten(1, 2)  # the views under each other: [N, B * H, W, 2]
    views = F.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    return views.view(*images.shape[:2], motion.shape[1], height, width)
