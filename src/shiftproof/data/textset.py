"""A labelled set of texts: single sentences, or pairs of them, with everything a set of images has but pixels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from shiftproof.data.batch import Batch
from shiftproof.data.contents import text_keys
from shiftproof.data.imageset import ImageSet
from shiftproof.data.source import Pixels, Source
from shiftproof.errors import DataError
from shiftproof.models.texts import Text


class TextSource(Source):
    """Texts in memory, by row."""

    def __init__(self, texts: Sequence[Text]) -> None:
        self.texts = list(texts)

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def shape(self) -> tuple[int, int, int]:  # type: ignore[override]
        """Refuse: what asks for the shape of images is made for images."""
        raise not_images()

    def read(self, rows: Sequence[int]) -> Pixels:
        """Refuse to give pixels; `TextSet.batches` gives texts."""
        raise not_images()

    def make_contents(self) -> Tensor:
        """Return a digest of every text."""
        return text_keys(self.texts)


class TextSet(ImageSet):
    """Texts with a name, keys and, where they are known, labels and class names.

    It chooses subsets, names keys and tells its fingerprint as any other set does. Its batches hold a list of texts, or
    of pairs of them, where those of images hold a tensor. What needs pixels refuses it in plain words.
    """

    source: TextSource

    @property
    def texts(self) -> list[Text]:
        """The texts, in order."""
        return [self.source.texts[row] for row in self._rows.tolist()]

    @property
    def pairs(self) -> bool:
        """Whether inputs are pairs of texts."""
        return bool(self.source.texts) and isinstance(self.source.texts[0], tuple)

    @property
    def side(self) -> int:
        """0: texts have no size in pixels."""
        return 0

    @property
    def nbytes(self) -> int:
        """0: texts are in memory already."""
        return 0

    def __repr__(self) -> str:
        kind = "pairs of texts" if self.pairs else "texts"
        return f"TextSet({self.name!r}, {len(self)} {kind}, {len(self.classes)} classes)"

    def in_memory(self, *, workers: int = 0) -> TextSet:
        """Return the set itself."""
        return self

    @property
    def keys(self) -> Tensor:
        """Whole numbers that name the texts for `keyed` randomness, [N]: digests of their content."""
        return self.draw_keys

    def _batches(self, size: int, workers: int, device: torch.device) -> Iterator[Batch]:
        texts: Any = self.texts
        keys = self.keys
        for start in range(0, len(self), size):
            some = slice(start, start + size)
            labels = None if self.labels is None else self.labels[some].to(device)
            yield Batch(texts[some], labels, keys[some].to(device))


def is_texts(value: object) -> bool:
    """Whether a value is a list of texts, or of pairs of texts."""
    return isinstance(value, list) and bool(value) and all(map(_is_text, value))


def _is_text(value: object) -> bool:
    pair = isinstance(value, tuple) and len(value) == 2 and all(isinstance(part, str) for part in value)
    return pair or isinstance(value, str)


def not_images() -> DataError:
    """Return the error for texts where images are needed."""
    return DataError(
        "These are texts, and this works on images.",
        expected="a set of images",
        got="a set of texts",
        fix="audit, estimate and corrupt take texts",
    )
