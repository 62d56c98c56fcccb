"""Edits of words: easy data augmentation (Wei & Zou 2019) and random replacement.

Severity 2 is the magnitude of neighbourhoods in Ng et al. 2023 (section A.5): 10% of the words for EDA, 15% for random
replacement. The expected share of edited words is the stated one for texts of any length. Wei & Zou edit at least one
word however short the text; here a short text may stay as it is.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from shiftproof.shifts.text import lexicon
from shiftproof.shifts.text.base import TextShift, some

_EDGES = ".,;:!?\"'()[]{}<>*-_/&"


@dataclass(frozen=True)
class WordEdit(TextShift):
    """A change of a share of the words, which white space separates; the result has single spaces between them."""

    strengths: ClassVar[tuple[float, ...]] = (0, 0.05, 0.10, 0.20, 0.30, 0.45)
    category: ClassVar[str] = "words"

    def edit(self, text: str, rng: np.random.Generator) -> str:
        """Return the text with words changed."""
        words = text.split()
        return " ".join(self.edit_words(words, rng)) if words else text

    @abstractmethod
    def edit_words(self, words: list[str], rng: np.random.Generator) -> list[str]:
        """Return other words for the words of a text."""


@dataclass(frozen=True)
class _Synonymous(WordEdit):
    """An edit that needs synonyms: those of WordNet's files in the folder `wordnet`, else of a small built-in list."""

    wordnet: str | None = None

    def files(self) -> tuple[str, ...]:
        """Return the folder of WordNet's files."""
        return () if self.wordnet is None else (self.wordnet,)

    @property
    def notes(self) -> tuple[str, ...]:
        """Say where synonyms come from."""
        if self.wordnet is not None:
            return ()
        known = len(lexicon.synonyms())
        fix = f"{self.name}@{self.severity:g}[wordnet=FOLDER] takes WordNet's"
        return (f"Synonyms for {self.name} come from a built-in list of {known} English words; {fix}.",)

    def _synonym(self, word: str, rng: np.random.Generator) -> str | None:
        """Return a synonym with the word's capital and the marks around it; None where none is known."""
        core = word.strip(_EDGES)
        others = lexicon.synonyms(self.wordnet).get(core.lower())
        if not core or not others:
            return None
        chosen = others[int(rng.integers(len(others)))]
        before, _, after = word.partition(core)
        return before + (chosen[0].upper() + chosen[1:] if core[0].isupper() else chosen) + after

    def _known(self, words: list[str]) -> list[int]:
        lexemes = lexicon.synonyms(self.wordnet)
        return [place for place, word in enumerate(words) if word.strip(_EDGES).lower() in lexemes]


@dataclass(frozen=True)
class SynonymReplacement(_Synonymous):
    """Synonyms for a share of the words, among those that have any: fewer change where few do."""

    name: str = field(default="synonym_replacement", init=False)

    def edit_words(self, words: list[str], rng: np.random.Generator) -> list[str]:
        """Replace words."""
        wanted = len(some(len(words), self.strength, rng))
        known = self._known(words)
        made = list(words)
        for number in rng.permutation(len(known))[:wanted].tolist():
            place = known[number]
            made[place] = self._synonym(words[place], rng) or words[place]
        return made


@dataclass(frozen=True)
class RandomInsertion(_Synonymous):
    """Synonyms of random words, put in at random places, as many as a share of the words."""

    name: str = field(default="random_insertion", init=False)

    def edit_words(self, words: list[str], rng: np.random.Generator) -> list[str]:
        """Insert words."""
        wanted = len(some(len(words), self.strength, rng))
        known = self._known(words)
        made = list(words)
        for _ in range(wanted if known else 0):
            word = self._synonym(words[known[int(rng.integers(len(known)))]], rng)
            made.insert(int(rng.integers(len(made) + 1)), word or "")
        return made


@dataclass(frozen=True)
class RandomSwap(WordEdit):
    """Pairs of words exchanged, as many pairs as a share of the words."""

    name: str = field(default="random_swap", init=False)

    def edit_words(self, words: list[str], rng: np.random.Generator) -> list[str]:
        """Exchange words."""
        made = list(words)
        for _ in some(len(words), self.strength, rng) if len(words) > 1 else ():
            one, other = rng.choice(len(made), 2, replace=False).tolist()
            made[one], made[other] = made[other], made[one]
        return made


@dataclass(frozen=True)
class RandomDeletion(WordEdit):
    """Words left out, each with the same probability; one random word stays where none would."""

    name: str = field(default="random_deletion", init=False)

    def edit_words(self, words: list[str], rng: np.random.Generator) -> list[str]:
        """Leave words out."""
        stay = rng.random(len(words)) >= self.strength
        if not stay.any():
            stay[rng.integers(len(words))] = True
        return [word for word, kept in zip(words, stay.tolist(), strict=True) if kept]


@dataclass(frozen=True)
class Eda(_Synonymous):
    """Easy data augmentation (Wei & Zou 2019): one of its four edits, chosen at random for each text."""

    name: str = field(default="eda", init=False)

    def edit_words(self, words: list[str], rng: np.random.Generator) -> list[str]:
        """Apply synonym replacement, random insertion, random swap or random deletion."""
        synonymous = {"severity": self.severity, "wordnet": self.wordnet}
        edits: tuple[WordEdit, ...] = (
            SynonymReplacement(**synonymous),  # type: ignore[arg-type]
            RandomInsertion(**synonymous),  # type: ignore[arg-type]
            RandomSwap(severity=self.severity),
            RandomDeletion(severity=self.severity),
        )
        return edits[int(rng.integers(len(edits)))].edit_words(words, rng)


@dataclass(frozen=True)
class RandomReplacement(WordEdit):
    """Random words in the place of a share of the words: of the file `vocabulary`, else of a small built-in list."""

    strengths: ClassVar[tuple[float, ...]] = (0, 0.07, 0.15, 0.25, 0.40, 0.60)
    name: str = field(default="random_replacement", init=False)
    vocabulary: str | None = None

    def files(self) -> tuple[str, ...]:
        """Return the file of words."""
        return () if self.vocabulary is None else (self.vocabulary,)

    def edit_words(self, words: list[str], rng: np.random.Generator) -> list[str]:
        """Replace words; a word is never replaced by itself."""
        made, pool = list(words), lexicon.common_words(self.vocabulary)
        for place in some(len(words), self.strength, rng):
            drawn = pool[int(rng.integers(len(pool)))]
            while drawn == words[place] and len(pool) > 1:
                drawn = pool[int(rng.integers(len(pool)))]
            made[place] = drawn
        return made
