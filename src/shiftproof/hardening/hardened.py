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
from shiftproof.hardening.remedies import Weakness
from shiftproof.hardening.spending import Spending
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
    """A network that was hardened, or why it was not.

    `changes` are on images that were kept for proof, `unseen` the same under corruptions that played no part in
    choosing; each has a comparison with a report of its own. `images` are those trained on, chosen by, and kept for
    proof. `kept` is the candidate that was audited last, `spending` what the time went into.

    Args:
        folder: The run directory.
        outcome: Whether a hardened network was kept, and if not, why.
        choice: The recipe that was chosen, and why.
        images: Numbers of images trained on, chosen by, and kept for proof.
        max_clean_loss: The largest loss of clean accuracy that was allowed, as a fraction.
        candidates: The networks that were tried.
        kept: The candidate that was audited last.
        changes: What changed, on images kept for proof.
        unseen: What changed under corruptions that played no part in choosing.
        seconds: Time that was spent.
        comparison: The comparison of the audits before and after.
        other: The same comparison under the corruptions that played no part in choosing.
        spending: What the time went into.
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
        """The folder of the hardened network, which `load_model` takes; None where none is handed over."""
        return self.folder / "model" if self.outcome == "hardened" else None

    @property
    def report(self) -> Path:
        """The report to open in a browser."""
        return self.folder / "report.html"

    @property
    def weaknesses(self) -> tuple[Weakness, ...]:
        """What was weak, and what was chosen against it."""
        return self.choice.weaknesses

    @property
    def clean(self) -> Change | None:
        """The change of the clean accuracy."""
        return _named("clean_accuracy", self.changes)

    @property
    def corruptions(self) -> Change | None:
        """The change of the mean accuracy over the audit's corruptions."""
        return _named("corruption_accuracy", self.changes)

    @property
    def unseen_corruptions(self) -> Change | None:
        """The change of the mean accuracy over corruptions that played no part in choosing."""
        return _named("corruption_accuracy", self.unseen)

    def to_row(self) -> dict[str, Json]:
        """Return everything as JSON values."""
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
