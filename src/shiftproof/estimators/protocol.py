"""How good is a measure? The evaluation of Ng et al. 2023 (section 4.3) over a pool of models and a set of domains.

A table is a list of records, one per model, test domain and measure; `evaluate(table)` scores every measure in it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from shiftproof.errors import DataError
from shiftproof.measures import ErrorLine
from shiftproof.measures.estimation import (
    decision_shares,
    kendall_tau,
    mean_absolute_error,
    modal_share,
    r_squared,
    squared_correlation,
)
from shiftproof.runs import Json

Key = TypeVar("Key", bound=Hashable)

MIN_POOL = 3
"""Models that a rank correlation or a line needs."""


@dataclass(frozen=True)
class PoolRecord:
    """What a measure says of a model on a domain, and how accurate the model is there."""

    model: str
    architecture: str
    train: str
    test: str
    measure: str
    value: float
    accuracy: float


@dataclass(frozen=True)
class Spread:
    """The mean and the standard deviation (None for a single one) over so many groups."""

    mean: float
    std: float | None
    groups: int

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Spread | None:
        """Return the spread of the values there are, None where there is none."""
        known = [value for value in values if value is not None]
        if not known:
            return None
        return cls(float(np.mean(known)), float(np.std(known, ddof=1)) if len(known) > 1 else None, len(known))

    def __str__(self) -> str:
        return f"{self.mean:.3f}" + ("" if self.std is None else f" +- {self.std:.3f}")


@dataclass(frozen=True)
class Scores:
    """How well a measure predicts accuracy; None where the table has no such groups.

    `r_squared` and `mae` (in points) are those of a line fitted on models of other training domains, over pairs of
    training and test domain. `squared_correlation` is over the same pairs, in [0, 1] wherever that line lies; it seems
    to be the paper's R2, of which none is below 0 in tables 9 to 15, not even where tau is.

    Kendall's tau ranks models: on their own domain (`id_tau`), on each other domain (`macro_tau`), on each domain over
    all training domains (`micro_tau`) and over all architectures (`arch_tau`). `cross_tau` ranks the test domains of
    one model (section B.2).
    """

    measure: str
    r_squared: Spread | None
    squared_correlation: Spread | None
    mae: Spread | None
    id_tau: Spread | None
    macro_tau: Spread | None
    micro_tau: Spread | None
    arch_tau: Spread | None
    cross_tau: Spread | None

    def to_row(self) -> dict[str, Json]:
        """Return means and deviations as JSON values."""
        return asdict(self)


def evaluate(table: Iterable[PoolRecord]) -> tuple[Scores, ...]:
    """Return the scores of every measure, in the order in which measures appear."""
    records = tuple(table)
    if not all(np.isfinite([record.value, record.accuracy]).all() for record in records):
        raise DataError("The table holds NaN or infinite values.", expected="finite values and accuracies")
    return tuple(_scores(measure, tuple(some)) for measure, some in _groups(records, lambda one: one.measure))


def _scores(measure: str, records: tuple[PoolRecord, ...]) -> Scores:
    own = tuple(record for record in records if record.train == record.test)
    away = tuple(record for record in records if record.train != record.test)
    pairs = [some for _, some in _groups(away, lambda one: (one.architecture, one.train, one.test))]
    fitted = [_predictions(some, away) for some in pairs]
    several = len({record.architecture for record in records}) > 1
    domains = len({record.train for record in records}) > 1
    return Scores(
        measure=measure,
        r_squared=Spread.of(r_squared(*fit) for fit in fitted if fit is not None),
        squared_correlation=Spread.of(squared_correlation(*fit) for fit in fitted if fit is not None),
        mae=Spread.of(100 * mean_absolute_error(*fit) for fit in fitted if fit is not None),
        id_tau=_taus(own, lambda one: (one.architecture, one.train)),
        macro_tau=_taus(away, lambda one: (one.architecture, one.train, one.test)),
        micro_tau=_taus(away, lambda one: (one.architecture, one.test)) if domains else None,
        arch_tau=_taus(away, lambda one: one.test) if several else None,
        cross_tau=_taus(away, lambda one: one.model),
    )


def _predictions(some: Sequence[PoolRecord], away: Sequence[PoolRecord]) -> tuple[list[float], list[float]] | None:
    """Return predicted and true accuracies of models of one training domain on another domain.

    The line g = a mu + b is fitted on models of the remaining training domains on the same test domain: those of the
    same architecture, or where there are none, of any. None where there are too few.
    """
    first = some[0]
    rest = [one for one in away if one.test == first.test and one.train != first.train]
    pool = [one for one in rest if one.architecture == first.architecture] or rest
    if len(pool) < MIN_POOL or len({one.value for one in pool}) < 2 or len(some) < 2:
        return None
    line = ErrorLine.fit([one.value for one in pool], [one.accuracy for one in pool])
    return line.predict([one.value for one in some]).tolist(), [one.accuracy for one in some]


def _taus(records: Sequence[PoolRecord], key: Callable[[PoolRecord], Hashable]) -> Spread | None:
    return Spread.of(
        kendall_tau([one.value for one in some], [one.accuracy for one in some])
        for _, some in _groups(records, key)
        if len(some) >= MIN_POOL
    )


def _groups(records: Iterable[PoolRecord], key: Callable[[PoolRecord], Key]) -> Iterator[tuple[Key, list[PoolRecord]]]:
    found: dict[Key, list[PoolRecord]] = defaultdict(list)
    for record in records:
        found[key(record)].append(record)
    yield from found.items()


@dataclass(frozen=True, eq=False)
class Votes:
    """A model's predictions on a domain: [N, 1 + n], the inputs themselves first, then their views."""

    model: str
    architecture: str
    train: str
    test: str
    votes: NDArray[np.int64]
    classes: int
    accuracy: float

    def invariance(self, inputs: int, views: int, seed: int = 0) -> float:
        """Return the mean invariance on a random choice of inputs with the first views of each."""
        rows = np.random.default_rng(seed).permutation(len(self.votes))[:inputs]
        return float(modal_share(decision_shares(self.votes[rows, : 1 + views], self.classes)).mean())


def ablate(
    pool: Sequence[Votes], *, inputs: Sequence[int] = (), views: Sequence[int] = (), seed: int = 0
) -> tuple[Scores, ...]:
    """Return the scores of invariance by size of the test set and by number of views (section 5.4, figure 4).

    Each is named after its setting, such as `inputs=100` with all views, or `views=2` on all inputs. The magnitude of
    views is a matter of the neighbourhood: put the invariance under each into the table of `evaluate`.
    """

    def record(one: Votes, name: str, size: int, number: int) -> PoolRecord:
        value = one.invariance(size, number, seed)
        return PoolRecord(one.model, one.architecture, one.train, one.test, name, value, one.accuracy)

    by_size = [record(one, f"inputs={size}", size, one.votes.shape[1] - 1) for size in inputs for one in pool]
    by_views = [record(one, f"views={number}", len(one.votes), number) for number in views for one in pool]
    return evaluate(by_size + by_views)
