"""What every text shift is: a frozen dataclass, called as `shift(texts, keys, seed=0) -> texts`.

The author of a shift writes `edit`, from one text to another, or `edit_all` where a model reads many at a time; the
base class owns the outside: checks, a keyed generator per text, pairs, and the identity at severity 0.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

import numpy as np
import torch
from torch import Tensor

from shiftproof.errors import DataError
from shiftproof.keyed import Keyed
from shiftproof.models.texts import Text, parts
from shiftproof.shifts.base import Shape, Shift

_TEXTS = "a list of texts, or of pairs of texts"


@dataclass(frozen=True)
class TextShift(Shift):
    """A change of texts: a `name`, a `severity` in [0, 5], and a call that keeps the number and kind of its inputs.

    `strengths` are what severities 0 to 5 stand for, linear between them: most often the share of the words or letters
    that change. Severity 0 returns the texts unchanged. No text that has words comes back empty.
    """

    strengths: ClassVar[tuple[float, ...]] = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0)
    category: ClassVar[str] = "text"

    @property
    def strength(self) -> float:
        """What the severity stands for."""
        return float(np.interp(self.severity, range(len(self.strengths)), self.strengths))

    @property
    def notes(self) -> tuple[str, ...]:
        """What a report that uses this shift should say."""
        return ()

    def __call__(  # type: ignore[override]  # texts where other shifts take images
        self, texts: Sequence[Text], keys: Tensor | Sequence[int], *, seed: int = 0
    ) -> list[Text]:
        """Return shifted copies of texts, or of pairs of them; both texts of a pair are shifted."""
        check_texts(texts)
        keys = torch.as_tensor(keys, dtype=torch.int64)
        if keys.shape != (len(texts),):
            raise DataError(
                "Every text needs a key.",
                expected=f"{len(texts)} keys, one per text",
                got=f"keys of shape {tuple(keys.shape)}",
            )
        if self.severity == 0 or not len(texts):
            return list(texts)
        generators = list(Keyed(seed, keys.cpu()).fork(self.name).generators())
        singles = [part for text in texts for part in parts(text)]
        drawn = [rng for text, rng in zip(texts, generators, strict=True) for _ in parts(text)]
        edited = iter(kept(singles, self.edit_all(singles, drawn)))
        return [next(edited) if isinstance(text, str) else (next(edited), next(edited)) for text in texts]

    def edit_all(self, texts: list[str], generators: Sequence[np.random.Generator]) -> list[str]:
        """Return shifted texts; the two texts of a pair draw from one generator in turn."""
        return [self.edit(text, rng) for text, rng in zip(texts, generators, strict=True)]

    @abstractmethod
    def edit(self, text: str, rng: np.random.Generator) -> str:
        """Return one shifted text."""

    def draw(self, rng: Keyed, shape: Shape) -> NoReturn:
        """Refuse images."""
        raise _needs_texts("images")

    def transform(self, images: Tensor, drawn: Any) -> NoReturn:
        """Refuse images."""
        raise _needs_texts("images")


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
