"""What came of hardening: what was weak, what was done about it, and what that changed, with paired intervals."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from shiftproof.comparisons import Comparison
from shiftproof.comparisons.audit_comparison import Difference
from shiftproof.hardening.between import Candidate
from shiftproof.hardening.choice import Choice
from shiftproof.hardening.spending import Spending
from shiftproof.hardening.weaknesses import Weakness
from shiftproof.reports.view import Masthead
from shiftproof.runs import Json, write_atomically

Outcome = Literal["hardened", "nothing to mend", "nothing gained", "too costly"]
FILE = "hardened.json"


@dataclass(frozen=True)
class Change:
    """A number before and after, on images that neither training nor choosing saw, with its paired interval."""

    name: str
    before: float
    after: float
    low: float | None
    high: float | None

    @property
    def value(self) -> float:
        """By how much it rose."""
        return self.after - self.before

    @classmethod
    def of(cls, one: Difference) -> Change:
        """Return a difference of two audits as a change."""
        return cls(one.name, one.one, one.other, one.low, one.high)

    def to_row(self) -> dict[str, Json]:
        """Return the change as JSON values."""
        row: dict[str, Json] = {"name": self.name, "before": self.before, "after": self.after}
        return {**row, "difference": self.value, "low": self.low, "high": self.high}


@dataclass(frozen=True)
class Hardened:
    """The result of `harden`: the hardened network, or why there is none.

    `changes` is measured on held-out test images; `unseen` is the same under corruptions that were not used for model
    selection. Each has its own comparison report.

    Args:
        folder: The run directory.
        outcome: Whether a hardened network was accepted, and if not, why.
        choice: The recipe chosen, and why.
        images: Numbers of images used for training, for model selection and for the test.
        max_clean_loss: The largest loss of clean accuracy that was allowed, as a fraction.
        candidates: The networks tried.
        kept: The candidate audited last.
        changes: Changes measured on the test images.
        unseen: Changes under corruptions not used for model selection.
        seconds: Time spent, in seconds.
        comparison: Comparison of the audits before and after.
        other: The same comparison under corruptions not used for model selection.
        spending: Time spent by phase.
    """

    folder: Path
    outcome: Outcome
    choice: Choice
    images: tuple[int, int, int]
    max_clean_loss: float
    candidates: tuple[Candidate, ...] = ()
    kept: Candidate | None = None
    changes: tuple[Change, ...] = ()
    unseen: tuple[Change, ...] = ()
    seconds: float = 0.0
    spending: Spending = field(default_factory=Spending)
    comparison: Comparison | None = None
    other: Comparison | None = None

    @property
    def model(self) -> Path | None:
        """Folder of the hardened network, which `load_model` accepts; None if none was accepted."""
        return self.folder / "model" if self.outcome == "hardened" else None

    @property
    def report(self) -> Path:
        """Path of the HTML report."""
        return self.folder / "report.html"

    @property
    def weaknesses(self) -> tuple[Weakness, ...]:
        """The weaknesses found, and the augmentation chosen against each."""
        return self.choice.weaknesses

    @property
    def clean(self) -> Change | None:
        """Change in clean accuracy."""
        return _named("clean_accuracy", self.changes)

    @property
    def corruptions(self) -> Change | None:
        """Change in mean accuracy over the audit's corruptions."""
        return _named("corruption_accuracy", self.changes)

    @property
    def unseen_corruptions(self) -> Change | None:
        """Change in mean accuracy over corruptions not used for model selection."""
        return _named("corruption_accuracy", self.unseen)

    def to_row(self) -> dict[str, Json]:
        """Return everything as JSON-compatible values."""
        return {
            "outcome": self.outcome,
            "model": None if self.model is None else self.model.name,
            **self.choice.to_row(),
            "candidates": [one.to_row() for one in self.candidates],
            "kept": None if self.kept is None else self.kept.to_row(),
            "changes": [one.to_row() for one in self.changes],
            "unseen": [one.to_row() for one in self.unseen],
            "max_clean_loss": self.max_clean_loss,
            "seconds_of_training": round(self.seconds, 1),
            "seconds": self.spending.to_row(),
            "images": dict(zip(("training", "choosing", "proof"), self.images, strict=True)),
        }


def write(found: Hardened, audited: Masthead, command: str) -> None:
    """Write the numbers and the report."""
    from shiftproof.hardening.hardening_views import masthead, views
    from shiftproof.reports import html

    write_atomically(found.folder / FILE, json.dumps(found.to_row(), indent=1) + "\n")
    html.write(found.report, masthead(found, audited, command), views(found))


def _named(name: str, changes: tuple[Change, ...]) -> Change | None:
    return next((one for one in changes if one.name == name), None)
