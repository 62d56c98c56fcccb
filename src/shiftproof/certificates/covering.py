"""Rotation and scaling: a grid of transformed images, each certified in L2 for as far as any image between them is.

Neither composes, since both interpolate. So the model is smoothed with Gaussian noise on values, the range is cut into
slices, and a bound M is found on how far, in L2, an image of a slice is from the nearer of its ends. Where the class is
certified at every point of the grid for a distance of M, it is the smoothed model's over the whole range (Li et al.
2021). All N points hold together: each is tested at alpha / N.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from shiftproof.certificates.radius import FloatArray
from shiftproof.certificates.rules import Grid, Rule
from shiftproof.certificates.sampling import sample_keys
from shiftproof.certificates.smoothed import ABSTAIN, Certificate, Smoothed, certify_sampled

WANTED = 0.5
"""The distance that is aimed at between an image and the nearest point of the grid, in units of the noise."""
PARTS = 8
"""Images within a slice that are looked at, which makes the bound about twice as tight."""
TRAVEL = 1.0
"""How many pixels a point may move in half a slice, at most: the bound looks at the cells around it."""
RING = 64
"""Points of the grid that are tested at a time, from the middle outwards: the first that fails ends it."""
SLICES = 32
"""Slices that are bounded at a time."""
MARGIN = 3
"""Black pixels around an image, of which the outermost cells, and those beside them, are flat."""
SLACK = 1e-4
"""What single precision may be off by in a distance."""


def warped(image: Tensor, against: str, values: Tensor) -> Tensor:
    """Return an image [C, H, W] under a rotation (degrees) or scaling (change of scale) by each of several values [P].

    It is about the centre, bilinear, and black outside: continuous in the value, as the grid needs. [P, C, H, W].
    """
    height, width = image.shape[1:]
    places = _places((height, width), _maps(against, values))
    sizes = torch.tensor([height, width], dtype=torch.float64, device=image.device)
    grid = ((2 * places + 1) / sizes - 1).flip(-1).float()  # -1 and 1 are the outer edges of the outer pixels
    several = image.expand(len(values), -1, -1, -1)
    return functional.grid_sample(several, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def _maps(against: str, values: Tensor) -> Tensor:
    """Return the linear maps from a pixel to where it is taken from, about the centre, [P, 2, 2]."""
    values = values.double()
    if against == "scaling":
        return torch.eye(2, dtype=torch.float64, device=values.device) / (1 + values).view(-1, 1, 1)
    angle = torch.deg2rad(values)
    return torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], 1).view(-1, 2, 2)


def _pixels(shape: tuple[int, int], device: torch.device) -> Tensor:
    """Return the pixels of an image as (y, x) from its centre, [H, W, 2]."""
    axes = [torch.arange(side, dtype=torch.float64, device=device) - (side - 1) / 2 for side in shape]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), -1)


def _places(shape: tuple[int, int], maps: Tensor) -> Tensor:
    """Return where each pixel is taken from by maps, [P, H, W, 2] as (y, x) in pixels."""
    centre = torch.tensor([(side - 1) / 2 for side in shape], dtype=torch.float64, device=maps.device)
    return torch.einsum("pij,hwj->phwi", maps, _pixels(shape, maps.device)) + centre


@dataclass(frozen=True)
class Cover:
    """A grid over a range, with a bound on how far, in L2, any image of the range is from the nearest of its points."""

    points: FloatArray
    distance: float


def cover(image: Tensor, against: str, limit: float, sigma: float) -> Cover:
    """Return a grid that covers a range of rotations (degrees) or scales (share) of an image [C, H, W]."""
    far = float(_pixels((image.shape[1], image.shape[2]), image.device).norm(dim=-1).max())
    speed = far * _speed(against, torch.tensor([-limit])).item()  # pixels per unit, at most
    rough = float(_slopes(image, against, torch.zeros(1), torch.zeros(1)))
    step = min(2 * TRAVEL / speed, 4 * WANTED * sigma / max(rough, 1e-9))
    half = max(1, math.ceil(limit / step))
    points = np.linspace(-limit, limit, 2 * half + 1)
    return Cover(points, _largest_distance(image, against, points))


def _speed(against: str, low: Tensor) -> Tensor:
    """Return how fast the point that a pixel is taken from moves, per unit of its distance from the centre, at most.

    `low` are the lower ends of slices: of scales, the smallest is the fastest.
    """
    return (1 + low.double()) ** -2.0 if against == "scaling" else torch.full_like(low, math.radians(1)).double()


def _largest_distance(image: Tensor, against: str, points: FloatArray) -> float:
    """Return a bound on the distance between an image of the range and the nearer end of its slice.

    Between neighbouring sub-samples j and j + 1 of a slice, at spacing d, no image is further from an end than
    (m_j + m_j+1) / 2 + slope d / 2, m being the distance of a sub-sample from the nearer end.
    """
    worst = 0.0
    shares = torch.linspace(0, 1, PARTS + 1, dtype=torch.float64, device=image.device)
    for begin in range(0, len(points) - 1, SLICES):
        ends = torch.from_numpy(points[begin : begin + SLICES + 1]).to(image.device)
        low, width = ends[:-1], ends.diff()
        inside = warped(image, against, (low[:, None] + width[:, None] * shares).flatten())
        inside = inside.view(len(low), PARTS + 1, -1)
        away = torch.minimum((inside - inside[:, :1]).norm(dim=2), (inside - inside[:, -1:]).norm(dim=2)).double()
        slopes = _slopes(image, against, low + width / 2, low)
        bound = (away[:, 1:] + away[:, :-1]).amax(1) / 2 + slopes * width / PARTS / 2
        worst = max(worst, float(bound.max()))
    return worst * (1 + SLACK) + SLACK


def _slopes(image: Tensor, against: str, middles: Tensor, low: Tensor) -> Tensor:
    """Return how fast, at most, an image changes in L2 with the parameter in slices of some middles and low ends, [P].

    A pixel's value changes at most by the speed at which the point it is taken from moves, times the largest slope of
    the image in the nine cells around that point.
    """
    shape = (image.shape[1], image.shape[2])
    wide = functional.pad(image.double(), (MARGIN,) * 4)  # black, and the fade into it
    across, down = wide.diff(dim=2).abs(), wide.diff(dim=1).abs()
    across = torch.maximum(across[:, 1:], across[:, :-1])  # the larger of the two edges of a cell
    down = torch.maximum(down[:, :, 1:], down[:, :, :-1])
    steep = functional.max_pool2d(across.square() + down.square(), 3, stride=1, padding=1).sum(0)
    cells = _places(shape, _maps(against, middles.to(image.device))).floor().long() + MARGIN
    rows, columns = (cells[..., axis].clamp(0, steep.shape[axis] - 1) for axis in (0, 1))  # the outermost are flat
    distance = _pixels(shape, image.device).norm(dim=-1)
    squares: Tensor = (steep[rows, columns] * distance.square()).sum((1, 2))
    return squares.sqrt() * _speed(against, low.to(image.device))


def certify_covered(
    smoothed: Smoothed,
    image: Tensor,
    key: int,
    label: int | None,
    rule: Grid,
    *,
    n0: int,
) -> Certificate:
    """Certify a range of rotations or scales of one image [C, H, W]; the radius is how far either way."""
    image = image.to(smoothed.device)
    (choice,) = smoothed.choose(image[None], [key], n0)
    if label is not None and choice != label:
        return Certificate(ABSTAIN, 0.0, choice, 0, 0, skipped=True)
    made = cover(image, rule.against, rule.limit, rule.sigma)
    points, total = made.points, len(made.points)
    tested = rule.at_point(made.distance, total)
    hits = samples = 0
    order = np.argsort(np.abs(points), kind="stable")
    held = -1.0
    for begin in range(0, total if tested is not None else 0, RING):
        ring = order[begin : begin + RING]
        values = torch.from_numpy(points[ring]).to(image.device)
        found = _tested(smoothed, warped(image, rule.against, values), key, ring, choice, tested)
        hits += sum(each.hits for each in found)
        samples += sum(each.samples for each in found)
        good = [each.radius >= made.distance for each in found]
        if not all(good):
            failed = np.abs(points[ring[good.index(False)]])
            inner = np.abs(points[np.abs(points) < failed - 1e-9])
            held = float(inner.max()) if len(inner) and begin + good.index(False) > 0 else -1.0
            break
    else:
        held = rule.limit if tested is not None else -1.0
    whole = held >= rule.limit
    claimed = held if held > 0 and (whole or not rule.whole) else 0.0
    return Certificate(choice if claimed > 0 else ABSTAIN, claimed, choice, hits, samples)


def _tested(
    smoothed: Smoothed, images: Tensor, key: int, ring: NDArray[np.int64], choice: int, rule: Rule | None
) -> list[Certificate]:
    """Test points of a grid for one class; every point has noise of its own."""
    if rule is None:
        return []
    own = sample_keys(np.full(len(ring), key, np.int64).astype(np.uint64), ring.astype(np.int64) + 2**40)
    sampler = smoothed.sampler(images.clamp(0, 1), torch.from_numpy(own.view(np.int64)))
    return certify_sampled(sampler, rule, 0, None, np.full(len(images), choice))
