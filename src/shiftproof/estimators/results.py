"""What an estimator answers: an accuracy nobody could measure, its interval, and whether to trust it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shiftproof.runs import Json

DRAWS = 400
"""Bootstrap samples behind an interval."""


@dataclass(frozen=True)
class Estimate:
    """The accuracy to expect on a set of inputs without labels.

    `low` and `high` bound it at 95% for shifts like those the estimator was calibrated on; of other shifts nobody can
    say how far off it is, and it may be by much more. `error` is the mean distance from the truth, in accuracy, on
    shifted copies of the source that the estimator had not seen, where that is known. `warnings` say why the number
    should not be trusted, and `others` are the answers of other estimators to the same question.
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
            **self.facts,
        }

    def __str__(self) -> str:
        return f"{100 * self.accuracy:.1f}% ({100 * self.low:.1f} to {100 * self.high:.1f}%) by {self.method}"
