"""Lines through shifted copies: what turns statistics of an unlabelled set into an accuracy.

A line runs through pairs of (statistics, accuracy), one of each copy (g = a mu + b, Ng et al. 2023, section 4.3; the
error line of Schneider et al. 2020, section C.5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shiftproof.errors import ConfigurationError
from shiftproof.estimators.catalogue import METHODS, needs
from shiftproof.estimators.families import CLASS_MIX
from shiftproof.estimators.mixing import REMIXED
from shiftproof.estimators.source_copies import MIN_KINDS, Copy
from shiftproof.measures.estimation import Array
from shiftproof.registry import unknown

MAX_LEVERAGE_RATIO = 1.2
"""A set may have so many times the largest leverage of the copies before a line is stretched too far."""


@dataclass(frozen=True, eq=False)
class Line:
    """Least squares through copies: their rows, its coefficients, and what tells how far from the copies a set lies."""

    rows: Array
    coefficients: Array

    @classmethod
    def through(cls, rows: Array, accuracies: Array) -> Line:
        """Draw the line through statistics [S, d], the last of them 1, and accuracies [S]."""
        return cls(rows, _fit(rows, accuracies))

    @cached_property
    def inverse(self) -> Array:
        """That of the moments of the statistics, [d, d]."""
        return np.asarray(np.linalg.pinv(self.rows.T @ self.rows), np.float64)

    @cached_property
    def leverage(self) -> float:
        """The largest of a copy."""
        return float(np.einsum("si,ij,sj->s", self.rows, self.inverse, self.rows).max())


class CopyLines:
    """The lines of all methods through copies, each drawn once; those in other class mixes are left out of them."""

    def __init__(self, copies: Sequence[Copy], others: Sequence[str] = ()) -> None:
        self._copies = tuple(copies)
        self._through = tuple(copy for copy in copies if copy.family != CLASS_MIX)
        self._drawn: dict[str, Line] = {}
        self._remixed: dict[str, Array] = {}
        self._others = tuple(others)

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """The methods that can be used: those whose statistics are known of copies of enough kinds."""
        enough = len({copy.kind for copy in self._through}) >= MIN_KINDS
        known = set.intersection(*(set(copy.statistics) for copy in self._through)) if self._through else set()
        alone = [name for name in (*METHODS.own, *self._others) if not METHODS[name].second_model]
        able = [method for method in alone if known.issuperset(needs(method))]
        return tuple(method for method in able if enough or METHODS[method].read)

    def read(self, method: str, statistics: Mapping[str, float]) -> float:
        """Return the accuracy a line gives for a set's statistics."""
        return float(_row(method, statistics) @ self._line(method).coefficients)

    def read_rows(self, method: str, statistics: Array) -> Array:
        """Return the accuracies for many sets' statistics, [S, d] in the method's order."""
        *slopes, level = self._line(method).coefficients
        found: Array = statistics @ np.array(slopes) + level
        return found

    def read_remixed(self, method: str, statistics: Mapping[str, float]) -> float:
        """Return the same for a set brought to the source's class mix, by a line through all copies brought there."""
        if method not in self._remixed:
            known = [copy for copy in self._copies if set(needs(method)) <= set(copy.statistics)]
            rows = np.array([_row(method, at_source_mix(copy.statistics)) for copy in known])
            self._remixed[method] = _fit(rows, np.array([copy.accuracy for copy in known]))
        return float(_row(method, at_source_mix(statistics)) @ self._remixed[method])

    def left_out_alone(self, method: str) -> Array:
        """Return truth less what a line through all other copies says, for each copy."""
        rows, accuracies = self._table(method)
        alone = np.arange(len(rows))
        said = [row @ _fit(rows[alone != k], accuracies[alone != k]) for k, row in enumerate(rows)]
        left: Array = accuracies - np.clip(said, 0, 1)
        return left

    def stretched(self, method: str, now: Mapping[str, float]) -> tuple[str, ...]:
        """Return the warning that a set lies outside everything a method's line was drawn through, if it does.

        Leverage tells: how much a point with these statistics, together, would pull at the line.
        """
        if METHODS[method].read:
            return ()
        line, row = self._line(method), _row(method, now)
        if row @ line.inverse @ row <= MAX_LEVERAGE_RATIO * line.leverage:
            return ()
        told = " and ".join(f"{name.replace('_', ' ')} ({now[name]:.2f})" for name in needs(method))
        return (
            f"The inputs are unlike every shifted copy of the source in their {told}: another kind of shift, or "
            "classes in another mix.",
        )

    def _line(self, method: str) -> Line:
        if method not in self._drawn:
            self._drawn[method] = Line.through(*self._table(method))
        return self._drawn[method]

    def _table(self, method: str) -> tuple[Array, Array]:
        """Return the statistics of the copies, with a column of ones, and their accuracies."""
        if not needs(method) or METHODS[method].read:
            known = [name for name in METHODS.own if needs(name) and not METHODS[name].read]
            raise unknown("calibrated method", method, known)
        if method not in self.methods:
            raise ConfigurationError(
                f"The method {method!r} cannot be calibrated.",
                expected=f"shifted copies of {MIN_KINDS} kinds or more, each with {', '.join(needs(method))}",
                got=f"{len(self._copies)} copies that have {', '.join(self.methods) or 'no statistics'}",
            )
        names = needs(method)
        rows = np.array([[*map(copy.statistics.__getitem__, names), 1.0] for copy in self._through])
        return rows, np.array([copy.accuracy for copy in self._through])


def at_source_mix(statistics: Mapping[str, float]) -> dict[str, float]:
    """Return statistics in which those that hang on the class mix are those at the source's."""
    return {**statistics, **{name: statistics[other] for name, other in REMIXED.items() if other in statistics}}


def _row(method: str, statistics: Mapping[str, float]) -> Array:
    return np.array([*(statistics[name] for name in needs(method)), 1.0])


def _fit(rows: Array, accuracies: Array) -> Array:
    """Return the least-squares coefficients, those of least norm where they are not determined."""
    return np.asarray(np.linalg.lstsq(rows, accuracies, rcond=None)[0], np.float64)
