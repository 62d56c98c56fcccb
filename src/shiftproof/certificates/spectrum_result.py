"""What a spectral analysis returns: accuracy, mIoU or the average certified radius by frequency, and its file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shiftproof.certificates.frequencies import Band, Frequency, band_means, laid_out, radial
from shiftproof.runs import Json, write_atomically
from shiftproof.version import __version__

Measure: TypeAlias = Literal["accuracy", "miou", "acr"]

FORMAT = "shiftproof-spectrum/1"


@dataclass(frozen=True)
class Spectrum:
    """Accuracy, mIoU or average certified radius by frequency.

    `sets` is averaged over strengths. The entry `clean` of `amplitudes` is the spectrum of the images themselves; the
    others are spectra of the change a corruption makes.

    Args:
        measure: `accuracy`, `miou`, or `acr` for the average certified radius.
        model: Name of the model.
        data: Name of the data set.
        shape: Height and width of the images.
        step: Distance between measured frequencies.
        clean: The value on clean images.
        waves: The value under each wave, by its frequency.
        sets: The value under power-law noise, by (alpha, centre).
        amplitudes: Mean amplitude at radial frequencies 0, 1, 2, ..., by corruption.
        powers: Shares of the squared amplitude in each band, by corruption.
        facts: Settings of the measurement.
    """

    measure: Measure
    model: str
    data: str
    shape: tuple[int, int]
    step: int
    clean: float
    waves: Mapping[Frequency, float]
    sets: Mapping[tuple[float, float], float]
    amplitudes: Mapping[str, tuple[float, ...]]
    powers: Mapping[str, Mapping[Band, float]]
    facts: Mapping[str, Json]

    @property
    def side(self) -> float:
        """The geometric mean of height and width."""
        return math.sqrt(self.shape[0] * self.shape[1])

    def heat(self) -> NDArray[np.float64]:
        """Return `waves` as a 2-D map with the zero frequency in the centre."""
        return laid_out(self.waves, *self.shape, self.step)

    def bands(self) -> dict[Band, float]:
        """Return the mean value under waves of low, mid and high frequency."""
        return band_means([(radial(each, *self.shape), value) for each, value in self.waves.items()], self.side)

    def set_bands(self) -> dict[float, dict[Band, float]]:
        """Return, by alpha, the mean value under noise around low, mid and high centres."""
        return {
            alpha: band_means(
                [(center, value) for (other, center), value in self.sets.items() if other == alpha], self.side
            )
            for alpha in sorted({alpha for alpha, _ in self.sets})
        }

    def worst(self) -> tuple[Frequency, float]:
        """Return the wave with the lowest value, and that value."""
        return min(self.waves.items(), key=lambda each: (each[1], each[0]))

    def shares(self) -> dict[str, dict[Band, float]]:
        """Return the share of each corruption's change (in squared amplitude) in each band."""
        return {name: dict(shares) for name, shares in self.powers.items()}

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON-compatible values."""
        return {
            "format": FORMAT,
            "version": __version__,
            "model": self.model,
            "data": self.data,
            "measure": self.measure,
            "shape": list(self.shape),
            "facts": dict(self.facts),
            "clean": self.clean,
            "bands": self.bands(),
            "waves": [[*frequency, value] for frequency, value in self.waves.items()],
            "sets": [[*place, value] for place, value in self.sets.items()],
            "amplitudes": {name: list(profile) for name, profile in self.amplitudes.items()},
            "shares": self.shares(),
        }

    def save(self, path: str | Path) -> Path:
        """Write everything to a JSON file, atomically."""
        write_atomically(Path(path), json.dumps(self.to_json(), indent=1, allow_nan=False) + "\n")
        return Path(path)
