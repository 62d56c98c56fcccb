"""Which known shifts, at which strengths, move the signature of a labelled source to that of new images.

A shift is a curve from nothing to severity 5, measured at some severities on the source; a single shift is the nearest
point of all curves. Two shifts one after the other make the sum of two points and what they do to each other, which was
measured at one severity of both and grows with either. What a change of class mix can do is left out of account.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

STEP, HIGHEST, LEAST = 0.25, 5.0, 0.5
"""Severities between which a fit looks first, the highest, and the least of a shift that is one of two."""
TOGETHER = 2.0
"""The severity at which two shifts were measured together."""
MOST_TOGETHER = 1.5
"""What shifts do to each other grows with their size, up to so many times that at the severity measured."""

Floats: TypeAlias = NDArray[np.float64]


class KnownShift(NamedTuple):
    """A shift of a fit, and its severity."""

    kind: str
    severity: float


class Fit(NamedTuple):
    """Shifts, the first applied first, that make a change like the one seen, and what is left, as a squared length.

    The squared error of the curves is taken off, so that it may be below 0: a kind that was measured less exactly is
    not less likely for it.
    """

    parts: tuple[KnownShift, ...]
    left: float

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of its shifts."""
        return frozenset(part.kind for part in self.parts)


@dataclass(frozen=True, eq=False)
class Curves:
    """The changes that shifts make, [kinds, severities, D], at severities above 0, and two together, [kinds, kinds, D].

    `together[i, j]` is what i and then j change beyond the sum of both, at `TOGETHER`; None where it was not measured.
    `errors` [kinds, severities] are the squared lengths of what is expected of the points' errors; None is no error.
    """

    kinds: tuple[str, ...]
    severities: tuple[float, ...]
    points: Floats
    together: Floats | None = None
    errors: Floats | None = None

    @cached_property
    def grid(self) -> Floats:
        """The severities that a fit looks at first."""
        return np.arange(STEP, HIGHEST + STEP / 2, STEP)

    def at(self, kind: int, severities: Floats) -> Floats:
        """Return the changes of a shift at severities, between those measured by a monotone cubic."""
        return _curve(self.severities, self.points[kind], severities)

    def changed_by(self, parts: tuple[KnownShift, ...]) -> Floats:
        """Return the change that shifts one after the other should make."""
        places = [self.kinds.index(part.kind) for part in parts]
        alone = [self.at(place, np.array([part.severity]))[0] for place, part in zip(places, parts, strict=True)]
        made: Floats = np.sum(alone, axis=0)
        if len(parts) == 2 and self.together is not None:
            sizes = [
                min(float(np.linalg.norm(change) / self._size(place)), MOST_TOGETHER)
                for place, change in zip(places, alone, strict=True)
            ]
            made = made + sizes[0] * sizes[1] * self.together[places[0], places[1]]
        return made

    def of(self, kinds: tuple[str, ...]) -> Curves:
        """Return the curves of some kinds."""
        kept = [self.kinds.index(kind) for kind in kinds]
        together = None if self.together is None else self.together[np.ix_(kept, kept)]
        errors = None if self.errors is None else self.errors[kept]
        return Curves(kinds, self.severities, self.points[kept], together, errors)

    def error_of(self, parts: tuple[KnownShift, ...]) -> float:
        """Return the squared error that is expected of the change of some shifts."""
        if self.errors is None:
            return 0.0
        own = ((self.errors[self.kinds.index(part.kind)], part.severity) for part in parts)
        return sum(float(_curve(self.severities, errors[:, None], np.array([at]))[0, 0]) for errors, at in own)

    def singles(self, change: Floats) -> list[Fit]:
        """Return the best fit of every shift alone, the best first."""
        lefts = (self._lengths - 2 * self._atoms @ change + change @ change).reshape(len(self.kinds), -1)
        lefts = lefts - self._grid_errors
        found = [
            Fit((KnownShift(kind, severity),), left)
            for kind, (severity, left) in zip(self.kinds, (_between(self.grid, own) for own in lefts), strict=True)
        ]
        return sorted(found, key=lambda fit: fit.left)

    def pairs(self, change: Floats) -> list[Fit]:
        """Return the best fit of every two shifts in each order, the best first."""
        size, along = float(change @ change), self._atoms @ change
        strong = self.grid >= LEAST
        steps = len(self.grid)
        alone = ((self._lengths - 2 * along).reshape(-1, steps) - self._grid_errors)[:, strong]
        found = []
        for one, other in permutations(range(len(self.kinds)), 2):
            both = self._products[one * steps : (one + 1) * steps, other * steps : (other + 1) * steps]
            lefts = size + alone[one][:, None] + alone[other] + 2 * both[np.ix_(strong, strong)]
            if self.together is not None:
                grown = np.outer(self._growth[one], self._growth[other])[np.ix_(strong, strong)]
                joint = self.together[one, other]
                mixed = self._mixed[:, one, other].reshape(-1, steps)[:, strong]
                lefts = lefts + 2 * grown * (mixed[one][:, None] + mixed[other] - joint @ change)
                lefts = lefts + grown**2 * float(joint @ joint)
            row, column = np.unravel_index(int(lefts.argmin()), lefts.shape)
            first, low = _between(self.grid[strong], lefts[:, column])
            second, lowest = _between(self.grid[strong], lefts[row])
            parts = KnownShift(self.kinds[one], first), KnownShift(self.kinds[other], second)
            found.append(Fit(parts, min(low, lowest)))
        return sorted(found, key=lambda fit: fit.left)

    def slopes(self, parts: tuple[KnownShift, ...], step: float = 0.1) -> Floats:
        """Return how the change grows with the severity of each part, [parts, D]."""
        made = []
        for place, part in enumerate(parts):
            ends = [
                self.changed_by((*parts[:place], part._replace(severity=severity), *parts[place + 1 :]))
                for severity in (max(0.0, part.severity - step), min(HIGHEST, part.severity + step))
            ]
            made.append((ends[1] - ends[0]) / (min(HIGHEST, part.severity + step) - max(0.0, part.severity - step)))
        return np.stack(made)

    def interpolation_error(self, kind: str) -> float:
        """Return how far off a severity is between those measured: half of what it is off at one left out."""
        place = self.kinds.index(kind)
        off = []
        for left_out in range(1, len(self.severities) - 1):
            kept = [number for number in range(len(self.severities)) if number != left_out]
            others = Curves((kind,), tuple(self.severities[number] for number in kept), self.points[[place]][:, kept])
            found = others.singles(self.points[place, left_out])[0].parts[0].severity
            off.append(found - self.severities[left_out])
        return 0.5 * float(np.sqrt(np.mean(np.square(off)))) if off else 0.0

    @cached_property
    def _atoms(self) -> Floats:
        """The changes at all severities of the grid, kind after kind, [kinds x grid, D]."""
        return np.concatenate([self.at(kind, self.grid) for kind in range(len(self.kinds))])

    @cached_property
    def _grid_errors(self) -> Floats:
        """The squared errors at all severities of the grid, [kinds, grid]."""
        errors = np.zeros((len(self.kinds), len(self.severities))) if self.errors is None else self.errors
        return _curve(self.severities, errors.T, self.grid).T

    @cached_property
    def _products(self) -> Floats:
        return np.asarray(self._atoms @ self._atoms.T)

    @property
    def _lengths(self) -> Floats:
        return np.diag(self._products)

    def _size(self, kind: int) -> float:
        return float(np.linalg.norm(self.at(kind, np.array([TOGETHER]))[0]))

    @cached_property
    def _growth(self) -> Floats:
        """What shifts do to each other, as times that at `TOGETHER`, [kinds, grid]."""
        sizes = np.sqrt(np.maximum(self._lengths, 0.0)).reshape(len(self.kinds), -1)
        at = np.array([self._size(kind) for kind in range(len(self.kinds))])
        return np.asarray(np.minimum(sizes / at[:, None], MOST_TOGETHER))

    @cached_property
    def _mixed(self) -> Floats:
        """Products of atoms with what shifts do to each other, [kinds x grid, kinds, kinds]."""
        if self.together is None:
            return np.zeros((len(self._atoms), 0, 0))
        return np.asarray(np.tensordot(self._atoms, self.together, (1, 2)))


def left_out_shares(curves: Curves) -> Floats:
    """Return which shares of the change of each kind, at each measured severity, the other kinds leave unexplained."""
    if len(curves.kinds) < 2:
        return np.ones(1)  # there are no others
    found = []
    for place, kind in enumerate(curves.kinds):
        others = curves.of(tuple(other for other in curves.kinds if other != kind))
        for change in curves.points[place]:
            fits = [*others.singles(change)[:1], *others.pairs(change)[:1]]
            left = max(0.0, min(fit.left for fit in fits)) / max(float(change @ change), 1e-12)
            found.append(min(1.0, left))  # what nothing leaves
    return np.array(found)


def _curve(known: tuple[float, ...], points: Floats, severities: Floats) -> Floats:
    from scipy.interpolate import PchipInterpolator

    whole = np.concatenate([np.zeros((1, points.shape[1])), points])
    return np.asarray(PchipInterpolator([0.0, *known], whole)(np.clip(severities, 0.0, known[-1])))


def _between(grid: Floats, values: Floats) -> tuple[float, float]:
    """Return where a parabola through the least of values and its neighbours is least, and its value there."""
    place = min(max(int(values.argmin()), 1), len(values) - 2)
    before, least, after = values[place - 1 : place + 2]
    slope, bend = (after - before) / 2, before - 2 * least + after
    moved = float(np.clip(-slope / bend, -1, 1)) if bend > 0 else float(values.argmin() - place)
    return float(grid[place] + moved * (grid[1] - grid[0])), float(least + slope * moved + bend * moved**2 / 2)
