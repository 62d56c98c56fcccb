"""Test sets that are no corruptions of the catalogue: eleven families of hand-made changes of images [N, 3, 32, 32].

Each takes images in [0, 1], a generator, and gives images of the same shape; class mixes take labels instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

Change: TypeAlias = Callable[[Tensor, torch.Generator], Tensor]


def noise(x: Tensor, rng: torch.Generator, *shape: int) -> Tensor:
    """Return normal noise, of the images' shape or another."""
    return torch.randn(*(shape or x.shape), generator=rng)


def ramp(x: Tensor) -> Tensor:
    """Return values from 0 to 1 across the images."""
    return torch.linspace(0, 1, x.shape[3])


def filtered(x: Tensor, kernel: list[list[float]]) -> Tensor:
    """Return images under a kernel, which is made to sum to 1."""
    weights = torch.tensor(kernel)
    weights = (weights / weights.sum()).expand(3, 1, *weights.shape)
    high, wide = weights.shape[2] // 2, weights.shape[3] // 2
    return F.conv2d(F.pad(x, (wide, wide, high, high), mode="reflect"), weights, groups=3)


def _median(x: Tensor) -> Tensor:
    return F.unfold(F.pad(x, (1, 1, 1, 1), mode="reflect"), 3).view(len(x), 3, 9, 32, 32).median(2).values


def warped(x: Tensor, matrix: list[list[float]], padding: str = "zeros") -> Tensor:
    """Return images under an affine map."""
    grid = F.affine_grid(torch.tensor(matrix).expand(len(x), 2, 3), list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, padding_mode=padding, align_corners=False)


def turned(degrees: float) -> Change:
    """Return the rotation by so many degrees."""
    c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return lambda x, _: warped(x, [[c, -s, 0.0], [s, c, 0.0]])


def scaled(factor: float, padding: str = "zeros", right: float = 0.0) -> Change:
    """Return the change of size by a factor, and a move to the side."""
    return lambda x, _: warped(x, [[1 / factor, 0.0, right], [0.0, 1 / factor, 0.0]], padding)


def _perspective(x: Tensor, _: torch.Generator) -> Tensor:
    lines = torch.linspace(-1, 1, 32)
    y, across = torch.meshgrid(lines, lines, indexing="ij")
    grid = torch.stack([across * (1 + 0.5 * y), y * (1 + 0.3 * y)], -1)
    return F.grid_sample(x, grid.expand(len(x), 32, 32, 2), align_corners=False)


def covered(x: Tensor, rows: slice, columns: slice, value: float) -> Tensor:
    """Return images with a part of one value."""
    made = x.clone()
    made[:, :, rows, columns] = value
    return made


def _patched(x: Tensor, rng: torch.Generator) -> Tensor:
    made = x.clone()
    for image in made:
        for top, left in torch.randint(0, 24, (4, 2), generator=rng).tolist():
            image[:, top : top + 8, left : left + 8] = torch.rand(3, 8, 8, generator=rng)
    return made


def _framed(x: Tensor, _: torch.Generator) -> Tensor:
    made = torch.ones_like(x)
    made[:, :, 4:28, 4:28] = x[:, :, 4:28, 4:28]
    return made


def sized(x: Tensor, side: int, down: str, up: str) -> Tensor:
    """Return images at a smaller size, and back."""
    small = F.interpolate(x, size=(side, side), mode=down)
    return F.interpolate(small, size=(32, 32), mode=up)


def hue(x: Tensor, degrees: float) -> Tensor:
    """Return images whose hues are turned."""
    c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    along = (1 - c) / 3
    side = s / math.sqrt(3)
    turn = torch.tensor(
        [
            [c + along, along - side, along + side],
            [along + side, c + along, along - side],
            [along - side, along + side, c + along],
        ]
    )
    return torch.einsum("ij,njhw->nihw", turn, x)


def _rain(x: Tensor, rng: torch.Generator) -> Tensor:
    drops = (torch.rand(len(x), 1, 32, 32, generator=rng) > 0.985).float()
    streaks = sum(drops.roll((k, k // 3), (2, 3)) for k in range(7))
    return x + 0.6 * torch.as_tensor(streaks).clamp(0, 1)


def _glare(x: Tensor, _: torch.Generator) -> Tensor:
    lines = torch.linspace(-1, 1, 32)
    return x + torch.exp(-4 * ((lines + 0.5) ** 2 + (lines[:, None] + 0.5) ** 2))


def shuffled(x: Tensor, rng: torch.Generator, a_side: int) -> Tensor:
    """Return images whose patches are in random order."""
    side = 32 // a_side
    blocks = F.unfold(x, side, stride=side)
    order = torch.rand(len(x), 1, a_side**2, generator=rng).argsort(2).expand_as(blocks)
    return F.fold(blocks.gather(2, order), (32, 32), side, stride=side)


def beside(x: Tensor, _: torch.Generator) -> Tensor:
    """Return images with a strip of another."""
    made = x.clone()
    made[..., 24:] = x.roll(1, 0)[..., 24:]
    return made


def _dithered(x: Tensor, levels: int) -> Tensor:
    pattern = torch.tensor([[0.0, 0.5], [0.75, 0.25]]).repeat(16, 16) - 0.375
    return ((x * (levels - 1) + pattern).round() / (levels - 1)).clamp(0, 1)


def _cosine(keep: int) -> Tensor:
    k = torch.arange(8.0)[:, None]
    basis = torch.cos(math.pi * k * (2 * torch.arange(8.0) + 1) / 16) * 0.5
    basis[0] /= math.sqrt(2)
    return basis[:keep].T @ basis[:keep]


def _blocks(x: Tensor, _: torch.Generator) -> Tensor:
    low = _cosine(3)
    tiles = x.view(len(x), 3, 4, 8, 4, 8)
    return torch.einsum("ij,ncajbk,kl->ncaibl", low, tiles, low).reshape(x.shape)


def _interlaced(x: Tensor, _: torch.Generator) -> Tensor:
    made = x.clone()
    made[:, :, 1::2] = x[:, :, 1::2].roll(3, 3)
    return made


FAMILIES: Mapping[str, Mapping[str, Change]] = {
    "noise": {
        "uniform 0.1": lambda x, g: x + 0.2 * (torch.rand(x.shape, generator=g) - 0.5),
        "uniform 0.3": lambda x, g: x + 0.6 * (torch.rand(x.shape, generator=g) - 0.5),
        "salt 3%": lambda x, g: x.masked_fill(torch.rand(len(x), 1, 32, 32, generator=g) < 0.03, 1.0),
        "row noise": lambda x, g: x + 0.08 * noise(x, g, len(x), 1, 32, 1),
        "colour blotches": lambda x, g: x + 0.15 * F.interpolate(noise(x, g, len(x), 3, 8, 8), 32, mode="bilinear"),
        "brightness flicker": lambda x, g: x * (1 + 0.5 * noise(x, g, len(x), 1, 1, 1)),
    },
    "blur": {
        "box 3": lambda x, _: filtered(x, [[1.0] * 3] * 3),
        "box 5": lambda x, _: filtered(x, [[1.0] * 5] * 5),
        "horizontal 5": lambda x, _: filtered(x, [[1.0] * 5]),
        "vertical 9": lambda x, _: filtered(x, [[1.0]] * 9),
        "median 3": lambda x, _: _median(x),
        "ghost": lambda x, _: (x + x.roll(3, 3)) / 2,
    },
    "weather": {
        "rain": _rain,
        "glare": _glare,
        "shadow": lambda x, _: x * (0.3 + 0.7 * ramp(x)),
        "haze from above": lambda x, _: torch.lerp(x, torch.ones_like(x), 0.6 * (1 - ramp(x)[:, None])),
        "night": lambda x, g: 0.4 * x + 0.03 * noise(x, g),
        "dusk": lambda x, _: x * torch.tensor([0.9, 0.6, 0.5]).view(3, 1, 1),
    },
    "digital": {
        "dither 4 levels": lambda x, _: _dithered(x, 4),
        "dither 2 levels": lambda x, _: _dithered(x, 2),
        "cosine blocks": _blocks,
        "interlaced": _interlaced,
        "sharpened": lambda x, _: x + 2 * (x - filtered(x, [[1.0] * 3] * 3)),
        "dropped rows": lambda x, g: x * (torch.rand(len(x), 1, 32, 1, generator=g) > 0.1),
    },
    "colour": {
        "green, blue, red": lambda x, _: x.roll(1, 1),
        "hue 60": lambda x, _: hue(x, 60),
        "hue 150": lambda x, _: hue(x, 150),
        "sepia": lambda x, _: x.mean(1, keepdim=True) * torch.tensor([1.1, 0.9, 0.65]).view(3, 1, 1),
        "red channel": lambda x, _: x[:, :1].expand_as(x),
        "negative": lambda x, _: 1 - x,
    },
    "geometry": {
        "turned 10": turned(10),
        "turned 30": turned(30),
        "turned 120": turned(120),
        "upside down": lambda x, _: x.flip(2),
        "slanted": lambda x, _: warped(x, [[1.0, 0.3, 0.0], [0.0, 1.0, 0.0]], "border"),
        "perspective": _perspective,
    },
    "scale and position": {
        "shrunk to 0.8": scaled(0.8),
        "shrunk to 0.5": scaled(0.5),
        "shrunk to 0.7, mirrored": scaled(0.7, "reflection"),
        "magnified 1.3": scaled(1.3),
        "magnified 1.8": scaled(1.8),
        "moved 20%": scaled(1.0, "border", right=0.4),
    },
    "occlusion": {
        "left half": lambda x, _: covered(x, slice(None), slice(16), 0.0),
        "top third white": lambda x, _: covered(x, slice(10), slice(None), 1.0),
        "centre grey": lambda x, _: covered(x, slice(10, 22), slice(10, 22), 0.5),
        "noise patches": _patched,
        "white frame": _framed,
        "bar": lambda x, _: covered(x, slice(14, 18), slice(None), 0.0),
    },
    "composition": {
        "another image 20%": lambda x, _: torch.lerp(x, x.roll(1, 0), 0.2),
        "another image 40%": lambda x, _: torch.lerp(x, x.roll(1, 0), 0.4),
        "another image beside": beside,
        "tiles 2x2": lambda x, _: F.interpolate(x, scale_factor=0.5, mode="bilinear").repeat(1, 1, 2, 2),
        "tiles 4x4": lambda x, _: F.interpolate(x, scale_factor=0.25, mode="bilinear").repeat(1, 1, 4, 4),
        "halves exchanged": lambda x, _: x.roll(16, 3),
        "patches 4x4": lambda x, g: shuffled(x, g, 4),
    },
    "resolution": {
        "24 pixels": lambda x, _: sized(x, 24, "bilinear", "bilinear"),
        "16 pixels, squares": lambda x, _: sized(x, 16, "nearest", "nearest"),
        "16 pixels, smooth": lambda x, _: sized(x, 16, "bicubic", "bicubic"),
        "10 pixels": lambda x, _: sized(x, 10, "area", "bilinear"),
        "crop of 28": lambda x, _: F.interpolate(x[..., 2:30, 2:30], size=(32, 32), mode="bicubic"),
        "crop of 22": lambda x, _: F.interpolate(x[..., 5:27, 5:27], size=(32, 32), mode="bicubic"),
    },
}
"""Family -> name of the set -> the change."""

MIXES: Mapping[str, float | tuple[int, ...]] = {
    "Dirichlet(5)": 5.0,
    "Dirichlet(1)": 1.0,
    "Dirichlet(0.5)": 0.5,
    "Dirichlet(0.2)": 0.2,
    "six classes": (0, 2, 3, 5, 8, 9),
    "two classes": (3, 8),
}
"""Name of the set -> concentration, or the classes that are left."""


def mixed(labels: Tensor, mix: float | tuple[int, ...], images: int, seed: int) -> Tensor:
    """Return the places of images of another class mix, each at most once where there are enough."""
    rng = np.random.default_rng(seed)
    classes = int(labels.max()) + 1
    shares = rng.dirichlet(np.full(classes, mix)) if isinstance(mix, float) else np.isin(np.arange(classes), mix)
    wanted = rng.multinomial(images, shares / shares.sum())
    places = [rng.permutation(np.flatnonzero(labels.numpy() == k))[:n] for k, n in enumerate(wanted)]
    return torch.from_numpy(np.concatenate(places))
