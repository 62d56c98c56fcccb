"""Chains of text shifts, applied in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from shiftproof.models.texts import Text
from shiftproof.shifts.chain import Chain
from shiftproof.shifts.text.base import TextShift, kept


@dataclass(frozen=True)
class TextChain(Chain[list[Text]], TextShift):
    """Text shifts applied in turn, written `typos@2 + letter_case@3`."""

    name: str = field(default="text_chain", init=False)
    steps: Sequence[TextShift] = ()

    def edit_all(self, texts: list[str], generators: Sequence[np.random.Generator]) -> list[str]:
        """Apply the steps; a text's generator goes from one to the next."""
        for step in self.steps:
            if step.severity:
                texts = kept(texts, step.edit_all(texts, generators))
        return texts

    def edit(self, text: str, rng: np.random.Generator) -> str:
        """Apply the steps to one text."""
        return self.edit_all([text], [rng])[0]
