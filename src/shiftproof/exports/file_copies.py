"""Corrupted copies of a folder of images: the same files in the same sub-folders, one tree for each shift."""

from __future__ import annotations

import csv
import hashlib
import io
import os
import re
import warnings
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shiftproof.data import BadFile
from shiftproof.data.base import OnBadFile
from shiftproof.data.contents import content_keys, numbered, occurrences
from shiftproof.data.file_digests import file_digests
from shiftproof.data.images.decoding import Decoder
from shiftproof.data.images.folders import FolderSource
from shiftproof.data.images.source import describe, unreadable
from shiftproof.data.label_tables import read_table
from shiftproof.errors import DataError
from shiftproof.exports.annotations import copy_beside
from shiftproof.exports.copies import CopiedRun, Copies, digest_of
from shiftproof.exports.image_files import FilePixels, Reader, encode
from shiftproof.exports.label_maps import (
    LabelMap,
    remade,
)
from shiftproof.exports.suites import Target
from shiftproof.runs import Json, Row, write_atomically
from shiftproof.shifts.corrupting import DEEPEST, corrupt
from shiftproof.shifts.moving import pixel_origins
from shiftproof.shifts.origins import OUTSIDE

Format = Literal["same", "png", "jpg"]

LABELS = "labels.csv"
_SUFFIXES = {"png": (".png",), "jpg": (".jpg", ".jpeg", ".jfif")}
_TEMPORARY = re.compile(r"\..+\.[a-z0-9_]{8}")  # what `write_atomically` calls a file until it is whole


class Run(NamedTuple):
    """Decoded images by their place among the files, their label maps' files, and the files that cannot be decoded."""

    images: dict[int, FilePixels]
    masks: dict[int, bytes]
    bad: list[BadFile]


@dataclass(frozen=True, kw_only=True)
class FileCopies(Copies):
    """Copies of the images under the folder `root`, whatever their sizes.

    `files` are their paths from the root, with how many values each has; `unread` are the files left out, `masks` the
    label maps by image, and `beside` the other files to copy.
    """

    slice_images: ClassVar[int] = 64

    root: Path
    files: tuple[str, ...]
    file_values: tuple[int, ...]
    unread: tuple[BadFile, ...]
    masks: Mapping[str, LabelMap]
    beside: tuple[str, ...]
    reader: Reader
    file_format: Format
    quality: int
    ignore: int
    on_bad_file: OnBadFile

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The path of each copy within its tree."""
        return tuple(copied_name(file, self.file_format) for file in self.files)

    @cached_property
    def contents(self) -> Tensor:
        """A digest of each file's content, [N] int64."""
        whatever_size = (0, 0)
        return FolderSource(self.root, self.files, Decoder("rgb"), whatever_size).contents

    @cached_property
    def repeats(self) -> Tensor:
        """Which of its equals each file is: equal files get noise of their own."""
        return occurrences(self.contents, None)

    @property
    def values(self) -> Sequence[int]:
        """How many values each image has."""
        return self.file_values

    @property
    def bad(self) -> tuple[BadFile, ...]:
        """The files that are left out."""
        return self.unread

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that change with any file or name; the size of copies is a setting of theirs."""
        blake = hashlib.blake2b(self.contents.numpy().tobytes(), digest_size=8)
        blake.update(b"\0".join(map(os.fsencode, self.files)))
        if self.masks:
            blake.update(file_digests([mask.path for mask in self.masks.values()]).numpy().tobytes())
            blake.update(b"\0".join(os.fsencode(f"{file}/{mask.name}") for file, mask in self.masks.items()))
        return blake.hexdigest()

    @property
    def companions(self) -> tuple[int, int]:
        """How many images have a label map, and how many other files are copied."""
        return len(self.masks), len(self.beside)

    def prepare(self, begun: Sequence[CopiedRun]) -> None:
        """Remove what a killed run left half-written."""
        for folder, _, files in os.walk(self.out):
            for name in filter(_TEMPORARY.fullmatch, files):
                (Path(folder) / name).unlink(missing_ok=True)

    def read(self, rows: range) -> Run:
        """Decode files."""
        run = Run({}, {}, [])
        with warnings.catch_warnings(), ThreadPoolExecutor() as pool:
            warnings.simplefilter("ignore")  # about odd metadata; here, since threads share the filters
            for row, found in zip(rows, pool.map(self._decode, rows), strict=True):
                if isinstance(found, BadFile):
                    run.bad.append(found)
                    continue
                run.images[row] = found
                if self.files[row] in self.masks:
                    run.masks[row] = self.masks[self.files[row]].path.read_bytes()
        if run.bad and self.on_bad_file == "fail":
            raise unreadable(*run.bad[0])
        return run

    def write(self, images: Run, rows: range, target: Target) -> Row:
        """Shift images in groups of one size, and write their files."""
        groups: dict[tuple[object, ...], list[int]] = {}
        written: dict[int, list[bytes]] = {}
        for row, image in images.images.items():
            groups.setdefault((image.values.shape, image.values.dtype), []).append(row)
        with ThreadPoolExecutor() as pool:
            for group in groups.values():
                pictures = [images.images[row] for row in group]
                made, origins = self._shifted(pictures, group, target, moves=any(row in images.masks for row in group))
                masks = [images.masks.get(row) for row in group]
                tree = self.out / target.path
                saved = pool.map(self._save, [tree] * len(group), group, made, origins, masks)
                written.update(zip(group, saved, strict=True))  # an error in a thread is raised here
        digest = digest_of(content for row in sorted(written) for content in written[row])
        return {"images": len(written), "left_out": [list(bad) for bad in images.bad], "digest": digest}

    def digest(self, rows: range, target: Target, left_out: Collection[str]) -> str | None:
        """Return a digest of the files of some rows, as they are."""
        paths = []
        for row in rows:
            if printable(self.files[row]) not in left_out:
                paths.append(self.names[row])
                if self.files[row] in self.masks:
                    paths.append(self.masks[self.files[row]].name)
        with ThreadPoolExecutor() as pool:
            try:
                return digest_of(pool.map(lambda path: (self.out / target.path / path).read_bytes(), paths))
            except OSError:
                return None

    def finish(self) -> None:
        """Copy what lies beside the images into every tree, and the table of labels with the names of the copies."""
        for target in self.targets:
            copy_beside(self.root, self.beside, self.out / target.path)
        if LABELS in self.beside or not (self.root / LABELS).is_file():
            return
        copied = dict(zip(self.files, self.names, strict=True))
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("file", "label"))
        for file, label in read_table(self.root / LABELS).labels.items():
            if file in copied:
                writer.writerow((copied[file], label))
        for target in self.targets:
            write_atomically(self.out / target.path / LABELS, text.getvalue())

    def describe(self, left_out: Sequence[BadFile]) -> dict[str, Json]:
        """Say where each image comes from, and where it is in every tree."""
        missing = {bad.file for bad in left_out}
        return {
            "files": [
                {
                    "path": printable(name),
                    "source": printable(file),
                    **({"mask": printable(self.masks[file].name)} if file in self.masks else {}),
                }
                for file, name in zip(self.files, self.names, strict=True)
                if printable(file) not in missing
            ],
            **({"copied": [printable(file) for file in self.beside]} if self.beside else {}),
        }

    def _shifted(
        self, pictures: Sequence[FilePixels], rows: Sequence[int], target: Target, *, moves: bool
    ) -> tuple[list[FilePixels], Sequence[NDArray[np.int64] | None]]:
        """Return images of one size after a shift, and where their pixels come from if the shift moves what is there.

        What is there besides pixels: a transparency, or label maps (`moves`).
        """
        values = np.stack([picture.values for picture in pictures])
        shift, deep = target.shift, values.dtype == np.uint16
        batch = torch.from_numpy(values.astype(np.float32) / np.float32(DEEPEST) if deep else values)
        batch = batch.permute(0, 3, 1, 2).to(self.device)
        keys = numbered(content_keys(batch), self.repeats[list(rows)])
        if deep:
            levels = shift.at_full_depth(batch, keys, seed=self.seed).mul_(DEEPEST).round_().cpu().numpy()
            made = levels.astype(np.uint16).transpose(0, 2, 3, 1)
        else:
            made = corrupt(batch, shift, seed=self.seed, keys=keys).permute(0, 2, 3, 1).cpu().numpy()
        alphas = [picture.alpha for picture in pictures]
        if not (shift.moves and (moves or any(alpha is not None for alpha in alphas))):
            return [FilePixels(*both) for both in zip(made, alphas, strict=True)], [None] * len(rows)
        height, width = values.shape[1:3]
        origins = pixel_origins(shift, keys, height, width, seed=self.seed, device=self.device).cpu().numpy()
        moved = [
            None if alpha is None else np.where(origin == OUTSIDE, 0, alpha.ravel()[origin]).astype(np.uint8)
            for alpha, origin in zip(alphas, origins, strict=True)
        ]
        return [FilePixels(*both) for both in zip(made, moved, strict=True)], list(origins)

    def _decode(self, row: int) -> FilePixels | BadFile:
        try:
            return self.reader.read(self.root / self.files[row])
        except Exception as error:  # the decoders of damaged files fail in any way there is
            return BadFile(printable(self.files[row]), describe(error))

    def _save(
        self, tree: Path, row: int, picture: FilePixels, origins: NDArray[np.int64] | None, mask: bytes | None
    ) -> list[bytes]:
        """Write an image and its label map, and return their contents."""
        path = tree / self.names[row]
        contents = [encode(picture, path.suffix, self.quality)]
        write_atomically(path, contents[0])
        if mask is not None:
            found = self.masks[self.files[row]]
            if origins is not None or self.reader.size is not None:
                height, width = picture.values.shape[:2]
                try:
                    mask = remade(mask, origins, ignore=self.ignore, size=self.reader.size, wanted=(width, height))
                except Exception as error:  # the decoders of damaged files fail in any way there is
                    raise DataError(f"Cannot move the label map {found.name!r}.", got=describe(error)) from error
            write_atomically(tree / found.name, mask)
            contents.append(mask)
        return contents


def copied_name(file: str, file_format: Format) -> str:
    """Return the path of a file's copy: its own, with another suffix where the format asks for one.

    >>> copied_name("cat/1.JPEG", "jpg"), copied_name("cat/1.JPEG", "png"), copied_name("cat/1.bmp", "same")
    ('cat/1.JPEG', 'cat/1.png', 'cat/1.bmp')
    """
    stem, suffix = os.path.splitext(file)  # noqa: PTH122  (as text: `with_suffix` would refuse odd names)
    if file_format == "same" or suffix.lower() in _SUFFIXES[file_format]:
        return file
    return stem + _SUFFIXES[file_format][0]


def printable(file: str) -> str:
    """Return a path as text: bytes of a name that are not UTF-8 are written out."""
    return os.fsencode(file).decode("utf-8", "backslashreplace")
