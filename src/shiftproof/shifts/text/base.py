"""What every text shift is: a frozen dataclass, called as `shift(texts, keys, seed=0) -> texts`.

The author of a shift writes `edit`, from one text to another, or `edit_all` where a model reads many at a time; the
base class owns the outside: checks, a keyed generator per text, pairs, and the identity at severity 0.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from shiftproof.errors import DataError
from shiftproof.keyed import Keyed
from shiftproof.models.texts import Text, parts
from shiftproof.shifts.base import Shift

_TEXTS = "a list of texts, or of pairs of texts"


@dataclass(frozen=True)
class TextShift(Shift[list[Text]]):
    """A change of texts, or of pairs of them: a list in, a list of as many out.

    `strengths` are what severities 0 to 5 stand for, linear between them: most often the share of the words or letters
    that change. No text that has words comes back empty.
    """

    acts_on = "texts"
    strengths: ClassVar[tuple[float, ...]] = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0)
    category: ClassVar[str] = "text"

    @property
    def strength(self) -> float:
        """What the severity stands for."""
        return float(np.interp(self.severity, range(len(self.strengths)), self.strengths))

    def check(self, inputs: list[Text]) -> None:
        """Refuse what is not a list of texts, or of pairs of them."""
        check_texts(inputs)

    def _copied(self, inputs: list[Text]) -> list[Text]:
        return list(inputs)

    def _shifted(self, inputs: list[Text], keys: Tensor, seed: int) -> list[Text]:
        """Return shifted copies of texts, or of pairs of them; both texts of a pair are shifted."""
        generators = list(Keyed(seed, keys.cpu()).fork(self.name).generators())
        singles = [part for text in inputs for part in parts(text)]
        drawn = [rng for text, rng in zip(inputs, generators, strict=True) for _ in parts(text)]
        edited = iter(kept(singles, self.edit_all(singles, drawn)))
        return [next(edited) if isinstance(text, str) else (next(edited), next(edited)) for text in inputs]

    def edit_all(self, texts: list[str], generators: Sequence[np.random.Generator]) -> list[str]:
        """Return shifted texts; the two texts of a pair draw from one generator in turn."""
        return [self.edit(text, rng) for text, rng in zip(texts, generators, strict=True)]

    @abstractmethod
    def edit(self, text: str, rng: np.random.Generator) -> str:
        """Return one shifted text."""


def kept(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """Return texts after a shift, and those before it where nothing was left of them."""
    return [new if new.strip() else old for old, new in zip(before, after, strict=True)]


def some(count: int, share: float, rng: np.random.Generator) -> list[int]:
    """Return distinct places among `count`, in order: their expected number is exactly `share * count`."""
    number = min(count, int(share * count + rng.random()))
    return sorted(rng.permutation(count)[:number].tolist())


def check_texts(texts: object) -> None:
    """Refuse what is not a list of texts or pairs."""
    if not isinstance(texts, list | tuple):
        raise _needs_texts(f"a {type(texts).__name__}")
    for text in texts:
        if not isinstance(text, str) and not (isinstance(text, tuple) and all(isinstance(part, str) for part in text)):
            raise _needs_texts(f"a {type(text).__name__} among them")


def _needs_texts(got: str) -> DataError:
    fix = "shifts of images are fog@3 and the like: `shiftproof list shifts`"
    return DataError("This shift acts on texts.", expected=_TEXTS, got=got, fix=fix)
