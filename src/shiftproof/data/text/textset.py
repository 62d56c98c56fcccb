"""A labelled set of texts: single sentences, or pairs of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from shiftproof.data.base import Batch, Dataset, Source
from shiftproof.data.contents import text_keys
from shiftproof.data.images.decoding import is_image_name
from shiftproof.errors import DataError
from shiftproof.models.texts import Text


class TextSource(Source):
    """Texts in memory, by row."""

    def __init__(self, texts: Sequence[Text]) -> None:
        self.texts = list(texts)

    def __len__(self) -> int:
        return len(self.texts)

    def make_contents(self) -> Tensor:
        """Return a digest of every text."""
        return text_keys(self.texts)


class TextSet(Dataset[list[Text]]):
    """Texts, or pairs of them; its batches hold lists."""

    kind = "texts"
    source: TextSource

    @property
    def texts(self) -> list[Text]:
        """The texts, in order."""
        return [self.source.texts[row] for row in self._rows.tolist()]

    @property
    def pairs(self) -> bool:
        """Whether inputs are pairs of texts."""
        return bool(self.source.texts) and isinstance(self.source.texts[0], tuple)

    def _batches(self, size: int, workers: int, device: torch.device) -> Iterator[Batch[list[Text]]]:
        texts, keys = self.texts, self.keys
        for start in range(0, len(self), size):
            some = slice(start, start + size)
            labels = None if self.labels is None else self.labels[some].to(device)
            yield Batch(texts[some], labels, keys[some].to(device))


def as_texts(data: Dataset) -> TextSet:
    """Return `data` if it is a set of texts; anything else is an error.

    Args:
        data: Any data set.
    """
    if isinstance(data, TextSet):
        return data
    raise DataError(
        f"Texts are needed, not {data.noun.many}.",
        expected="a set of texts",
        got=f"a set of {data.noun.many}",
    )


def is_texts(value: object) -> bool:
    """Whether a value is a list of texts, or of pairs of texts, and not of the names of image files."""
    return isinstance(value, list) and bool(value) and all(map(_is_text, value)) and not all(map(_names_image, value))


def _names_image(value: object) -> bool:
    return is_image_name(value[0] if isinstance(value, tuple) else value)


def _is_text(value: object) -> bool:
    pair = isinstance(value, tuple) and len(value) == 2 and all(isinstance(part, str) for part in value)
    return pair or isinstance(value, str)
