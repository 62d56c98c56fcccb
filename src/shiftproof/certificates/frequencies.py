"""Frequencies of images: which there are, their layout in a map, bands (low, mid, high), and what images have of each.

A frequency (i, j) is i cycles down an image and j across. The waves of (i, j) and (-i, -j) are the same, so half of a
map is measured and the other half mirrored.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shiftproof.shifts.spectral.waves import amplitude_spectrum, radial_frequency, radial_profile

Frequency: TypeAlias = tuple[int, int]
Band: TypeAlias = Literal["low", "mid", "high"]

BANDS: tuple[Band, ...] = ("low", "mid", "high")


def frequencies(height: int, width: int, step: int = 1) -> list[Frequency]:
    """Return the frequencies of an image that are multiples of `step`, one of each pair of equal waves, low ones first.

    >>> frequencies(4, 4, step=2)
    [(0, 0), (0, 2), (2, 0), (2, 2)]
    """
    found: dict[Frequency, Frequency] = {}
    for i in _multiples(height, step):
        for j in _multiples(width, step):
            same = min((i % height, j % width), (-i % height, -j % width))
            known = found.get(same)
            if known is None or (j, i) > known[::-1]:  # of the two names of a wave, the one with more cycles across
                found[same] = (i, j)
    return sorted(found.values(), key=lambda each: (math.hypot(*each), each))


def laid_out(values: Mapping[Frequency, float], height: int, width: int, step: int = 1) -> NDArray[np.float64]:
    """Return a map [rows, columns] of values by frequency, the zero frequency in its middle, gaps as NaN.

    Rows and columns are the multiples of `step` from minus to plus half of the height and the width.
    """
    down, across = _multiples(height, step), _multiples(width, step)
    made = np.full((len(down), len(across)), np.nan)
    known = {(i % height, j % width): value for (i, j), value in values.items()}
    for row, i in enumerate(down):
        for column, j in enumerate(across):
            one, other = (i % height, j % width), (-i % height, -j % width)
            made[row, column] = known.get(one, known.get(other, np.nan))
    return made


def axis(side: int, step: int = 1) -> Sequence[int]:
    """Return the frequencies along a side of a map."""
    return _multiples(side, step)


def radial(frequency: Frequency, height: int, width: int) -> float:
    """Return how far a frequency is from 0, in cycles per image side (the geometric mean of height and width)."""
    side = math.sqrt(height * width)
    return math.hypot(frequency[0] * side / height, frequency[1] * side / width)


def band(distance: float, side: float) -> Band:
    """Return which third of the frequencies up to half the side a radial frequency is in; corners are high.

    >>> [band(distance, side=32) for distance in (0, 5, 6, 10, 11, 22)]
    ['low', 'low', 'mid', 'mid', 'high', 'high']
    """
    return "low" if distance < side / 6 else "mid" if distance < side / 3 else "high"


def band_means(values: Iterable[tuple[float, float]], side: float) -> dict[Band, float]:
    """Return the mean over each band that has any of values, given as pairs of a radial frequency and a value."""
    groups: dict[Band, list[float]] = {name: [] for name in BANDS}
    for distance, value in values:
        groups[band(distance, side)].append(value)
    return {name: sum(some) / len(some) for name, some in groups.items() if some}


def amplitude_profile(images: Tensor) -> tuple[float, ...]:
    """Return the mean amplitude of images, or of changes of them, at radial frequencies 0, 1, 2, ..., side / 2."""
    return tuple(radial_profile(amplitude_spectrum(images).mean((0, 1))).tolist())


def power_shares(images: Tensor) -> dict[Band, float]:
    """Return the share of the squared amplitude of images, or of changes of them, in each band; corners are high."""
    height, width = images.shape[-2:]
    side = math.sqrt(height * width)
    power = amplitude_spectrum(images).double().square().mean((0, 1)).flatten()
    distance = radial_frequency(height, width, device=images.device).flatten()
    edges = torch.tensor([side / 6, side / 3], dtype=torch.float64, device=images.device)  # those of `band`
    sums = torch.zeros(len(BANDS), dtype=torch.float64, device=images.device)
    sums.index_add_(0, torch.bucketize(distance, edges, right=True), power)
    total = float(sums.sum()) or 1.0
    return {name: value / total for name, value in zip(BANDS, sums.tolist(), strict=True)}


def _multiples(side: int, step: int) -> list[int]:
    half = side // 2 // step * step
    return list(range(-half, half + 1, step))
