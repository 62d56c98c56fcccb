"""Corrupted copies of a set of images as arrays: one `.npy` file for each shift, or for all severities of one."""

from __future__ import annotations

import io
import os
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from shiftproof.data import BadFile, Batch, DataLike, ImageSet, load_images
from shiftproof.errors import DataError
from shiftproof.exports.copies import CopiedRun, Copies, digest_of
from shiftproof.exports.suites import Target
from shiftproof.runs import Json, Row, write_atomically
from shiftproof.runs.files import cannot_write, not_through_a_link
from shiftproof.shifts.levels import to_bytes

LABELS = "labels.npy"


@dataclass(frozen=True, kw_only=True)
class ArrayCopies(Copies):
    """Copies as uint8 arrays [B * N, H, W, C], block after block, and the labels as often as there are blocks.

    `data` is what `load_data` takes. An array is filled under the name `fog.npy.part`, and is called
    `fog.npy` once it is whole.
    """

    slice_images: ClassVar[int] = 1024

    data: DataLike

    @cached_property
    def images(self) -> ImageSet:
        """The images."""
        return load_images(self.data)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the loaded images behind: another process loads its own."""
        return {name: value for name, value in self.__dict__.items() if name != "images"}

    @property
    def values(self) -> Sequence[int]:
        """How many values each image has."""
        return [prod(self.images.shape)] * len(self.images)

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that change with any image, label or key."""
        return self.images.fingerprint

    @property
    def bad(self) -> tuple[BadFile, ...]:
        """The files that are left out."""
        return self.images.bad_files

    @cached_property
    def blocks(self) -> dict[str, int]:
        """How many blocks of all images each array has."""
        return {target.path: target.block + 1 for target in sorted(self.targets, key=lambda each: each.block)}

    def part(self, path: str) -> Path:
        """Return where an array is while it is filled."""
        return self.out / f"{path}.part"

    def prepare(self, begun: Sequence[CopiedRun]) -> None:
        """Make the arrays to be filled, where they are not there yet; one that lost rows is unfinished again."""
        whole = Counter(self.target(task).path for task in begun)
        planned = Counter(self.target(task).path for task in self.tasks())
        for path in self.blocks:
            part, made = self.part(path), self.out / path
            try:
                if whole[path] == planned[path] or self._opened(part) is not None:
                    continue
                if self._opened(made) is not None:
                    made.replace(part)
                    continue
                new = self.out / f"{path}.new"
                new.unlink(missing_ok=True)  # of a killed run, or a link
                np.lib.format.open_memmap(new, mode="w+", dtype=np.uint8, shape=self._shape(path))
                new.replace(part)
                made.unlink(missing_ok=True)
            except OSError as error:
                raise cannot_write(part, error) from error

    def _shape(self, path: str) -> tuple[int, ...]:
        channels, height, width = self.images.shape
        return self.blocks[path] * len(self.images), height, width, channels

    def _opened(self, path: Path) -> NDArray[np.uint8] | None:
        """Return an array on disk, finished or not; None where there is none, or a file that is not this array."""
        try:
            found: NDArray[np.uint8] = np.lib.format.open_memmap(path, mode="r")
        except (OSError, ValueError):
            return None
        expected = self._shape(path.name.removesuffix(".part"))
        return found if (found.dtype, found.shape) == (np.dtype(np.uint8), expected) else None

    def read(self, rows: range) -> Batch[Tensor]:
        """Return a run of images as one batch."""
        data = self.images.subset(rows)
        batch = next(data.batches(len(rows), device=self.device), None)
        if batch is None or len(batch) < len(rows):
            raise DataError(
                "Some files cannot be read, and an array cannot leave rows out.",
                got=", ".join(bad.file for bad in data.bad_files),
                fix="repair the files, or take them out of the data",
            )
        return batch

    def write(self, images: Batch[Tensor], rows: range, target: Target) -> Row:
        """Shift images and write them to their rows."""
        shifted = to_bytes(target.shift(images.inputs, images.keys, seed=self.seed)).permute(0, 2, 3, 1)
        first = target.block * len(self.images) + rows.start
        made = shifted.contiguous().cpu().numpy()
        write_rows(self.part(target.path), first, made)
        return {"images": len(rows), "left_out": [], "digest": digest_of([made.data])}

    def digest(self, rows: range, target: Target, left_out: Collection[str]) -> str | None:
        """Return a digest of some rows of an array, as they are."""
        part = self._opened(self.part(target.path))
        found = self._opened(self.out / target.path) if part is None else part
        first = target.block * len(self.images) + rows.start
        return None if found is None else digest_of([found[first : first + len(rows)].tobytes()])

    def finish(self) -> None:
        """Write the labels, and give whole arrays their names."""
        labels = self.images.labels
        if labels is not None:
            kind = np.uint8 if int(labels.max()) < 256 else np.int64  # bytes, as in the published sets
            file = io.BytesIO()
            np.save(file, np.tile(labels.numpy().astype(kind), max(self.blocks.values())))
            write_atomically(self.out / LABELS, file.getvalue())
        for path in self.blocks:
            if self.part(path).exists():
                self.part(path).replace(self.out / path)

    def describe(self, left_out: Sequence[BadFile]) -> dict[str, Json]:
        """Say nothing more: every block has all images, in their order."""
        return {}


def write_rows(path: Path, first: int, rows: NDArray[np.uint8]) -> None:
    """Write rows of an `.npy` file, from row `first` on, through to the disk.

    By an ordinary write, and not through mapped memory, where a full disk would kill the process.
    """
    try:
        offset = np.lib.format.open_memmap(path, mode="r").offset
        with open(path, "r+b", opener=not_through_a_link) as file:
            file.seek(offset + first * rows[0].nbytes)
            file.write(rows.data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise cannot_write(path, error) from error
