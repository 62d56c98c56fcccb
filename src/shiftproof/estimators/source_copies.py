"""Shifted copies of a labelled source: what is known of each, and copies in other class mixes, which cost no pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftproof.estimators import stored_numbers as stored
from shiftproof.estimators.catalogue import summary, values_for
from shiftproof.estimators.evidence import Evidence
from shiftproof.estimators.families import CLASS_MIX, MIXES
from shiftproof.estimators.profiles import Profile
from shiftproof.estimators.references import Reference

CLEAN = "clean"
"""The copy that is the source as it is."""

MIN_KINDS = 4
"""A line needs shifts of this many kinds, and leaving out families as many of those."""


@dataclass(frozen=True)
class Copy:
    """A shifted copy of the source: its shift, its accuracy, its statistics, its family and its profile."""

    shift: str
    accuracy: float
    inputs: int
    statistics: Mapping[str, float]
    family: str = ""
    profile: Profile | None = None

    @property
    def kind(self) -> str:
        """The shift without its severity."""
        return self.shift.partition("@")[0]

    @property
    def group(self) -> str:
        """The family, or the kind where no family is known."""
        return self.family or self.kind

    @classmethod
    def of(cls, shift: str, found: Evidence, source: Reference, others: Iterable[str] = ()) -> Copy:
        """Take a copy's numbers from what the model said of it, those of others' methods too."""
        return cls(shift, found.accuracy, len(found), summary(values_for(found, source, others)))

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Copy:
        """Return the copy that `asdict` wrote."""
        held = row.get("profile")
        mean = None if held is None else stored.vector(held["mean"])
        return cls(
            shift=stored.text(row["shift"]),
            accuracy=stored.share(row["accuracy"]),
            inputs=stored.count(row["inputs"], low=1),
            statistics=stored.named(row["statistics"]),
            family=stored.text(row.get("family", "")),
            profile=None if held is None or mean is None else Profile(mean, stored.vector(held["noise"], len(mean), 0)),
        )


def groups_of(copies: Sequence[Copy]) -> tuple[str, ...]:
    """Return the families of copies; kinds of shifts, where there are too few families."""
    told = tuple(copy.group for copy in copies)
    if len({group for copy, group in zip(copies, told, strict=True) if copy.shift != CLEAN}) >= MIN_KINDS:
        return told
    return tuple(copy.family if copy.family == CLASS_MIX else copy.kind for copy in copies)


def mixes(found: Evidence, name: str, seed: int) -> Iterator[tuple[str, Evidence]]:
    """Yield what the model said of a labelled copy, resampled to other class mixes, with names for them."""
    for number, concentration in enumerate(MIXES):
        rng = np.random.default_rng([seed, number])
        places = remixed_places(found, rng.dirichlet(np.full(found.logits.shape[1], concentration)), rng)
        label = f"{CLASS_MIX} {concentration:g}" + ("" if name == CLEAN else f" of {name}")
        yield label, at_places(found, places)


def remixed_places(found: Evidence, shares: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Return places of inputs, as many as there are, drawn so that classes come in such shares."""
    assert found.labels is not None  # copies are of a labelled source
    sizes = np.bincount(found.labels, minlength=len(shares))
    chance = (shares + 1e-9)[found.labels] / sizes[found.labels]
    return rng.choice(len(found), len(found), p=chance / chance.sum())


def at_places(found: Evidence, places: NDArray[np.int64]) -> Evidence:
    """Return what the model said of some inputs, any of them any number of times; views are left out."""
    return replace(
        found,
        logits=found.logits[places],
        viewed=np.empty(0, np.int64),
        shares=found.shares[:0],
        view_entropy=found.view_entropy[:0],
        drift=None,
        labels=None if found.labels is None else found.labels[places],
        features=None if found.features is None else found.features[places],
    )
