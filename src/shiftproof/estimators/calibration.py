"""Calibration: what a statistic of unlabelled inputs says of accuracy, learnt from shifted copies of a labelled set.

A user has one model and one labelled validation set. Shifting that set in known ways gives pairs of (statistics,
accuracy); a line through them turns the statistics of any unlabelled set into an accuracy (`lines`). How far such lines
are off for a shift of a kind they have not seen is measured by leaving every family of shifts out in turn
(`family_errors`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shiftproof.errors import DataError
from shiftproof.estimators import stored_numbers as stored
from shiftproof.estimators.catalogue import METHODS, needs, summary, values_for
from shiftproof.estimators.evidence import Evidence
from shiftproof.estimators.family_errors import FamilyErrors
from shiftproof.estimators.lines import CopyLines, at_source_mix
from shiftproof.estimators.mixing import EXPLAINED, REMIXED, ClassMix, Mixing
from shiftproof.estimators.neighborhoods import NeighborhoodLike
from shiftproof.estimators.profiles import Familiarity, Place, Profile, familiarity, left_out_distances
from shiftproof.estimators.references import Reference
from shiftproof.estimators.results import LEVEL, Estimate
from shiftproof.estimators.source_copies import CLEAN, MIN_KINDS, Copy, groups_of
from shiftproof.measures.estimation import Array
from shiftproof.runs import Json, write_atomically
from shiftproof.shifts import Shift

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


@dataclass(frozen=True)
class Calibration:
    """Statistics of the labelled source and its shifted copies, to which every calibrated method is fitted.

    Invariance is measured over `n` views from the `neighborhood` and is only comparable for the same neighbourhood and
    number of views. A `neighborhood` of None is the default for the kind of input.

    Args:
        source: Statistics of the labelled source.
        copies: Statistics of its shifted copies.
        neighborhood: Neighbourhood that augmented views are drawn from.
        n: Number of views per input.
        others: Methods of plugins that are used too.
        mixing: Estimates class mixes, and where a set lies among the copies.
        classes: Names of the classes.
        doubts: Caveats on the source itself.
        model: Fingerprint of the model.
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

    @cached_property
    def lines(self) -> CopyLines:
        """The lines through the copies."""
        return CopyLines(self.copies, self.others)

    @cached_property
    def family_errors(self) -> FamilyErrors:
        """Errors on families of shifts left out of the calibration."""
        return FamilyErrors(self)

    @property
    def families(self) -> tuple[str, ...]:
        """The families of shifts in the calibration."""
        return self.family_errors.families

    @property
    def errors(self) -> Mapping[str, float]:
        """Mean absolute error on held-out families of shifts, as a fraction, by method."""
        return self.family_errors.by_method

    @property
    def auto_error(self) -> float:
        """That of `auto`."""
        return self.family_errors.auto

    def methods(self) -> tuple[str, ...]:
        """Return the usable methods: those whose statistics are known for enough kinds of copies."""
        return self.lines.methods

    def predict(self, method: str, statistics: Mapping[str, float]) -> float:
        """Return the accuracy a method gives for a set's statistics, in [0, 1]."""
        read = METHODS[method].read
        said = self.lines.read(method, statistics) if read is None else read(self.source, statistics)
        return min(max(float(said), 0.0), 1.0)  # numpy's own takes longer than all the rest

    def say(self, method: str, statistics: Mapping[str, float]) -> Said:
        """Return a method's estimate for a set, with its own class mix and with the source's.

        `auto` is the method with the smallest error on held-out families; if only the class mix changed, it is the mean
        probability of the predictions under that mix.
        """
        if method == "auto":
            able = MIX_METHOD in self.methods() and set(needs(MIX_METHOD)) <= set(statistics)
            if able and statistics.get("mix_explains", 0.0) >= EXPLAINED:
                value = self.predict(MIX_METHOD, statistics)
                return Said(MIX_METHOD, value, value, value)
            chosen = [self.say(name, statistics) for name in self._nearly_best(statistics)]
            low, high = min(one.low for one in chosen), max(one.high for one in chosen)
            return chosen[0]._replace(low=low, high=high)
        value, other = self.predict(method, statistics), self._remixed(method, statistics)
        return Said(method, value, min(value, other), max(value, other))

    def choose(self, statistics: Mapping[str, float]) -> str:
        """Return the method for a set: of those whose statistics are known, the one with the smallest error."""
        return self._nearly_best(statistics)[0]

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
        """Return the estimated accuracy on a set, with its interval (`estimate_intervals`)."""
        from shiftproof.estimators.estimate_intervals import with_interval

        return with_interval(self, method, values, inputs=inputs, seed=seed, level=level, place=place)

    def _remixed(self, method: str, statistics: Mapping[str, float]) -> float:
        """Return what a method says of a set brought to the source's class mix."""
        remixed = {REMIXED[name] for name in needs(method) if name in REMIXED}
        if not remixed or not remixed <= set(statistics):
            return self.predict(method, statistics)
        if METHODS[method].read:
            return self.predict(method, at_source_mix(statistics))
        return float(np.clip(self.lines.read_remixed(method, statistics), 0, 1))

    def _nearly_best(self, statistics: Mapping[str, float]) -> list[str]:
        """Return the methods, best first, whose errors are within a tenth of the least: nothing tells which is best."""
        known = [name for name in self.methods() if name != MIX_METHOD and set(needs(name)) <= set(statistics)]
        errors = self.family_errors.choosing
        ranked = sorted(known, key=errors.__getitem__)
        return [name for name in ranked if errors[name] <= NEARLY_BEST * errors[ranked[0]]]

    def values(self, found: Evidence, mix: ClassMix | None = None) -> dict[str, Array]:
        """Return the known statistics of a set; `mix` is its estimated class mix, if any."""
        mixed = {} if self.mixing is None else self.mixing.values(found, mix)
        return values_for(found, self.source, self.others) | mixed

    def copy_of(self, shift: str, family: str, found: Evidence) -> Copy:
        """Return a shifted copy of the source from the model's outputs on it."""
        return Copy(shift, found.accuracy, len(found), summary(self.values(found)), family, self.profile(found))

    def profile(self, found: Evidence) -> Profile | None:
        """Return the profile of a set under the source's class mix; None if unknown."""
        return None if self.mixing is None else self.mixing.profile(found)

    def familiar(self, profile: Profile | None) -> Familiarity | None:
        """Return how a set lies among the copies; None if profiles are unknown."""
        places, left_out = self._places
        clean = next((copy.profile for copy in self.copies if copy.shift == CLEAN), None)
        if profile is None or clean is None or len(profile.mean) != len(clean.mean) or len(self.families) < MIN_KINDS:
            return None
        return familiarity(profile, places, clean, left_out)

    @cached_property
    def _places(self) -> tuple[list[Place], list[float]]:
        """Where the copies lie, and how far from the nearest of other families."""
        grouped = zip(self.copies, groups_of(self.copies), strict=True)
        places = [Place(copy.shift, group, copy.profile) for copy, group in grouped if copy.profile]
        return places, left_out_distances(places) if len({one.family for one in places}) > 1 else []

    def without(self, group: str) -> Calibration:
        """Return the calibration without the copies of a family."""
        grouped = zip(self.copies, groups_of(self.copies), strict=True)
        made = replace(self, copies=tuple(copy for copy, own in grouped if own != group))
        made.lines.__dict__["methods"] = self.methods()  # what can be used does not hang on what is left out for a test
        return made

    def to_row(self) -> dict[str, Json]:
        """Return everything as JSON values: infinite thresholds as None, and neighbourhoods by name."""
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
        source = {name: infinite if value is None else stored.number(value) for name, value in row["source"].items()}
        if not source.get("temperature", 1.0) >= 0.01:
            raise ValueError(f"a temperature of {source['temperature']:g} was stored")
        near, mixing = row.get("neighborhood"), row.get("mixing")
        copies = tuple(map(Copy.from_row, row["copies"]))
        if not all("confidence" in copy.statistics for copy in copies):
            raise ValueError("a copy has no confidence")
        return cls(
            Reference(**source),
            copies,
            neighborhood=None if near is None else stored.text(near),
            n=stored.count(row.get("n", 10), low=1),
            others=tuple(name for name in row.get("others", ()) if name in METHODS),
            mixing=None if mixing is None else Mixing.from_row(mixing),
            classes=stored.texts(row.get("classes", ())),
            doubts=stored.texts(row.get("doubts", ())),
            model=stored.text(row.get("model", "")),
        )

    def save(self, path: str | Path) -> None:
        """Write the calibration to a file, atomically."""
        write_atomically(Path(path), json.dumps(self.to_row()) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Calibration:
        """Return the calibration in a file that `save` wrote."""
        try:
            return cls.from_row(json.loads(Path(path).read_text("utf-8")))
        except Exception as error:  # damaged files fail in any way there is
            raise DataError(
                f"Cannot read the calibration {str(path)!r}.",
                expected="a file that `Calibration.save` wrote",
                got=f"{type(error).__name__}: {error}",
            ) from error
