"""What happens to texts on their way from people to models: slips of the fingers, lost marks, and scanners."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import ClassVar

import numpy as np

from shiftproof.shifts.text.base import TextShift, some

ROWS = (("qwertyuiop", 0.0), ("asdfghjkl", 0.25), ("zxcvbnm", 0.75))
"""The rows of letters of a keyboard, and how far each is set off to the right, in keys."""

REACH = 1.3
"""A finger that misses lands on a key whose centre is at most so many keys away."""

CONFUSIONS: Mapping[str, tuple[str, ...]] = {
    "rn": ("m",), "m": ("rn",), "cl": ("d",), "d": ("cl",), "vv": ("w",), "w": ("vv",), "ri": ("n",), "li": ("h",),
    "l": ("1", "I", "|"), "I": ("l", "1", "|"), "1": ("l", "I"), "i": ("l", "j"), "O": ("0", "Q"), "0": ("O", "o"),
    "o": ("0", "c"), "S": ("5",), "5": ("S",), "s": ("5",), "B": ("8",), "8": ("B",), "Z": ("2",), "2": ("Z",),
    "e": ("c",), "c": ("e", "o"), "h": ("b", "li"), "b": ("h", "6"), "G": ("6",), "g": ("q", "9"), "u": ("v", "ii"),
    "v": ("u",), "t": ("f",), "f": ("t",), "a": ("o",), "n": ("ri",), ".": (",",), ",": (".",),
}  # fmt: skip
"""Shapes that readers of scanned pages take for each other."""

_CONFUSABLE = re.compile("|".join(map(re.escape, sorted(CONFUSIONS, key=len, reverse=True))))


@cache
def keyboard() -> Mapping[str, str]:
    """Return the keys near every letter of a keyboard: those whose centres are at most 1.3 keys away.

    >>> keyboard()["g"]
    'bfhtvy'
    """
    places = {
        letter: (left + column, row) for row, (keys, left) in enumerate(ROWS) for column, letter in enumerate(keys)
    }

    def distance(one: str, other: str) -> float:
        (x, y), (u, v) = places[one], places[other]
        return float(np.hypot(x - u, y - v))

    return {
        letter: "".join(sorted(other for other in places if other != letter and distance(letter, other) <= REACH))
        for letter in places
    }


@dataclass(frozen=True)
class Typos(TextShift):
    """Slips of the fingers: a share of the letters is missed for a key nearby, left out, doubled, or swapped.

    The four happen equally often; at the end of a word a letter is doubled instead of swapped.
    """

    name: str = field(default="typos", init=False)
    strengths: ClassVar[tuple[float, ...]] = (0, 0.01, 0.03, 0.06, 0.10, 0.15)
    category: ClassVar[str] = "typing"

    def edit(self, text: str, rng: np.random.Generator) -> str:
        """Return the text with slips."""
        letters = [place for place, letter in enumerate(text) if letter.lower() in keyboard()]
        chars = list(text)
        for number in some(len(letters), self.strength, rng):
            place = letters[number]
            kind, letter = int(rng.integers(4)), text[place]
            if kind == 0:
                near = keyboard()[letter.lower()]
                hit = near[int(rng.integers(len(near)))]
                chars[place] = hit.upper() if letter.isupper() else hit
            elif kind == 1:
                chars[place] = ""
            elif kind == 2 or place + 1 == len(text) or not text[place + 1].isalpha():
                chars[place] = 2 * letter
            else:
                chars[place], chars[place + 1] = chars[place + 1], chars[place]
        return "".join(chars)


@dataclass(frozen=True)
class DroppedPunctuation(TextShift):
    """Punctuation left out: a share of the marks."""

    name: str = field(default="dropped_punctuation", init=False)
    strengths: ClassVar[tuple[float, ...]] = (0, 0.2, 0.4, 0.6, 0.8, 1.0)
    category: ClassVar[str] = "typing"

    def edit(self, text: str, rng: np.random.Generator) -> str:
        """Return the text with fewer marks."""
        marks = [place for place, letter in enumerate(text) if letter in string.punctuation]
        gone = {marks[number] for number in some(len(marks), self.strength, rng)}
        return "".join(letter for place, letter in enumerate(text) if place not in gone)


@dataclass(frozen=True)
class LetterCase(TextShift):
    """Words in another case: a share of the words is all small, all capital, or has its cases exchanged."""

    name: str = field(default="letter_case", init=False)
    strengths: ClassVar[tuple[float, ...]] = (0, 0.2, 0.4, 0.6, 0.8, 1.0)
    category: ClassVar[str] = "typing"

    def edit(self, text: str, rng: np.random.Generator) -> str:
        """Return the text with words in another case."""
        pieces = re.split(r"(\s+)", text)
        words = [place for place, piece in enumerate(pieces) if piece.strip()]
        changes: tuple[Callable[[str], str], ...] = (str.lower, str.upper, str.swapcase)
        for number in some(len(words), self.strength, rng):
            pieces[words[number]] = changes[int(rng.integers(3))](pieces[words[number]])
        return "".join(pieces)


@dataclass(frozen=True)
class OcrConfusions(TextShift):
    """Shapes a scanner takes for each other: a share of the places where there is one, such as rn and m, or l and 1."""

    name: str = field(default="ocr_confusions", init=False)
    strengths: ClassVar[tuple[float, ...]] = (0, 0.03, 0.07, 0.12, 0.20, 0.30)
    category: ClassVar[str] = "scanning"

    def edit(self, text: str, rng: np.random.Generator) -> str:
        """Return the text as a scanner might read it."""
        found = list(_CONFUSABLE.finditer(text))
        made, end = [], 0
        for number in some(len(found), self.strength, rng):
            match = found[number]
            readings = CONFUSIONS[match.group()]
            made += [text[end : match.start()], readings[int(rng.integers(len(readings)))]]
            end = match.end()
        return "".join([*made, text[end:]])


@dataclass(frozen=True)
class Spacing(TextShift):
    """Spaces lost and gained: of the gaps between words a share is closed, and as many words are broken in two."""

    name: str = field(default="spacing", init=False)
    strengths: ClassVar[tuple[float, ...]] = (0, 0.03, 0.07, 0.12, 0.20, 0.30)
    category: ClassVar[str] = "scanning"

    def edit(self, text: str, rng: np.random.Generator) -> str:
        """Return the text with other spaces."""
        pieces = re.split(r"(\s+)", text)
        words = [place for place, piece in enumerate(pieces) if len(piece) > 1 and piece.strip()]
        gaps = [
            place for place, piece in enumerate(pieces) if piece and not piece.strip() and 0 < place < len(pieces) - 1
        ]
        closed = some(len(gaps), self.strength, rng)
        broken = some(len(words), self.strength, rng)
        for number in broken:
            word = pieces[words[number]]
            cut = 1 + int(rng.integers(len(word) - 1))
            pieces[words[number]] = f"{word[:cut]} {word[cut:]}"
        for number in closed:
            pieces[gaps[number]] = ""
        return "".join(pieces)
