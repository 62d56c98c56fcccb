"""A labelled set of images that streams: labels are in memory, pixels only where they are wanted."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from shiftproof.data.base import BadFile, Batch, Dataset
from shiftproof.data.contents import content_keys, numbered
from shiftproof.data.images.levels import unit
from shiftproof.data.images.source import HeldSource, ImageSource, Pixels, read_all, unreadable
from shiftproof.data.images.spooled import SpooledSource, fits_on_disk
from shiftproof.errors import DataError

_CHUNK = 256  # images read at a time where nobody asks for batches

SMALL_SIDE = 64
"""Images with at most this many pixels a side are small: settings published for CIFAR suit them."""


class ImageSet(Dataset[Tensor]):
    """Images of one shape; its batches hold float32 tensors [N, C, H, W] in [0, 1]."""

    kind = "images"
    source: ImageSource
    _keys: Tensor | None = None  # where they are known already

    def __repr__(self) -> str:
        return f"ImageSet({self.name!r}, {len(self)} images of {self.shape}, {len(self.classes)} classes)"

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of every image."""
        return self.source.shape

    @property
    def side(self) -> int:
        """The geometric mean of height and width, in whole pixels."""
        return round(math.sqrt(self.shape[1] * self.shape[2]))

    @property
    def names(self) -> list[str]:
        """Names of the images: file paths relative to the folder, or indices."""
        return [self.source.file(row) or str(place) for place, row in enumerate(self._rows.tolist())]

    @property
    def paths(self) -> list[Path | None]:
        """Paths of the image files; None for images without a file."""
        return [self.source.path(row) for row in self._rows.tolist()]

    @property
    def of_files(self) -> bool:
        """Whether any of its images has a file."""
        return any(self.source.path(row) is not None for row in self._rows.tolist())

    @property
    def nbytes(self) -> int:
        """Bytes that `in_memory` needs."""
        return len(self) * math.prod(self.shape) * self.source.value_bytes

    @property
    def keys(self) -> Tensor:
        """Whole numbers that name the images for `keyed` randomness, [N]: digests of pixels, and which of its equals.

        Where pixels are not held, this decodes every image; batches carry the keys of their images without that.
        """
        if self._keys is None:
            found = self.draw_keys.clone()  # a file that cannot be decoded has no pixels
            for places, _, keys in self._read(_CHUNK):
                found[places] = keys
            self._keys = found
        return self._keys

    def _batches(self, size: int, workers: int, device: torch.device) -> Iterator[Batch[Tensor]]:
        for places, images, keys in self._read(size, workers):
            if len(places):
                labels = None if self.labels is None else self.labels[places].to(device)
                yield Batch(unit(images.to(device)), labels, keys.to(device))

    def _read(self, size: int, workers: int = 0) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield the places, pixels and keys of so many images at a time, less those that cannot be decoded."""
        rows: list[int] = self._rows.tolist()
        chunks = [rows[start : start + size] for start in range(0, len(rows), size)]
        for number, pixels in enumerate(read_all(self.source, chunks, workers)):
            self._report(pixels.bad)
            places = torch.tensor(pixels.kept, dtype=torch.int64) + number * size
            yield places, pixels.images, self._named(pixels, places) if self._keys is None else self._keys[places]

    def _named(self, pixels: Pixels, places: Tensor) -> Tensor:
        return numbered(content_keys(pixels.images), self._repeats.numbers[self._rows[places]])

    def subset(self, indices: Sequence[int] | Tensor) -> Self:
        """Return the images at some indices, in the order given."""
        made = super().subset(indices)
        made._keys = None if self._keys is None else self._keys[torch.as_tensor(indices, dtype=torch.int64)]
        return made

    @property
    def keys_known(self) -> bool:
        """Whether its keys are known without reading it."""
        return self._keys is not None

    def in_memory(self, *, workers: int = 0, device: torch.device | str = "cpu") -> Self:
        """Return the same set with its pixels decoded and held in memory, without the files that cannot be decoded."""
        dtype = torch.uint8 if self.source.value_bytes == 1 else torch.float32
        images = torch.empty(len(self), *self.shape, dtype=dtype, device=device)
        kept, keys = self._decoded(lambda start, pixels: images[start : start + len(pixels)].copy_(pixels), workers)
        held = HeldSource(images[: len(kept)], self.source.contents[self._rows[kept]], self.source.decoding)
        return self._kept_in(held, kept, keys)

    def on_disk(self, *, workers: int = 0) -> Self:
        """Return the same set with its pixels decoded and kept in a temporary file, as `in_memory` keeps them.

        The set is returned unchanged if the disk has no room.
        """
        if not fits_on_disk(self.nbytes):
            return self
        try:
            file = SpooledSource(self.shape, self.source.value_bytes, self.source.decoding)
            kept, keys = self._decoded(lambda _, pixels: file.add(pixels), workers)
        except OSError:
            return self
        return self._kept_in(file.ended(self.source.contents[self._rows[kept]]), kept, keys)

    def _decoded(self, keep: Callable[[int, Tensor], object], workers: int) -> tuple[list[int], Tensor]:
        """Decode all images and let `keep` have them, from a place on; return where they were, and their keys."""
        keys = torch.empty(len(self), dtype=torch.int64)
        kept: list[int] = []
        for places, pixels, named in self._read(_CHUNK, workers):
            keep(len(kept), pixels)
            keys[len(kept) : len(kept) + len(places)] = named
            kept.extend(places.tolist())
        return kept, keys[: len(kept)]

    def _kept_in(self, source: ImageSource, kept: list[int], keys: Tensor) -> Self:
        """Return the images at some places, whose pixels are the rows of another source."""
        made = self.subset(kept)
        made._repeats = self._repeats.of(made._rows, source)
        source.size = self.source.size
        made.source, made._rows, made._keys = source, torch.arange(len(kept)), keys
        return made

    def _report(self, bad: Iterable[BadFile]) -> None:
        """List bad files, and stop at them where they are not to be skipped."""
        for file, reason in bad:
            if self.on_bad_file == "fail":
                raise unreadable(file, reason)
        self._bad.update(dict.fromkeys(bad))


def as_images(data: Dataset) -> ImageSet:
    """Return `data` if it is a set of images; anything else is an error.

    Args:
        data: Any data set.
    """
    if isinstance(data, ImageSet):
        return data
    raise DataError(
        f"Images are needed, not {data.noun.many}.",
        expected="a set of images",
        got=f"a set of {data.noun.many}",
        fix="audit, estimate and write-corrupted take texts",
    )
