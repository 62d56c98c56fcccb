"""What an estimator answers: an accuracy nobody could measure, its interval, and whether to trust it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from shiftproof.runs import Json

DRAWS = 400
"""Bootstrap samples behind an interval."""

LEVEL = 0.8
"""How often intervals of calibrated estimates hold for shifts of a family nobody has seen: ten families support little
more (see `measures.conformal`)."""


@dataclass(frozen=True)
class ClassEstimate:
    """What to expect of one class without labels, from calibrated probabilities; None where too few are expected.

    `support` is the expected number of inputs of the class. Recall is the accuracy on its inputs.

    Args:
        name: The class.
        support: The expected number of its inputs.
        precision: The share of inputs given this class that are of it.
        recall: The share of its inputs that are given this class.
        f1: The harmonic mean of the two.
    """

    name: str
    support: float
    precision: float | None
    recall: float | None
    f1: float | None


@dataclass(frozen=True)
class Estimate:
    """The accuracy to expect on a set of inputs without labels.

    `low` and `high` bound it at a `level`: for shifts as different from the families calibrated on as these are from
    one another, or for the sampling of inputs alone where nothing was calibrated. `error` is the mean distance from the
    truth, in accuracy, on families of shifts the estimator had not seen, `in_family` on new shifts of families it had
    seen, where they are known. `unlike` says that the inputs are unlike anything calibrated on: then the interval is
    all that is said. `warnings` say why the number should not be trusted; `notes` what else was found, such as another
    class mix. `by_class` has figures of single classes, and `others` the answers of other estimators. `measure` is what
    `accuracy` stands for, which is mIoU of label maps.

    Args:
        accuracy: The estimated accuracy, a fraction.
        low: The lower end of its interval.
        high: The upper end of its interval.
        method: What estimated it.
        inputs: Number of inputs.
        error: Mean absolute error on families of shifts that were left out; None where not known.
        warnings: Why the number should not be trusted.
        facts: Statistics that it was read off, by name.
        others: What other methods say.
        level: The confidence of the interval.
        in_family: Mean absolute error on new shifts of known families.
        unlike: Whether the inputs are unlike anything calibrated on.
        notes: What else was found, such as another class mix.
        by_class: Estimates for single classes.
        measure: What the accuracy stands for; mIoU for label maps.
    """

    accuracy: float
    low: float
    high: float
    method: str
    inputs: int
    error: float | None = None
    warnings: tuple[str, ...] = ()
    facts: Mapping[str, float] = field(default_factory=dict)
    others: tuple[Estimate, ...] = ()
    level: float = 0.95
    in_family: float | None = None
    unlike: bool = False
    notes: tuple[str, ...] = ()
    by_class: tuple[ClassEstimate, ...] = ()
    measure: str = "accuracy"

    @property
    def trusted(self) -> bool:
        """Whether nothing speaks against the number."""
        return not self.warnings

    def to_row(self) -> dict[str, Json]:
        """Return the numbers as JSON values, without the other estimators."""
        return {
            "method": self.method,
            "accuracy": self.accuracy,
            "low": self.low,
            "high": self.high,
            "inputs": self.inputs,
            "error": self.error,
            "warnings": list(self.warnings),
            "level": self.level,
            "in_family": self.in_family,
            "unlike": self.unlike,
            "notes": list(self.notes),
            "by_class": [asdict(one) for one in self.by_class],
            **({} if self.measure == "accuracy" else {"measure": self.measure}),
            **self.facts,
        }

    def __str__(self) -> str:
        if self.unlike:
            return f"between {100 * self.low:.1f} and {100 * self.high:.1f}%: unlike anything calibrated on"
        of = "" if self.measure == "accuracy" else f"{self.measure} "
        return f"{of}{100 * self.accuracy:.1f}% ({100 * self.low:.1f} to {100 * self.high:.1f}%) by {self.method}"
