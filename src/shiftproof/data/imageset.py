"""A labelled set of images that streams: names, labels and keys are in memory, pixels only where they are wanted."""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from shiftproof.data.batch import Batch
from shiftproof.data.labels import Numbering
from shiftproof.data.source import BadFile, HeldSource, Source, read_all
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.keyed import Keyed

OnBadFile = Literal["fail", "skip"]

_CHUNK = 256  # images read at a time where nobody asks for batches


class ImageSet:
    """Images of one shape, with a name, keys and, where they are known, labels and class names.

    `keys` int64 [N] name the images for `keyed` randomness: the index in an array, a digest of a file's path in its
    folder. `labels` int64 [N] count the classes of the model, from 0; `numbering` says where these numbers come from,
    which decides how `matching.match` fits them to a model. `on_bad_file` is what happens to files that
    cannot be decoded: `fail` raises an error that names the first, `skip` leaves them out and lists them.
    """

    def __init__(
        self,
        source: Source,
        *,
        name: str,
        keys: Tensor,
        labels: Tensor | None = None,
        classes: Sequence[str] = (),
        numbering: Numbering = "index",
        notes: Sequence[str] = (),
        on_bad_file: OnBadFile = "fail",
        bad_files: Iterable[BadFile] = (),
    ) -> None:
        if on_bad_file not in ("fail", "skip"):
            raise ConfigurationError(
                f"Bad files cannot be treated by {on_bad_file!r}.", expected="on_bad_file: 'fail' or 'skip'"
            )
        self.source = source
        self.name = name
        self.keys = keys
        self.labels = labels
        self.classes = tuple(classes)
        self.numbering: Numbering = numbering
        self.on_bad_file = on_bad_file
        self._notes = tuple(notes)
        self._rows = torch.arange(len(keys))
        self._bad = dict.fromkeys(bad_files)  # in the order found; shared with subsets

    def __len__(self) -> int:
        return len(self._rows)

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
    def nbytes(self) -> int:
        """The memory `in_memory` takes."""
        return len(self) * math.prod(self.shape) * self.source.value_bytes

    @property
    def bad_files(self) -> tuple[BadFile, ...]:
        """The files found so far that cannot be decoded."""
        return tuple(self._bad)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a report on this set should say."""
        if not self._bad:
            return self._notes
        named = ", ".join(bad.file for bad in self.bad_files[:5]) + (", ..." if len(self._bad) > 5 else "")
        count = "1 file that cannot be read was" if len(self._bad) == 1 else f"{len(self._bad)} unreadable files were"
        return (*self._notes, f"{count} left out: {named}.")

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that change with any image, label, key or class name, and with how pixels are made."""
        blake = hashlib.blake2b(self.source.digest, digest_size=8)
        for numbers in (self.keys, self.labels):
            blake.update(b"none" if numbers is None else numbers.numpy().tobytes())
        blake.update("\0".join(self.classes).encode("utf-8", "backslashreplace"))
        return blake.hexdigest()

    def batches(self, size: int, *, workers: int = 0, device: torch.device | str = "cpu") -> Iterator[Batch]:
        """Return batches of `size` images in order, decoded in `workers` processes (0: in this one).

        A batch has fewer images where files cannot be decoded. With workers, a script needs the usual
        `if __name__ == "__main__":` around its work.
        """
        if size < 1 or workers < 0:
            raise ConfigurationError(
                "Batches cannot be made.", expected="a size of 1 or more, 0 or more workers", came=f"{size}, {workers}"
            )
        return self._batches(size, workers, torch.device(device))

    def _batches(self, size: int, workers: int, device: torch.device) -> Iterator[Batch]:
        chunks = self._chunks(size)
        for number, pixels in enumerate(read_all(self.source, chunks, workers)):
            self._report(pixels.bad)
            if not pixels.kept:
                continue
            chosen = torch.tensor(pixels.kept) + number * size
            labels = None if self.labels is None else self.labels[chosen].to(device)
            yield Batch(_unit(pixels.images.to(device)), labels, self.keys[chosen].to(device))

    def subset(self, indices: Sequence[int] | Tensor) -> ImageSet:
        """Return the images at some places, in the order given."""
        chosen = torch.as_tensor(indices, dtype=torch.int64)
        made = copy.copy(self)
        made.__dict__.pop("fingerprint", None)  # the cached one is of all images
        made.keys = self.keys[chosen]
        made.labels = None if self.labels is None else self.labels[chosen]
        made._rows = self._rows[chosen]
        return made

    def renumbered(self, labels: Tensor, classes: Sequence[str], *notes: str) -> ImageSet:
        """Return the set with labels that are output indices of a model, and what a report should say of them."""
        made = copy.copy(self)
        made.__dict__.pop("fingerprint", None)
        made.labels, made.classes, made.numbering = labels, tuple(classes), "index"
        made._notes = (*self._notes, *notes)
        return made

    def take(self, n: int, *, seed: int = 0) -> ImageSet:
        """Return n images (all where there are fewer), with classes as balanced as can be, in their order here.

        Which ones depends on the seed, the keys and the labels alone; a larger n takes the same images and more.
        """
        if n < 1:
            raise ConfigurationError("There must be images to take.", expected="1 or more", came=str(n))
        if n >= len(self):
            return self
        drawn = Keyed(seed, self.keys).fork("take").uniform().tolist()
        labels = [0] * len(self) if self.labels is None else self.labels.tolist()
        keys = self.keys.tolist()
        order = sorted(range(len(self)), key=lambda index: (drawn[index], keys[index]))
        taken: dict[int, int] = {}  # how many of each class came before
        ranks = []
        for place, index in enumerate(order):
            rank = taken[labels[index]] = taken.get(labels[index], -1) + 1
            ranks.append((rank, place, index))
        return self.subset(sorted(index for _, _, index in sorted(ranks)[:n]))

    def in_memory(self, *, workers: int = 0) -> ImageSet:
        """Return the same set with its pixels decoded and held in memory, without the files that cannot be decoded."""
        dtype = torch.uint8 if self.source.value_bytes == 1 else torch.float32
        images = torch.empty(len(self), *self.shape, dtype=dtype)
        kept: list[int] = []
        chunks = self._chunks(_CHUNK)
        for number, pixels in enumerate(read_all(self.source, chunks, workers)):
            self._report(pixels.bad)
            images[len(kept) : len(kept) + len(pixels.kept)] = pixels.images
            kept.extend(number * _CHUNK + position for position in pixels.kept)
        made = self.subset(kept)
        made.source = HeldSource(images[: len(kept)], self.source.digest)
        made._rows = torch.arange(len(kept))
        return made

    def _chunks(self, size: int) -> list[list[int]]:
        rows: list[int] = self._rows.tolist()
        return [rows[start : start + size] for start in range(0, len(rows), size)]

    def _report(self, bad: Sequence[BadFile]) -> None:
        """List bad files, and stop at them where they are not to be skipped."""
        for file, reason in bad:
            if self.on_bad_file == "fail":
                raise unreadable(file, reason)
        self._bad.update(dict.fromkeys(bad))


def unreadable(file: str, reason: str) -> DataError:
    """Return the error for a file that cannot be decoded."""
    return DataError(
        f"Cannot read the image {file!r}.",
        came=reason,
        instead="repair or remove the file; --on-bad-file skip leaves such files out and lists them",
    )


def _unit(images: Tensor) -> Tensor:
    """Return stored values as float32 in [0, 1]."""
    return images.float().div_(255.0) if images.dtype == torch.uint8 else images.float()
