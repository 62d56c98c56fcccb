"""Chains of text shifts, applied in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from shiftproof.shifts.chain import JOINT
from shiftproof.shifts.text.base import TextShift, kept


@dataclass(frozen=True)
class TextChain(TextShift):
    """Text shifts applied in turn, written `typos@2 + letter_case@3`; its severity is the largest of its steps'."""

    name: str = field(default="text_chain", init=False)
    severity: float = field(default=0.0, init=False)
    steps: Sequence[TextShift] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", tuple(self.steps))
        object.__setattr__(self, "severity", max((step.severity for step in self.steps), default=0.0))

    @property
    def label(self) -> str:
        """The steps' text forms, joined."""
        return JOINT.join(step.label for step in self.steps) or "identity"

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes of all steps."""
        return tuple(dict.fromkeys(note for step in self.steps for note in step.notes))

    def edit_all(self, texts: list[str], generators: Sequence[np.random.Generator]) -> list[str]:
        """Apply the steps; a text's generator goes from one to the next."""
        for step in self.steps:
            if step.severity:
                texts = kept(texts, step.edit_all(texts, generators))
        return texts

    def edit(self, text: str, rng: np.random.Generator) -> str:
        """Apply the steps to one text."""
        return self.edit_all([text], [rng])[0]
