"""How far off a calibration is on families of shifts it has not seen: each is left out in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from shiftproof.estimators.catalogue import METHODS, needs
from shiftproof.estimators.families import CLASS_MIX
from shiftproof.estimators.mixing import EXPLAINED
from shiftproof.estimators.source_copies import CLEAN, groups_of
from shiftproof.measures.conformal import grouped_quantile, largest_level
from shiftproof.measures.estimation import Array

if TYPE_CHECKING:
    from shiftproof.estimators.calibration import Calibration, Said


class FamilyErrors:
    """What a calibration says of its own copies without their families, against the truth."""

    def __init__(self, calibration: Calibration) -> None:
        self._calibration = calibration
        self._copies = calibration.copies
        self._groups = groups_of(calibration.copies)
        self._said: dict[str, list[Said | None]] = {}
        self._within: dict[str, float] = {}
        self._values: dict[str, list[float | None]] = {}

    @cached_property
    def families(self) -> tuple[str, ...]:
        """The families of shifts that are left out in turn; kinds of shifts, where there are too few families."""
        return tuple(dict.fromkeys(g for c, g in zip(self._copies, self._groups, strict=True) if c.shift != CLEAN))

    @property
    def knows_shifts(self) -> bool:
        """Whether there are shifted copies, beside those in other class mixes."""
        return any(family != CLASS_MIX for family in self.families)

    def residuals(self, method: str) -> Array:
        """Return truth less prediction for every copy, by a calibration without its family; NaN where it has none."""
        said = zip(self._copies, self._left_out_values(method), strict=True)
        return np.array([np.nan if value is None else copy.accuracy - value for copy, value in said])

    @cached_property
    def by_method(self) -> Mapping[str, float]:
        """The mean distance from the truth, in accuracy, by method."""
        return {method: self._mean(np.abs(self.residuals(method))) for method in self._calibration.methods()}

    @cached_property
    def choosing(self) -> Mapping[str, float]:
        """The same over copies that `auto` leaves to a line: not those in which the class mix explains everything."""
        left = [copy.statistics.get("mix_explains", 0.0) < EXPLAINED for copy in self._copies]
        return {method: self._mean(np.abs(self.residuals(method)), left) for method in self._calibration.methods()}

    @cached_property
    def auto(self) -> float:
        """That of `auto`, which is chosen anew without each family: the error of the best is not the least error."""
        return self._mean(np.abs(self.residuals("auto")))

    def within(self, method: str) -> float:
        """Return the same for shifts of families it has seen: each copy alone is left out."""
        if method not in self._within:
            direct = METHODS[method].read is not None
            off = np.abs(self.residuals(method) if direct else self._calibration.lines.left_out_alone(method))
            self._within[method] = self._mean(off) if direct else float(off.mean())
        return self._within[method]

    def half_width(self, method: str, level: float) -> float:
        """Return how far around what a method says the truth lies, in a new family, with a probability of `level`.

        Infinite where the families are too few for the level (`measures.conformal`), and 0 where there is none but
        class mixes: then nothing is known of shifts.
        """
        if not self.knows_shifts:
            return 0.0
        off, groups = self._outside(method)
        return max(0.0, grouped_quantile(off, groups, level))

    def largest_level(self, method: str) -> float:
        """Return the largest level that the families support."""
        return largest_level(len(set(self._outside(method)[1])))

    def worst_miss(self, method: str) -> float:
        """Return how far outside of what a method says the truth lies at most."""
        return max(0.0, float(self._outside(method)[0].max()))

    def _outside(self, method: str) -> tuple[Array, list[str]]:
        """Return how far the truth lies outside of what a method says of each copy, and the group of each."""
        off, groups = [], []
        for copy, group, said in zip(self._copies, self._groups, self._left_out(method), strict=True):
            if copy.shift != CLEAN and said is not None:
                off.append(max(said.low - copy.accuracy, copy.accuracy - said.high))
                groups.append(group)
        return np.array(off), groups

    def _left_out(self, method: str) -> list[Said | None]:
        """Return what a method says of every copy by a calibration without its family; kept once made.

        None where a copy does not have its statistics: those in other class mixes have no views.
        """
        if method not in self._said:
            self._said[method] = [
                None if judge is None else judge.say(method, copy.statistics)
                for copy, judge in zip(self._copies, self._judges(method), strict=True)
            ]
        return self._said[method]

    def _left_out_values(self, method: str) -> list[float | None]:
        """Return the values of `_left_out` alone, which take a fraction of its time; kept once made."""
        if method == "auto" or method in self._said:
            return [None if one is None else one.value for one in self._left_out(method)]
        if method not in self._values:
            self._values[method] = [
                None if judge is None else judge.predict(method, copy.statistics)
                for copy, judge in zip(self._copies, self._judges(method), strict=True)
            ]
        return self._values[method]

    def _judges(self, method: str) -> list[Calibration | None]:
        """Return, for every copy, the calibration that did not see its family; None where it lacks the statistics."""
        direct = method != "auto" and METHODS[method].read is not None  # it draws no line to leave anything out of
        known = set() if method == "auto" else set(needs(method))
        return [
            (self._calibration if direct else self._without[group]) if known <= copy.statistics.keys() else None
            for copy, group in zip(self._copies, self._groups, strict=True)
        ]

    @cached_property
    def _without(self) -> Mapping[str, Calibration]:
        return {group: self._calibration.without(group) for group in dict.fromkeys(self._groups)}

    def _mean(self, off: Array, some: Sequence[bool] | None = None) -> float:
        """Return the mean over families of the mean over (some of) their copies: a family is what is new."""
        by_group: dict[str, list[float]] = {}
        for k, copy in enumerate(self._copies):
            if copy.shift != CLEAN and not np.isnan(off[k]) and (some is None or some[k]):
                by_group.setdefault(self._groups[k], []).append(float(off[k]))
        return float(np.mean([np.mean(each) for each in by_group.values()])) if by_group else 0.0
