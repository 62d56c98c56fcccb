"""Profiles: where a set of inputs lies among the source and its shifted copies, in feature and output space.

Two sets are compared by the means of their coordinates, less what the sampling of so many inputs would put between
them: distances do not depend on the number of inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from shiftproof.estimators import stored_numbers as stored
from shiftproof.estimators.evidence import Evidence
from shiftproof.measures.conformal import grouped_p_value
from shiftproof.measures.estimation import Array
from shiftproof.runs import Json

COORDINATES = 32
"""Principal coordinates of the source's features that are looked at."""

FLAGGED = 0.1
"""A set is unlike anything calibrated on where no more than this share of unseen families lie as far away."""

DIFFERENT = 0.01
"""The level of the test that a set is another than the source."""


@dataclass(frozen=True)
class Profile:
    """The mean coordinates of a set, and the variance of each of these means."""

    mean: tuple[float, ...]
    noise: tuple[float, ...]

    def distance(self, other: Profile) -> float:
        """Return how far apart two sets are, in standard deviations of the source, without sampling noise."""
        gap = np.square(np.subtract(self.mean, other.mean)).sum() - np.add(self.noise, other.noise).sum()
        return float(np.sqrt(max(0.0, gap)))

    def same(self, other: Profile) -> float:
        """Return the p-value that two sets are drawn alike: the largest z-score of a coordinate, by Bonferroni."""
        from scipy.stats import norm

        spread = np.sqrt(np.maximum(np.add(self.noise, other.noise), 1e-12))
        largest = float((np.abs(np.subtract(self.mean, other.mean)) / spread).max())
        return float(min(1.0, 2 * len(self.mean) * norm.sf(largest)))


@dataclass(frozen=True)
class Profiler:
    """Coordinates in which sets are compared: whitened principal features of the source, and how sure answers are.

    Features are what the model's last linear layer saw, or the logits where there are none. `center` [F] and
    `projection` [D][F] make coordinates of them, `level` and `unit` [S] of output scores.
    """

    features: bool
    center: tuple[float, ...]
    projection: tuple[tuple[float, ...], ...]
    level: tuple[float, ...]
    unit: tuple[float, ...]

    @classmethod
    def of(cls, source: Evidence, scores: Array) -> Profiler:
        """Learn coordinates from the source and its output scores [N, S]."""
        rows = _rows(source, source.features is not None)
        center = rows.mean(0)
        _, singular, axes = np.linalg.svd(rows - center, full_matrices=False)
        spread = singular / np.sqrt(max(1, len(rows) - 1))
        kept = min(COORDINATES, max(1, len(rows) // 10), int((spread > 1e-3 * spread[0]).sum()))
        return cls(
            features=source.features is not None,
            center=tuple(center.tolist()),
            projection=tuple(map(tuple, (axes[:kept] / spread[:kept, None]).tolist())),
            level=tuple(scores.mean(0).tolist()),
            unit=tuple(np.maximum(scores.std(0), 1e-6).tolist()),
        )

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Profiler:
        """Return what `to_row` wrote."""
        center, level = stored.vector(row["center"]), stored.vector(row["level"])
        return cls(
            features=bool(row["features"]),
            center=center,
            projection=stored.matrix(row["projection"], len(center)),
            level=level,
            unit=stored.vector(row["unit"], len(level), low=1e-9),
        )

    def to_row(self) -> dict[str, Json]:
        """Return everything as JSON-compatible values."""
        return asdict(self)

    def coordinates(self, found: Evidence, scores: Array) -> Array:
        """Return the coordinates of inputs, [N, S + D]: outputs, then features; [N, S] where there are none."""
        outside: Array = (scores - np.array(self.level)) / np.array(self.unit)
        if self.features and found.features is None:
            return outside
        inside = (_rows(found, self.features) - np.array(self.center)) @ np.array(self.projection).T
        return np.concatenate([outside, inside], 1)


def profile_of(coordinates: Array, weights: Array) -> Profile:
    """Return the profile of inputs [N, D] with weights [N] of mean 1."""
    mean = (weights[:, None] * coordinates).mean(0)
    noise = (np.square(weights[:, None]) * np.square(coordinates - mean)).mean(0) / len(coordinates)
    return Profile(tuple(mean.tolist()), tuple(noise.tolist()))


@dataclass(frozen=True)
class Familiarity:
    """How a set lies among the copies: the nearest of them, how far away, and how common that is for new families.

    `different` is the p-value that the set is like the source at all: with many inputs nearly everything differs.
    """

    nearest: str
    family: str
    distance: float
    p_value: float
    different: float
    unlike: bool

    def told(self) -> str:
        """Say that the set is unlike anything calibrated on, if it is."""
        if not self.unlike:
            return ""
        return (
            f"The inputs are unlike anything calibrated on; the nearest known shift is {self.nearest} ({self.family}), "
            "further away than shifts of one family are from those of the others."
        )


@dataclass(frozen=True)
class Place:
    """A set with a profile: the name of its shift, and its family."""

    name: str
    family: str
    profile: Profile


def left_out_distances(places: Sequence[Place]) -> list[float]:
    """Return how far each copy lies from the nearest of other families."""
    return [
        min(one.profile.distance(other.profile) for other in places if other.family != one.family) for one in places
    ]


def familiarity(
    profile: Profile, places: Sequence[Place], source: Profile, left_out: Sequence[float] | None = None
) -> Familiarity:
    """Return how a set lies among copies of several families, whose `left_out_distances` may be known already."""
    left_out = left_out_distances(places) if left_out is None else left_out
    families = [one.family for one in places]
    distances = [profile.distance(one.profile) for one in places]
    nearest = int(np.argmin(distances))
    p = grouped_p_value(distances[nearest], left_out, families)
    least = 1 / (1 + len(set(families)))
    return Familiarity(
        places[nearest].name,
        places[nearest].family,
        distances[nearest],
        p,
        profile.same(source),
        unlike=p <= max(FLAGGED, least + 1e-9),
    )


def _rows(found: Evidence, features: bool) -> Array:
    rows = found.features if features else found.logits
    return np.asarray(rows, np.float64)
