"""Calibration: what a statistic of unlabelled inputs says of accuracy, learnt from shifted copies of a labelled set.

A user has one model and one labelled validation set. Shifting that set in known ways gives pairs of (statistics,
accuracy); a line through them turns the statistics of any unlabelled set into an accuracy (g = a mu + b, Ng et al.
2023, section 4.3; the error line of Schneider et al. 2020, section C.5). How far such lines are off for a shift they
have not seen is measured by leaving every shift out in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from shiftproof.errors import ConfigurationError
from shiftproof.estimators.catalogue import METHODS, needs, statistic, summary, values_for
from shiftproof.estimators.confidence import few
from shiftproof.estimators.evidence import Evidence
from shiftproof.estimators.neighborhoods import NeighborhoodLike
from shiftproof.estimators.references import Reference
from shiftproof.estimators.results import Estimate
from shiftproof.measures.estimation import Array, percentile_interval
from shiftproof.registry import unknown
from shiftproof.runs import Json
from shiftproof.shifts import Shift

MIN_KINDS = 4
"""A line needs shifts of this many kinds."""

LARGEST_ERROR = 0.1
"""Methods whose error on shifts they have not seen is larger than this are not to be trusted."""

MAX_LEVERAGE_RATIO = 1.2
"""A set may have so many times the largest leverage of the copies before a line is stretched too far."""


@dataclass(frozen=True)
class Copy:
    """A shifted copy of the source: its shift, its accuracy and its statistics."""

    shift: str
    accuracy: float
    inputs: int
    statistics: Mapping[str, float]

    @property
    def kind(self) -> str:
        """The shift without its severity: copies of one kind are left out together."""
        return self.shift.partition("@")[0]

    @classmethod
    def of(cls, shift: str, found: Evidence, source: Reference, others: Iterable[str] = ()) -> Copy:
        """Take a copy's numbers from what the model said of it, those of others' methods too."""
        return cls(shift, found.accuracy, len(found), summary(values_for(found, source, others)))


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
    another scale. None is the one that suits the kind of input. `others` are methods that are not ours.
    """

    source: Reference
    copies: tuple[Copy, ...]
    neighborhood: NeighborhoodLike | None = None
    n: int = 10
    others: tuple[str, ...] = ()

    def methods(self) -> tuple[str, ...]:
        """Return the methods that can be used: those whose statistics are known of copies of enough kinds."""
        enough = len({copy.kind for copy in self.copies}) >= MIN_KINDS
        known = set.intersection(*(set(copy.statistics) for copy in self.copies)) if self.copies else set()
        alone = [name for name in (*METHODS.own, *self.others) if not METHODS[name].second_model]
        able = [method for method in alone if known.issuperset(needs(method))]
        return tuple(method for method in able if enough or METHODS[method].read)

    def choose(self, statistics: Mapping[str, float]) -> str:
        """Return the method to use for a set: that with the least error on shifts it has not seen.

        Methods whose line would be stretched too far, or whose error is large, are left out where others are left.
        """
        known = self._known(statistics)
        sound = [name for name in known if self.errors[name] <= LARGEST_ERROR and not self.stretched(name, statistics)]
        return min(sound or known, key=self.errors.__getitem__)

    def auto(self, statistics: Mapping[str, float], answer: Callable[[str], Estimate]) -> Estimate:
        """Return the answer of the method that is chosen for a set, with the doubts of those it was chosen over.

        `answer` gives the estimate of any method. Where a line had to be left out, or is used though it is stretched,
        the set is unlike the copies. Then nothing says how far off any method is, and the interval spans those of all
        methods.
        """
        name = self.choose(statistics)
        errors = {method: self.errors[method] for method in self._known(statistics)}
        dropped = [method for method in sorted(errors, key=errors.__getitem__) if errors[method] < errors[name]]
        chosen, strange = answer(name), [w for method in (*dropped, name) for w in self.stretched(method, statistics)]
        if not strange:
            return chosen
        told = chosen.warnings + tuple(strange)
        if dropped:
            told += (
                f"Set aside, as their lines do not reach these inputs: {', '.join(dropped)}. {name} answers instead, "
                "further off on the calibration's own shifts; the interval spans what all methods say.",
            )
        spanned = [answer(method) for method in errors]
        return replace(
            chosen,
            low=min(one.low for one in (chosen, *spanned)),
            high=max(one.high for one in (chosen, *spanned)),
            warnings=tuple(dict.fromkeys(told)),
        )

    def _known(self, statistics: Mapping[str, float]) -> list[str]:
        """Return the methods whose statistics are known of a set."""
        return [name for name in self.methods() if set(needs(name)) <= set(statistics)]

    def predict(self, method: str, statistics: Mapping[str, float]) -> float:
        """Return the accuracy a method gives for a set's statistics, in [0, 1]."""
        if read := METHODS[method].read:
            return float(np.clip(read(self.source, statistics), 0, 1))
        return float(np.clip(_row(method, statistics) @ self._line(method).coefficients, 0, 1))

    def residuals(self, method: str) -> Array:
        """Return truth less prediction for every copy; a line is drawn without the copies of the same kind."""
        if METHODS[method].read:
            return np.array([copy.accuracy - self.predict(method, copy.statistics) for copy in self.copies])
        rows, accuracies = self._table(method)
        kinds = np.array([copy.kind for copy in self.copies])
        left = np.empty(len(rows))
        for kind in np.unique(kinds):
            out = kinds == kind
            left[out] = accuracies[out] - np.clip(rows[out] @ _fit(rows[~out], accuracies[~out]), 0, 1)
        return left

    @cached_property
    def errors(self) -> Mapping[str, float]:
        """The mean distance from the truth on copies it has not seen, in accuracy, by method."""
        return {method: float(np.abs(self.residuals(method)).mean()) for method in self.methods()}

    def estimate(self, method: str, values: Mapping[str, Array], *, inputs: int, seed: int = 0) -> Estimate:
        """Return the accuracy to expect on a set of inputs, from the values of its statistics.

        The interval holds three doubts: which inputs came (bootstrap), which shifts a line was drawn through (their
        kinds are resampled), and how far off the method is for shifts it has not seen (a held-out residual is added).
        It is as good as these shifts are like the one at hand.
        """
        now = summary({name: values[name] for name in needs(method)})
        drawn = [statistic(name).bootstrap(values[name], seed) for name in now]
        samples = (dict(zip(now, places, strict=True)) for places in zip(*drawn, strict=True))
        guesses = list(self._guesses(method, samples, np.random.default_rng([seed, inputs])))
        value = self.predict(method, now)
        low, high = np.clip(percentile_interval(guesses), 0, 1)
        return Estimate(
            accuracy=value,
            low=min(float(low), value),
            high=max(float(high), value),
            method=method,
            inputs=inputs,
            error=self.errors[method],
            warnings=few(inputs, "inputs") + self.stretched(method, now),
            facts=now,
        )

    def _guesses(
        self, method: str, samples: Iterable[Mapping[str, float]], rng: np.random.Generator
    ) -> Iterator[float]:
        """Return what a method says of resampled statistics, by lines through resampled kinds, off as it is."""
        residuals = self.residuals(method)
        if read := METHODS[method].read:
            yield from (read(self.source, sample) + rng.choice(residuals) for sample in samples)
            return
        rows, accuracies = self._table(method)
        labels = np.array([copy.kind for copy in self.copies])
        places = [np.flatnonzero(labels == kind) for kind in np.unique(labels)]
        for sample in samples:
            some = np.concatenate([places[kind] for kind in rng.integers(0, len(places), len(places))])
            yield float(_row(method, sample) @ _fit(rows[some], accuracies[some]) + rng.choice(residuals))

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
        }

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Calibration:
        """Return the calibration that `to_row` wrote."""
        infinite = -np.inf if row["source"]["accuracy"] == 1 else np.inf  # see `atc_threshold`
        source = {name: infinite if value is None else value for name, value in row["source"].items()}
        views = {name: row[name] for name in ("neighborhood", "n") if name in row}
        others = tuple(name for name in row.get("others", ()) if name in METHODS)
        return cls(Reference(**source), tuple(Copy(**copy) for copy in row["copies"]), **views, others=others)

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
        rows = np.array([_row(method, copy.statistics) for copy in self.copies])
        return rows, np.array([copy.accuracy for copy in self.copies])

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


def _row(method: str, statistics: Mapping[str, float]) -> Array:
    return np.array([*(statistics[name] for name in needs(method)), 1.0])


def _fit(rows: Array, accuracies: Array) -> Array:
    """Return the least-squares coefficients, those of least norm where they are not determined."""
    return np.asarray(np.linalg.lstsq(rows, accuracies, rcond=None)[0], np.float64)
