"""A labelled set of images that streams: labels are in memory, pixels only where they are wanted."""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from shiftproof.data.batch import Batch
from shiftproof.data.contents import content_keys, numbered, occurrences
from shiftproof.data.labels import Numbering
from shiftproof.data.levels import unit
from shiftproof.data.source import BadFile, HeldSource, Pixels, Source, read_all
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.keyed import Keyed

OnBadFile = Literal["fail", "skip"]

_CHUNK = 256  # images read at a time where nobody asks for batches


class _Repeats:
    """Which of its equals each row of a source is: counted over the whole set, when first asked for."""

    def __init__(self, source: Source, labels: Tensor | None) -> None:
        self._source, self._labels = source, labels

    @cached_property
    def numbers(self) -> Tensor:
        """Occurrence numbers from 0, one for each row."""
        return occurrences(self._source.contents, self._labels)

    def of(self, rows: Tensor, source: Source) -> _Repeats:
        """Return the numbers of some rows, which are all rows of another source."""
        made = _Repeats(source, None)
        made.numbers = self.numbers[rows]
        return made


class ImageSet:
    """Images of one shape, with a name and, where they are known, labels and class names.

    `labels` int64 [N] count the classes of the model, from 0; `numbering` says where these numbers come from, which
    decides how `matching.match` fits them to a model. `on_bad_file` is what happens to files that cannot be decoded:
    `fail` raises an error that names the first, `skip` leaves them out and lists them.
    """

    def __init__(
        self,
        source: Source,
        *,
        name: str,
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
        self.labels = labels
        self.classes = tuple(classes)
        self.numbering: Numbering = numbering
        self.on_bad_file = on_bad_file
        self._notes = tuple(notes)
        self._rows = torch.arange(len(source))
        self._repeats = _Repeats(source, labels)  # shared with subsets
        self._keys: Tensor | None = None
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

    @property
    def draw_keys(self) -> Tensor:
        """Whole numbers that draws and orders are keyed by, [N]: digests of stored bytes, and which of its equals."""
        return numbered(self.source.contents[self._rows], self._repeats.numbers[self._rows])

    @property
    def keys(self) -> Tensor:
        """Whole numbers that name the images for `keyed` randomness, [N]: digests of pixels, and which of its equals.

        Where pixels are not held, this decodes every image; batches carry the keys of their images without that.
        """
        if self._keys is None:
            found = self.draw_keys.clone()  # a file that cannot be decoded has no pixels
            for number, pixels in enumerate(read_all(self.source, self._chunks(_CHUNK), 0)):
                self._report(pixels.bad)
                places = torch.tensor(pixels.kept, dtype=torch.int64) + number * _CHUNK
                found[places] = self._named(pixels, places)
            self._keys = found
        return self._keys

    def _named(self, pixels: Pixels, places: Tensor) -> Tensor:
        return numbered(content_keys(pixels.images), self._repeats.numbers[self._rows[places]])

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that change with any image, label or class name, their order, and the decoding."""
        blake = hashlib.blake2b(self.source.decoding.encode(), digest_size=8)
        for numbers in (self.draw_keys, self.labels):
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
                "Batches cannot be made.", expected="a size of 1 or more, 0 or more workers", got=f"{size}, {workers}"
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
            keys = self._named(pixels, chosen) if self._keys is None else self._keys[chosen]
            yield Batch(unit(pixels.images.to(device)), labels, keys.to(device))

    def subset(self, indices: Sequence[int] | Tensor) -> ImageSet:
        """Return the images at some places, in the order given."""
        chosen = torch.as_tensor(indices, dtype=torch.int64)
        made = copy.copy(self)
        made.__dict__.pop("fingerprint", None)  # the cached one is of all images
        made._keys = None if self._keys is None else self._keys[chosen]
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

    def noted(self, *notes: str) -> ImageSet:
        """Return the set with more that a report should say of it."""
        made = copy.copy(self)
        made._notes = (*self._notes, *notes)
        return made

    def take(self, n: int | None = None, *, seed: int = 0) -> ImageSet:
        """Return n images (all for None, or where there are fewer), with classes in their shares, in a random order.

        Any first part of them is a sample of the set. Which ones and in which order depends on the seed, the content
        of the files and the labels alone, not on the names or the order of files; a larger n takes the same images and
        more. The order is uniform: batches are not balanced by label, which would tell a model that adapts about them.
        """
        return self.subset(self.draw(n, seed=seed))

    def draw(self, n: int | None = None, *, seed: int = 0) -> Tensor:
        """Return the places of the images that `take` takes, in its order."""
        if n is not None and n < 1:
            raise ConfigurationError("There must be images to take.", expected="1 or more", got=str(n))
        mixed = self.order(seed, "order")
        if n is None or n >= len(self):
            return mixed
        chosen = torch.zeros(len(self), dtype=torch.bool)
        chosen[in_shares(self.order(seed, "take"), self.labels)[:n]] = True
        return mixed[chosen[mixed]]

    def order(self, seed: int, purpose: str) -> Tensor:
        """Return a random order of the images, [N]: a matter of the seed, the purpose, their content and labels."""
        keys = self.draw_keys
        drawn = Keyed(seed, keys).fork(purpose).uniform()
        ties = [] if self.labels is None else [self.labels.numpy()]
        return torch.from_numpy(np.lexsort((*ties, keys.numpy(), drawn.numpy())))

    def in_memory(self, *, workers: int = 0) -> ImageSet:
        """Return the same set with its pixels decoded and held in memory, without the files that cannot be decoded."""
        dtype = torch.uint8 if self.source.value_bytes == 1 else torch.float32
        images = torch.empty(len(self), *self.shape, dtype=dtype)
        keys = torch.empty(len(self), dtype=torch.int64)
        kept: list[int] = []
        chunks = self._chunks(_CHUNK)
        for number, pixels in enumerate(read_all(self.source, chunks, workers)):
            self._report(pixels.bad)
            places = torch.tensor(pixels.kept, dtype=torch.int64) + number * _CHUNK
            here = slice(len(kept), len(kept) + len(places))
            images[here] = pixels.images
            keys[here] = self._named(pixels, places)
            kept.extend(places.tolist())
        made = self.subset(kept)
        rows = made._rows
        made.source = HeldSource(images[: len(kept)], self.source.contents[rows], self.source.decoding)
        made._repeats = self._repeats.of(rows, made.source)
        made._rows = torch.arange(len(kept))
        made._keys = keys[: len(kept)]
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
        got=reason,
        fix="repair or remove the file; --on-bad-file skip leaves such files out and lists them",
    )


def in_shares(order: Tensor, labels: Tensor | None) -> Tensor:
    """Return an order in which every first part has the classes in the shares of the whole, as nearly as can be.

    The k-th image of a class with m images comes when (k - 1/2)/m of the set is due: Sainte-Lague's rule for seats.
    """
    if labels is None:
        return order
    own = labels[order]
    sizes = torch.bincount(own)
    grouped = own.argsort(stable=True)
    rank = torch.empty_like(order)  # how many of the same class came before
    rank[grouped] = torch.arange(len(order)) - (sizes.cumsum(0) - sizes)[own[grouped]]
    return order[((rank + 0.5).double() / sizes[own]).argsort(stable=True)]
