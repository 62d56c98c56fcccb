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
    """Label-free estimates for one class, from calibrated probabilities; None if too few inputs are expected.

    Recall is the accuracy on the inputs of the class.

    Args:
        name: Name of the class.
        support: Expected number of inputs of the class.
        precision: Share of inputs predicted as this class that belong to it.
        recall: Share of its inputs that are predicted as this class.
        f1: Harmonic mean of precision and recall.
    """

    name: str
    support: float
    precision: float | None
    recall: float | None
    f1: float | None


@dataclass(frozen=True)
class Estimate:
    """A label-free accuracy estimate for a set of inputs.

    The interval from `low` to `high` has coverage `level` for shifts as different from the calibration families as
    these are from one another; without a calibration it covers the sampling of inputs only. `error` is the mean
    absolute error on families of shifts left out of the calibration, `in_family` on new shifts of families in it. If
    `unlike` is true, the inputs are unlike anything in the calibration, and only the interval is meaningful.

    Args:
        accuracy: The estimated accuracy, a fraction.
        low: Lower end of the interval.
        high: Upper end of the interval.
        method: Estimation method.
        inputs: Number of inputs.
        error: Mean absolute error on families of shifts left out of the calibration; None if unknown.
        warnings: Reasons not to trust the estimate.
        facts: Statistics that the estimate is based on, by name.
        others: Estimates by other methods.
        level: Coverage of the interval.
        in_family: Mean absolute error on new shifts of calibration families; None if unknown.
        unlike: Whether the inputs are unlike anything in the calibration.
        notes: Other findings, such as a changed class mix.
        by_class: Estimates for single classes.
        measure: What `accuracy` holds: accuracy, or mIoU for label maps.
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
        """Whether there are no warnings."""
        return not self.warnings

    def to_row(self) -> dict[str, Json]:
        """Return the numbers as JSON-compatible values, without the other estimates."""
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
