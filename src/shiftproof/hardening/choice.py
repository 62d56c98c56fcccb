"""What was chosen to train on, for how long, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from shiftproof.hardening.training_time import Fitted
from shiftproof.hardening.weaknesses import Weakness
from shiftproof.runs import Json


@dataclass(frozen=True)
class Choice:
    """The weaknesses, the recipe and augmentation against them, how long it is trained, and whether it is worth it."""

    weaknesses: tuple[Weakness, ...]
    recipe: str
    augment: str
    fitted: Fitted
    worth: bool

    def trained(self, epochs: int) -> Self:
        """Return the choice with as many epochs as there were in the end."""
        return replace(self, fitted=replace(self.fitted, epochs=epochs))

    def to_row(self) -> dict[str, Json]:
        """Return the choice as JSON values."""
        return {
            "weaknesses": [each.to_row() for each in self.weaknesses],
            "recipe": self.recipe,
            "augment": self.augment,
            "fitted": self.fitted.to_row(),
            "worth": self.worth,
        }

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Return the choice of a row."""
        weak: Sequence[Mapping[str, Json]] = row["weaknesses"]
        found = tuple(Weakness.from_row(each) for each in weak)
        return cls(found, row["recipe"], row["augment"], Fitted.from_row(row["fitted"]), bool(row["worth"]))
