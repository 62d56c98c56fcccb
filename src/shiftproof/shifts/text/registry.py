"""Every text shift by name, and what tables say of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shiftproof.registry import resolve
from shiftproof.shifts.forms import typed
from shiftproof.shifts.text.base import TextShift

EVERYDAY: Mapping[str, str] = {
    "typos": "shiftproof.shifts.text.everyday:Typos",
    "dropped_punctuation": "shiftproof.shifts.text.everyday:DroppedPunctuation",
    "letter_case": "shiftproof.shifts.text.everyday:LetterCase",
    "ocr_confusions": "shiftproof.shifts.text.everyday:OcrConfusions",
    "spacing": "shiftproof.shifts.text.everyday:Spacing",
}
EDITS: Mapping[str, str] = {
    "eda": "shiftproof.shifts.text.words:Eda",
    "synonym_replacement": "shiftproof.shifts.text.words:SynonymReplacement",
    "random_insertion": "shiftproof.shifts.text.words:RandomInsertion",
    "random_swap": "shiftproof.shifts.text.words:RandomSwap",
    "random_deletion": "shiftproof.shifts.text.words:RandomDeletion",
    "random_replacement": "shiftproof.shifts.text.words:RandomReplacement",
    "ssmba": "shiftproof.shifts.text.ssmba:Ssmba",
    "back_translation": "shiftproof.shifts.text.translation:BackTranslation",
}
SHIFTS: Mapping[str, str] = {**EVERYDAY, **EDITS}
"""Name -> lazy target, in the order listings show them."""

NEED_MODELS = ("ssmba", "back_translation")
"""Shifts that have to be told where their language models are."""

FAMILIES: Mapping[str, Mapping[str, str]] = {"everyday": EVERYDAY, "edits": EDITS}


def text_shift(name: str, severity: float, **options: Any) -> TextShift:
    """Return a text shift by name: `text_shift("eda", 2, wordnet="wordnet/")`."""
    kind = resolve(SHIFTS, name, "text shift")
    made: TextShift = kind(severity=severity, **typed(kind, options, name, without=("severity",)))
    return made


def text_facts(name: str) -> Mapping[str, Any]:
    """Return what tables say of a text shift: family, category, monotone."""
    kind: type[TextShift] = resolve(SHIFTS, name, "text shift")
    return {"family": "everyday" if name in EVERYDAY else "edits", "category": kind.category, "monotone": True}
