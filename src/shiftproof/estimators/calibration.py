"""Calibration: what a statistic of unlabelled inputs says of accuracy, learnt from shifted copies of a labelled set.

A user has one model and one labelled validation set. Shifting that set in known ways gives pairs of (statistics,
accuracy); a line through them turns the statistics of any unlabelled set into an accuracy (g = a mu + b, Ng et al.
2023, section 4.3; the error line of Schneider et al. 2020, section C.5). How far such lines are off for a shift of a
kind they have not seen is measured by leaving every family of shifts out in turn.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shiftproof.errors import ConfigurationError, DataError
from shiftproof.estimators.catalogue import METHODS, needs, statistic, summary, values_for
from shiftproof.estimators.confidence import few
from shiftproof.estimators.evidence import Evidence
from shiftproof.estimators.families import CLASS_MIX
from shiftproof.estimators.mixing import EXPLAINED, REMIXED, Mixing
from shiftproof.estimators.neighborhoods import NeighborhoodLike
from shiftproof.estimators.profiles import Familiarity, Place, Profile, familiarity
from shiftproof.estimators.references import Reference
from shiftproof.estimators.results import LEVEL, Estimate
from shiftproof.estimators.source_copies import CLEAN, Copy
from shiftproof.measures.conformal import grouped_quantile, largest_level
from shiftproof.measures.estimation import Array, percentile_interval
from shiftproof.registry import unknown
from shiftproof.runs import Json, write_atomically
from shiftproof.shifts import Shift

__all__ = ["Calibration", "Copy", "Line", "Said"]

MIN_KINDS = 4
"""A line needs shifts of this many kinds, and leaving out families as many of those."""

MAX_LEVERAGE_RATIO = 1.2
"""A set may have so many times the largest leverage of the copies before a line is stretched too far."""

NEARLY_BEST = 1.1
"""Methods whose error is within this factor of the least may be the best: the interval spans what they say."""

MIX_METHOD = "cbpe"
"""The method that answers where another class mix is all that changed."""


class Said(NamedTuple):
    """What a method says of a set: an accuracy, and the span between it and what it says at the source's class mix."""

    method: str
    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Line:
    """Least squares through copies: its coefficients, and what tells how far from the copies a set lies."""

    coefficients: Array
    inverse: Array
    leverage: float

    @classmethod
    def through(cls, rows: Array, accuracies: Array) -> Line:
        """Draw the line through statistics [S, d], the last of them 1, and accuracies [S]."""
        inverse = np.asarray(np.linalg.pinv(rows.T @ rows), np.float64)
        return cls(_fit(rows, accuracies), inverse, float(np.einsum("si,ij,sj->s", rows, inverse, rows).max()))


@dataclass(frozen=True)
class Calibration:
    """The source's reference and its shifted copies, from which every calibrated method draws its line.

    Invariance was taken over `n` views from the `neighborhood`; another neighbourhood, or another number of views, has
    another scale. None is the one that suits the kind of input. `others` are methods that are not ours. `mixing` finds
    class mixes and the places of sets, `classes` are names, `doubts` caveats of the source itself, and `model` tells
    which model all this is of.
    """

    source: Reference
    copies: tuple[Copy, ...]
    neighborhood: NeighborhoodLike | None = None
    n: int = 10
    others: tuple[str, ...] = ()
    mixing: Mixing | None = None
    classes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    model: str = ""

    def methods(self) -> tuple[str, ...]:
        """Return the methods that can be used: those whose statistics are known of copies of enough kinds."""
        return self._methods

    @cached_property
    def _methods(self) -> tuple[str, ...]:
        enough = len({copy.kind for copy in self._through}) >= MIN_KINDS
        known = set.intersection(*(set(copy.statistics) for copy in self._through)) if self._through else set()
        alone = [name for name in (*METHODS.own, *self.others) if not METHODS[name].second_model]
        able = [method for method in alone if known.issuperset(needs(method))]
        return tuple(method for method in able if enough or METHODS[method].read)

    def choose(self, statistics: Mapping[str, float]) -> str:
        """Return the method to use for a set: of those whose statistics are known, that with the least error."""
        return self._nearly_best(statistics)[0]

    def _nearly_best(self, statistics: Mapping[str, float]) -> list[str]:
        """Return the methods, best first, whose errors are within a tenth of the least: nothing tells which is best."""
        known = [name for name in self.methods() if name != MIX_METHOD and set(needs(name)) <= set(statistics)]
        ranked = sorted(known, key=self._choosing.__getitem__)
        return [name for name in ranked if self._choosing[name] <= NEARLY_BEST * self._choosing[ranked[0]]]

    def predict(self, method: str, statistics: Mapping[str, float]) -> float:
        """Return the accuracy a method gives for a set's statistics, in [0, 1]."""
        if read := METHODS[method].read:
            return float(np.clip(read(self.source, statistics), 0, 1))
        return float(np.clip(_row(method, statistics) @ self._line(method).coefficients, 0, 1))

    def say(self, method: str, statistics: Mapping[str, float]) -> Said:
        """Return what a method says of a set, as it is and brought to the source's class mix.

        `auto` is the method with the least error on families it has not seen; where another class mix is all that
        changed, it is the mean probability of the answers under that mix.
        """
        if method == "auto":
            if statistics.get("mix_explains", 0.0) >= EXPLAINED and MIX_METHOD in self.methods():
                value = self.predict(MIX_METHOD, statistics)
                return Said(MIX_METHOD, value, value, value)
            chosen = [self.say(name, statistics) for name in self._nearly_best(statistics)]
            low, high = min(one.low for one in chosen), max(one.high for one in chosen)
            return chosen[0]._replace(low=low, high=high)
        value, other = self.predict(method, statistics), self._remixed(method, statistics)
        return Said(method, value, min(value, other), max(value, other))

    def residuals(self, method: str) -> Array:
        """Return truth less prediction for every copy, by a calibration without its family; NaN where it has none."""
        said = zip(self.copies, self._left_out(method), strict=True)
        return np.array([np.nan if one is None else copy.accuracy - one.value for copy, one in said])

    @cached_property
    def errors(self) -> Mapping[str, float]:
        """The mean distance from the truth on families of shifts it has not seen, in accuracy, by method."""
        return {method: self._mean_by_group(np.abs(self.residuals(method))) for method in self.methods()}

    @cached_property
    def _choosing(self) -> Mapping[str, float]:
        """The errors over copies that `auto` leaves to a line: not those in which the class mix explains everything."""
        left = [c.statistics.get("mix_explains", 0.0) < EXPLAINED for c in self.copies]
        return {method: self._mean_by_group(np.abs(self.residuals(method)), left) for method in self.methods()}

    @cached_property
    def auto_error(self) -> float:
        """That of `auto`, which is chosen anew without each family: the error of the best is not the least error."""
        return self._mean_by_group(np.abs(self.residuals("auto")))

    def in_family_error(self, method: str) -> float:
        """Return the same for shifts of families it has seen: each copy alone is left out."""
        if METHODS[method].read:
            return self._mean_by_group(np.abs(self.residuals(method)))
        rows, accuracies = self._table(method)
        alone = np.arange(len(rows))
        left = [y - np.clip(row @ _fit(rows[alone != k], accuracies[alone != k]), 0, 1)
                for k, (row, y) in enumerate(zip(rows, accuracies, strict=True))]  # fmt: skip
        return float(np.abs(left).mean())

    def half_width(self, method: str, level: float) -> float:
        """Return how far around what a method says the truth lies, in a new family, with a probability of `level`.

        Infinite where the families are too few for the level (`measures.conformal`), and 0 where there is none but
        class mixes: then nothing is known of shifts.
        """
        if not self.knows_shifts:
            return 0.0
        off, groups = self._outside(method)
        return max(0.0, grouped_quantile(off, groups, level))

    @cached_property
    def knows_shifts(self) -> bool:
        """Whether there are shifted copies, beside those in other class mixes."""
        return any(family != CLASS_MIX for family in self.families)

    def worst_miss(self, method: str) -> float:
        """Return how far outside of what a method says the truth lies at most, over families it has not seen."""
        return max(0.0, float(self._outside(method)[0].max()))

    def _outside(self, method: str) -> tuple[Array, list[str]]:
        """Return how far the truth lies outside of what a method says of each copy, and the group of each."""
        off, groups = [], []
        for copy, group, said in zip(self.copies, self._groups, self._left_out(method), strict=True):
            if copy.shift != CLEAN and said is not None:
                off.append(max(said.low - copy.accuracy, copy.accuracy - said.high))
                groups.append(group)
        return np.array(off), groups

    def estimate(
        self,
        method: str,
        values: Mapping[str, Array],
        *,
        inputs: int,
        seed: int = 0,
        level: float = LEVEL,
        place: Familiarity | None = None,
    ) -> Estimate:
        """Return the accuracy to expect on a set of inputs, from the values of its statistics.

        The interval holds three doubts: whether the class mix changed (it spans what the method says either way), how
        far off it is on families of shifts it has not seen (grouped conformal quantiles), and which inputs came
        (bootstrap). For a set at a `place` unlike anything calibrated on it spans all methods and the largest miss.
        """
        now = summary(values)
        said = self.say(method, now)
        off = self.half_width(method, level)
        below, above = self._sampling(said, values, inputs, level, seed)
        low, high = said.low - off - below, said.high + off + above
        strange = self._strange(said.method, now, place)
        warnings = few(inputs, "inputs") + strange
        if not np.isfinite(off):
            allowed = largest_level(len(set(self._outside(method)[1])))
            warnings += (f"The families calibrated on support no interval at {100 * level:.0f}%: at most "
                         f"{100 * allowed:.0f}%.",)  # fmt: skip
        if strange:
            each = [self.say(name, now) for name in self.methods() if set(needs(name)) <= set(now)]
            worst = max(self.worst_miss(method), 0.0 if np.isinf(off) else off)
            low = min(low, min(one.low for one in each) - worst)
            high = max(high, max(one.high for one in each) + worst)
        return Estimate(
            accuracy=said.value,
            low=float(np.clip(low, 0, said.value)),
            high=float(np.clip(high, said.value, 1)),
            method=said.method,
            inputs=inputs,
            error=None if not self.knows_shifts else self.auto_error if method == "auto" else self.errors[method],
            warnings=warnings,
            facts={name: now[name] for name in needs(said.method)},
            level=level,
            in_family=self.in_family_error(said.method) if self.knows_shifts else None,
            unlike=bool(strange),
        )

    def _sampling(
        self, said: Said, values: Mapping[str, Array], inputs: int, level: float, seed: int
    ) -> tuple[float, float]:
        """Return how far below and above what is said the sampling of the inputs may put it.

        That of the inputs' own accuracy is held by the copies' residuals, as far as these have as few inputs.
        """
        from scipy.stats import norm

        names = needs(said.method)
        drawn = [statistic(name).bootstrap(values[name], seed) for name in names]
        guesses = [self.predict(said.method, dict(zip(names, row, strict=True))) for row in zip(*drawn, strict=True)]
        low, high = percentile_interval(guesses, level) if guesses else (said.value, said.value)
        held = np.mean([copy.inputs for copy in self.copies]) if self.copies else inputs
        truth = norm.ppf((1 + level) / 2) * np.sqrt(
            said.value * (1 - said.value) * max(0.0, 1 / inputs - 1 / float(held))
        )
        return max(0.0, said.value - low) + float(truth), max(0.0, high - said.value) + float(truth)

    def values(self, found: Evidence) -> dict[str, Array]:
        """Return the values of every statistic of a set that is known."""
        mixed = {} if self.mixing is None else self.mixing.values(found)
        return values_for(found, self.source, self.others) | mixed

    def copy_of(self, shift: str, family: str, found: Evidence) -> Copy:
        """Return a copy of the source from what the model said of it."""
        return Copy(shift, found.accuracy, len(found), summary(self.values(found)), family, self.profile(found))

    def profile(self, found: Evidence) -> Profile | None:
        """Return where a set lies, brought to the class mix of the source; None where nothing tells."""
        return None if self.mixing is None else self.mixing.profile(found)

    def familiar(self, profile: Profile | None) -> Familiarity | None:
        """Return how a set lies among the copies; None where profiles are not known."""
        places = [Place(c.shift, g, c.profile) for c, g in zip(self.copies, self._groups, strict=True) if c.profile]
        clean = next((copy.profile for copy in self.copies if copy.shift == CLEAN), None)
        if profile is None or clean is None or len(profile.mean) != len(clean.mean) or len(self.families) < MIN_KINDS:
            return None
        return familiarity(profile, places, clean)

    def _strange(self, method: str, now: Mapping[str, float], place: Familiarity | None) -> tuple[str, ...]:
        """Return the warning that a set is unlike the copies: by its place, or by the leverage of its statistics."""
        if place is not None:
            return (place.told(),) if place.unlike else ()
        return self.stretched(method, now)

    def without(self, group: str) -> Calibration:
        """Return the calibration without the copies of a family."""
        kept = tuple(copy for copy, own in zip(self.copies, self._groups, strict=True) if own != group)
        made = replace(self, copies=kept)
        made.__dict__["_methods"] = self._methods  # what can be used does not hang on what is left out for a test
        return made

    @cached_property
    def families(self) -> tuple[str, ...]:
        """The families of shifts that are left out in turn; kinds of shifts, where there are too few families."""
        return tuple(dict.fromkeys(g for c, g in zip(self.copies, self._groups, strict=True) if c.shift != CLEAN))

    @cached_property
    def _groups(self) -> tuple[str, ...]:
        told = tuple(copy.group for copy in self.copies)
        if len({g for c, g in zip(self.copies, told, strict=True) if c.shift != CLEAN}) >= MIN_KINDS:
            return told
        return tuple(copy.family if copy.family == CLASS_MIX else copy.kind for copy in self.copies)

    @cached_property
    def _through(self) -> tuple[Copy, ...]:
        """The copies that lines are drawn through: those in the source's class mix."""
        return tuple(copy for copy in self.copies if copy.family != CLASS_MIX)

    @cached_property
    def _subs(self) -> Mapping[str, Calibration]:
        return {group: self.without(group) for group in dict.fromkeys(self._groups)}

    def _left_out(self, method: str) -> list[Said | None]:
        """Return what a method says of every copy by a calibration without its family; kept once made.

        None where a copy does not have its statistics: those in other class mixes have no views.
        """
        if method not in self._said:
            known = () if method == "auto" else needs(method)
            self._said[method] = [
                (self if _direct(method) else self._subs[group]).say(method, copy.statistics)
                if set(known) <= set(copy.statistics)
                else None
                for copy, group in zip(self.copies, self._groups, strict=True)
            ]
        return self._said[method]

    @cached_property
    def _said(self) -> dict[str, list[Said | None]]:
        return {}

    def _mean_by_group(self, off: Array, some: Sequence[bool] | None = None) -> float:
        """Return the mean over families of the mean over (some of) their copies: a family is what is new."""
        by_group: dict[str, list[float]] = {}
        for k, copy in enumerate(self.copies):
            if copy.shift != CLEAN and not np.isnan(off[k]) and (some is None or some[k]):
                by_group.setdefault(self._groups[k], []).append(float(off[k]))
        return float(np.mean([np.mean(each) for each in by_group.values()])) if by_group else 0.0

    def _remixed(self, method: str, statistics: Mapping[str, float]) -> float:
        """Return what a method says of a set brought to the source's class mix, by a line through all copies so."""
        remixed = {REMIXED[name] for name in needs(method) if name in REMIXED}
        if not remixed or not remixed <= set(statistics):
            return self.predict(method, statistics)
        if METHODS[method].read:
            return self.predict(method, _at_source_mix(statistics))
        if method not in self._remixed_lines:
            rows = np.array([_row(method, _at_source_mix(copy.statistics)) for copy in self.copies])
            self._remixed_lines[method] = _fit(rows, np.array([copy.accuracy for copy in self.copies]))
        return float(np.clip(_row(method, _at_source_mix(statistics)) @ self._remixed_lines[method], 0, 1))

    @cached_property
    def _remixed_lines(self) -> dict[str, Array]:
        return {}

    def _line(self, method: str) -> Line:
        """Return a method's line through all copies, drawn once."""
        if method not in self._lines:
            self._lines[method] = Line.through(*self._table(method))
        return self._lines[method]

    @cached_property
    def _lines(self) -> dict[str, Line]:
        return {}

    def _table(self, method: str) -> tuple[Array, Array]:
        """Return the statistics of the copies, with a column of ones, and their accuracies."""
        if not needs(method) or METHODS[method].read:
            known = [name for name in METHODS.own if needs(name) and not METHODS[name].read]
            raise unknown("calibrated method", method, known)
        if method not in self.methods():
            raise ConfigurationError(
                f"The method {method!r} cannot be calibrated.",
                expected=f"shifted copies of {MIN_KINDS} kinds or more, each with {', '.join(needs(method))}",
                got=f"{len(self.copies)} copies that have {', '.join(self.methods()) or 'no statistics'}",
            )
        rows = np.array([_row(method, copy.statistics) for copy in self._through])
        return rows, np.array([copy.accuracy for copy in self._through])

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

    def to_row(self) -> dict[str, Json]:
        """Return everything as JSON values; infinite thresholds are None, and neighbourhoods are their names."""
        source = {name: value if np.isfinite(value) else None for name, value in asdict(self.source).items()}
        named = self.neighborhood.label if isinstance(self.neighborhood, Shift) else self.neighborhood
        return {
            "source": source,
            "copies": [asdict(copy) for copy in self.copies],
            "neighborhood": None if named is None else str(named),
            "n": self.n,
            **({"others": list(self.others)} if self.others else {}),
            "mixing": None if self.mixing is None else self.mixing.to_row(),
            "classes": list(self.classes),
            "doubts": list(self.doubts),
            "model": self.model,
        }

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Calibration:
        """Return the calibration that `to_row` wrote."""
        infinite = -np.inf if row["source"]["accuracy"] == 1 else np.inf  # see `atc_threshold`
        source = {name: infinite if value is None else value for name, value in row["source"].items()}
        views = {name: row[name] for name in ("neighborhood", "n") if name in row}
        mixing = row.get("mixing")
        return cls(
            Reference(**source),
            tuple(map(Copy.from_row, row["copies"])),
            **views,
            others=tuple(name for name in row.get("others", ()) if name in METHODS),
            mixing=None if mixing is None else Mixing.from_row(mixing),
            classes=tuple(row.get("classes", ())),
            doubts=tuple(row.get("doubts", ())),
            model=row.get("model", ""),
        )

    def save(self, path: str | Path) -> None:
        """Write the calibration to a file, whole or not at all."""
        write_atomically(Path(path), json.dumps(self.to_row()) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Calibration:
        """Return the calibration in a file that `save` wrote."""
        try:
            return cls.from_row(json.loads(Path(path).read_text("utf-8")))
        except Exception as error:  # damaged files fail in any way there is
            raise DataError(
                f"There is no calibration in {str(path)!r}.",
                expected="a file that `Calibration.save` wrote",
                got=f"{type(error).__name__}: {error}",
            ) from error


def _direct(method: str) -> bool:
    """Whether a method draws no line, so that nothing can be left out of it."""
    return method != "auto" and METHODS[method].read is not None


def _at_source_mix(statistics: Mapping[str, float]) -> dict[str, float]:
    """Return statistics in which those that hang on the class mix are those at the source's."""
    return {**statistics, **{name: statistics[other] for name, other in REMIXED.items() if other in statistics}}


def _row(method: str, statistics: Mapping[str, float]) -> Array:
    return np.array([*(statistics[name] for name in needs(method)), 1.0])


def _fit(rows: Array, accuracies: Array) -> Array:
    """Return the least-squares coefficients, those of least norm where they are not determined."""
    return np.asarray(np.linalg.lstsq(rows, accuracies, rcond=None)[0], np.float64)
