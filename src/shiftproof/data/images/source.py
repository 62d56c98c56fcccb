"""Where the pixels of an image set are: rows that can be read in any order, one at a time or many."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from shiftproof.data.base import BadFile, Source
from shiftproof.data.images.decoding import Size
from shiftproof.errors import DataError, ShiftproofError
from shiftproof.runs.starting import start_method

DIFFERENT_SIZES = "The images have different sizes."
"""The headline of the error for images that need a size to be brought to."""


class Pixels(NamedTuple):
    """What reading some rows gave: images [M, C, H, W], uint8 or float32 in [0, 1], of the `kept` of them."""

    images: Tensor
    kept: list[int]
    bad: list[BadFile]


class ImageSource(Source):
    """The pixels of images of one shape, by row."""

    shape: tuple[int, int, int]
    """Channels, height and width of every image."""

    decodes: ClassVar[bool] = False
    """Whether reading takes so long that worker processes pay."""

    value_bytes: int = 1
    """Bytes of one value: 1 for uint8, 4 for float32."""

    size: Size | None = None
    """What images are brought to, where that is a choice."""

    def file(self, row: int) -> str | None:
        """Return the path of an image's file in its folder; None where it has none."""
        return None

    def path(self, row: int) -> Path | None:
        """Return where an image's file is; None where it has none."""
        return None

    @abstractmethod
    def read(self, rows: Sequence[int]) -> Pixels:
        """Return the images of some rows; rows that cannot be decoded are left out and named."""


class HeldSource(ImageSource):
    """Pixels in memory, [N, C, H, W] uint8 or float32 in [0, 1], that some other source decoded."""

    def __init__(self, images: Tensor, contents: Tensor, decoding: str) -> None:
        self.shape = (images.shape[1], images.shape[2], images.shape[3])
        self.value_bytes = images.element_size()
        self.decoding = decoding
        self._images = images
        self._contents = contents

    def __len__(self) -> int:
        return len(self._images)

    def read(self, rows: Sequence[int]) -> Pixels:
        """Return copies of rows."""
        return Pixels(self._images[torch.tensor(rows)], list(range(len(rows))), [])

    def make_contents(self) -> Tensor:
        """Return the digests of where the pixels come from."""
        return self._contents


class DecodedSource(ImageSource):
    """Images that have to be decoded one by one: the author of a source writes `name` and `decode`."""

    decodes = True

    @abstractmethod
    def name(self, row: int) -> str:
        """Name the image of a row to the user."""

    @abstractmethod
    def decode(self, row: int) -> NDArray[Any]:
        """Return one image, [H, W, C], uint8 or, where `value_bytes` is 4, float32 in [0, 1]."""

    def read(self, rows: Sequence[int]) -> Pixels:
        """Decode rows; what cannot be decoded is left out and named."""
        images: list[Tensor] = []
        kept, bad = [], []
        for position, row in enumerate(rows):
            try:
                image = self.decode(row)
            except Exception as error:  # the decoders of damaged files fail in any way there is
                bad.append(BadFile(self.name(row), describe(error)))
                continue
            channels, height, width = self.shape
            if image.shape != (height, width, channels):
                raise sizes_differ((self.name(0), (width, height)), (self.name(row), image.shape[1::-1]))
            images.append(torch.from_numpy(image).permute(2, 0, 1))
            kept.append(position)
        stacked = torch.stack(images) if images else torch.empty(0, *self.shape, dtype=torch.uint8)
        return Pixels(stacked, kept, bad)


def read_all(source: ImageSource, chunks: Sequence[list[int]], workers: int) -> Iterator[Pixels]:
    """Read lists of rows in order, in worker processes where there are any and they pay."""
    if workers == 0 or not source.decodes:
        yield from map(source.read, chunks)
        return
    from torch.utils.data import DataLoader

    loader = DataLoader(
        _Chunks(source, chunks),
        batch_size=None,
        num_workers=min(workers, len(chunks), _cores()),
        multiprocessing_context=start_method(),
        collate_fn=_as_it_is,  # type: ignore[arg-type]  # one item is one batch: batch_size is None
        generator=torch.Generator(),  # its own, so that the user's stream of random numbers stays untouched
    )
    for pixels in loader:
        if isinstance(pixels, ShiftproofError):
            raise pixels
        yield pixels


def _cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Chunks(torch.utils.data.Dataset[Pixels | ShiftproofError]):
    """Lists of rows as a data set whose items are what reading them gives."""

    def __init__(self, source: ImageSource, chunks: Sequence[list[int]]) -> None:
        self.source = source
        self.chunks = chunks

    def __len__(self) -> int:
        return len(self.chunks)

    def __getitem__(self, index: int) -> Pixels | ShiftproofError:
        try:
            return self.source.read(self.chunks[index])
        except ShiftproofError as error:
            return error  # as a value, it arrives as it is


def _as_it_is(pixels: Pixels | ShiftproofError) -> Pixels | ShiftproofError:
    return pixels


def describe(error: Exception) -> str:
    """Return the first line of what an exception says, or its kind."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def unreadable(file: str, reason: str) -> DataError:
    """Return the error for a file that cannot be decoded."""
    return DataError(
        f"Cannot read the image {file!r}.",
        got=reason,
        fix="repair or remove the file; --on-bad-file skip leaves such files out and lists them",
    )


def sizes_differ(one: tuple[str, Sequence[int]], other: tuple[str, Sequence[int]]) -> DataError:
    """Return the error for two images, each a name with width and height, that are not of one size."""
    (first, (width, height)), (second, (other_width, other_height)) = one, other
    return DataError(
        DIFFERENT_SIZES,
        expected="images of one size, or a size to bring them to",
        got=f"{first} is {width} x {height}, {second} is {other_width} x {other_height} pixels",
        fix="--size 224 (size=224), or what the model takes, resizes the short side to it and crops the centre",
    )
