"""Test sets that nothing was tuned on: other changes, and other strengths, in the families of `family_sets`.

Made after the rules of calibration, gate and interval were fixed; what comes out is what is told, whatever it is.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.family_sets import (
    Change,
    beside,
    covered,
    filtered,
    hue,
    noise,
    ramp,
    scaled,
    shuffled,
    sized,
    turned,
    warped,
)


def _tinted(red: float, green: float, blue: float, weight: float) -> Change:
    colour = torch.tensor([red, green, blue]).view(3, 1, 1)
    return lambda x, _: torch.lerp(x, colour.expand_as(x), weight)


def _flakes(x: Tensor, rng: torch.Generator) -> Tensor:
    seeds = (torch.rand(len(x), 1, 32, 32, generator=rng) > 0.985).float()
    return torch.maximum(x, F.max_pool2d(seeds, 3, stride=1, padding=1).expand_as(x) * 0.95)


def _beam(x: Tensor, _: torch.Generator) -> Tensor:
    lines = torch.linspace(-1, 1, 32)
    return x + 0.7 * torch.exp(-12 * (lines + lines[:, None]) ** 2)


def _grey_noise(x: Tensor, rng: torch.Generator) -> Tensor:
    return x + 0.08 * noise(x, rng, len(x), 1, 32, 32)


def _colour_noise(x: Tensor, rng: torch.Generator) -> Tensor:
    drawn = 0.15 * noise(x, rng)
    return x + drawn - drawn.mean(1, keepdim=True)


def _moire(x: Tensor, _: torch.Generator) -> Tensor:
    lines = torch.arange(32.0)
    return x * (1 + 0.35 * torch.sin(2.1 * lines + 0.9 * lines[:, None]))


def _chroma(x: Tensor, _: torch.Generator) -> Tensor:
    grey = x.mean(1, keepdim=True)
    return grey + F.interpolate(F.avg_pool2d(x - grey, 8), 32)


def _torn(x: Tensor, _: torch.Generator) -> Tensor:
    made = x.clone()
    made[:, :, 11:21] = x[:, :, 11:21].roll(6, 3)
    return made


def _lost_blocks(x: Tensor, rng: torch.Generator) -> Tensor:
    lost = torch.rand(len(x), 1, 4, 4, generator=rng) < 0.15
    return x.masked_fill(F.interpolate(lost.float(), 32).bool(), 0.5)


def _bulged(x: Tensor, _: torch.Generator) -> Tensor:
    lines = torch.linspace(-1, 1, 32)
    y, across = torch.meshgrid(lines, lines, indexing="ij")
    grid = torch.stack([across, y], -1) * (0.7 + 0.3 * (across**2 + y**2))[..., None]
    return F.grid_sample(x, grid.expand(len(x), 32, 32, 2), align_corners=False)


def _bordered(x: Tensor, factor: float, value: float) -> Tensor:
    made = scaled(factor)(x, torch.Generator())
    inside = scaled(factor)(torch.ones_like(x), torch.Generator())
    return made + (1 - inside) * value


def _ring(x: Tensor) -> Tensor:
    return filtered(x, [[0.0, 1, 1, 1, 0], [1.0, 0, 0, 0, 1], [1.0, 0, 0, 0, 1], [1.0, 0, 0, 0, 1], [0.0, 1, 1, 1, 0]])


def _vignette(x: Tensor, _: torch.Generator) -> Tensor:
    lines = torch.linspace(-1, 1, 32)
    return x * ((lines**2 + lines[:, None] ** 2) < 0.8)


def _coloured_square(x: Tensor, rng: torch.Generator) -> Tensor:
    made = x.clone()
    colours = torch.rand(len(x), 3, 1, 1, generator=rng)
    for image, colour, (top, left) in zip(
        made, colours, torch.randint(0, 20, (len(x), 2), generator=rng).tolist(), strict=True
    ):
        image[:, top : top + 12, left : left + 12] = colour
    return made


def _dotted(x: Tensor, rng: torch.Generator) -> Tensor:
    seeds = (torch.rand(len(x), 1, 32, 32, generator=rng) > 0.99).float()
    return x * (1 - F.max_pool2d(seeds, 5, stride=1, padding=2))


def _inset(x: Tensor, _: torch.Generator) -> Tensor:
    made = x.clone()
    made[..., 19:31, 1:13] = F.interpolate(x.roll(1, 0), size=(12, 12), mode="bilinear")
    return made


def _mirrored_halves(x: Tensor, _: torch.Generator) -> Tensor:
    made = x.clone()
    made[..., 16:] = x[..., :16].flip(3)
    return made


def _strips(x: Tensor, _: torch.Generator) -> Tensor:
    return torch.cat([x[..., 8 * k : 8 * k + 8] for k in (2, 0, 3, 1)], 3)


FAMILIES: Mapping[str, Mapping[str, Change]] = {
    "noise": {
        "pepper 4%": lambda x, g: x.masked_fill(torch.rand(len(x), 1, 32, 32, generator=g) < 0.04, 0.0),
        "grey noise": _grey_noise,
        "colour noise": _colour_noise,
        "column noise": lambda x, g: x + 0.12 * noise(x, g, len(x), 1, 1, 32),
        "uniform 0.2": lambda x, g: x + 0.4 * (torch.rand(x.shape, generator=g) - 0.5),
        "coarse grain": lambda x, g: x + 0.12 * F.interpolate(noise(x, g, len(x), 1, 16, 16), 32),
    },
    "blur": {
        "diagonal 5": lambda x, _: filtered(x, torch.eye(5).tolist()),
        "ring": lambda x, _: _ring(x),
        "dilated": lambda x, _: F.max_pool2d(x, 3, stride=1, padding=1),
        "eroded": lambda x, _: -F.max_pool2d(-x, 3, stride=1, padding=1),
        "ghosts above": lambda x, _: (2 * x + x.roll(2, 2) + x.roll(4, 2)) / 4,
        "vertical 5": lambda x, _: filtered(x, [[1.0]] * 5),
    },
    "weather": {
        "flakes": _flakes,
        "sunbeam": _beam,
        "haze from below": lambda x, _: torch.lerp(x, torch.ones_like(x), 0.7 * ramp(x)[:, None]),
        "sandstorm": _tinted(0.85, 0.65, 0.35, 0.45),
        "dawn": lambda x, _: x * torch.tensor([0.55, 0.7, 1.0]).view(3, 1, 1),
        "moonlight": lambda x, g: 0.25 * x + 0.02 * noise(x, g) + torch.tensor([0.0, 0.0, 0.1]).view(3, 1, 1),
    },
    "digital": {
        "moire": _moire,
        "coarse colour": _chroma,
        "torn": _torn,
        "overexposed": lambda x, _: x * 1.8,
        "lost blocks": _lost_blocks,
        "five levels": lambda x, _: (x * 4).round() / 4,
    },
    "colour": {
        "blue, red, green": lambda x, _: x.roll(2, 1),
        "hue 30": lambda x, _: hue(x, 30),
        "hue 210": lambda x, _: hue(x, 210),
        "no blue": lambda x, _: x * torch.tensor([1.0, 1.0, 0.0]).view(3, 1, 1),
        "lightness turned": lambda x, _: x + 1 - 2 * x.mean(1, keepdim=True),
        "vivid": lambda x, _: x + 1.5 * (x - x.mean(1, keepdim=True)),
    },
    "geometry": {
        "turned 20": turned(20),
        "turned 60": turned(60),
        "turned 270": lambda x, _: x.rot90(3, (2, 3)),
        "transposed": lambda x, _: x.transpose(2, 3),
        "slanted upwards": lambda x, _: warped(x, [[1.0, 0.0, 0.0], [0.25, 1.0, 0.0]]),
        "bulged": _bulged,
    },
    "scale and position": {
        "shrunk to 0.6, grey border": lambda x, _: _bordered(x, 0.6, 0.5),
        "shrunk to 0.9": scaled(0.9),
        "stretched 1.5": lambda x, _: warped(x, [[1 / 1.5, 0.0, 0.0], [0.0, 1.0, 0.0]]),
        "squeezed to 0.6": lambda x, _: warped(x, [[1.0, 0.0, 0.0], [0.0, 1 / 0.6, 0.0]], "reflection"),
        "a corner, 1.5": lambda x, _: warped(x, [[1 / 1.5, 0.0, -0.33], [0.0, 1 / 1.5, -0.33]]),
        "moved down 30%": lambda x, _: warped(x, [[1.0, 0.0, 0.0], [0.0, 1.0, -0.6]]),
    },
    "occlusion": {
        "right third": lambda x, _: covered(x, slice(None), slice(21, None), 0.0),
        "lower half grey": lambda x, _: covered(x, slice(16, None), slice(None), 0.5),
        "round": _vignette,
        "coloured square": _coloured_square,
        "dots": _dotted,
        "grid": lambda x, _: covered(
            covered(x, slice(3, None, 8), slice(None), 0.0), slice(None), slice(3, None, 8), 0.0
        ),
    },
    "composition": {
        "another image 30%": lambda x, _: torch.lerp(x, x.roll(1, 0), 0.3),
        "inset": _inset,
        "mirrored halves": _mirrored_halves,
        "tiles 3x3": lambda x, _: F.interpolate(x, size=(11, 11), mode="bilinear").repeat(1, 1, 3, 3)[..., :32, :32],
        "strips": _strips,
        "patches 2x2": lambda x, g: shuffled(x, g, 2),
        "another beside, upside down": lambda x, g: beside(x, g).flip(2),
    },
    "resolution": {
        "20 pixels": lambda x, _: sized(x, 20, "bilinear", "bilinear"),
        "12 pixels, squares": lambda x, _: sized(x, 12, "area", "nearest"),
        "8 pixels": lambda x, _: sized(x, 8, "area", "bicubic"),
        "28 pixels, squares": lambda x, _: sized(x, 28, "nearest", "nearest"),
        "crop of 26": lambda x, _: F.interpolate(x[..., 3:29, 3:29], size=(32, 32), mode="bilinear"),
        "crop of 20, off centre": lambda x, _: F.interpolate(x[..., 10:30, 4:24], size=(32, 32), mode="bilinear"),
    },
}
"""Family -> name of the set -> the change."""

MIXES: Mapping[str, float | tuple[int, ...]] = {
    "Dirichlet(3)": 3.0,
    "Dirichlet(0.8)": 0.8,
    "Dirichlet(0.3)": 0.3,
    "five classes": (1, 4, 6, 7, 9),
    "three classes": (0, 5, 6),
    "one class": (6,),
}
"""Name of the set -> concentration, or the classes that are left."""
