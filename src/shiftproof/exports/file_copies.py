"""Corrupted copies of a folder of images: the same files in the same sub-folders, one tree for each shift."""

from __future__ import annotations

import csv
import hashlib
import io
import os
import re
import warnings
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from shiftproof.data import BadFile
from shiftproof.data.base import OnBadFile
from shiftproof.data.contents import content_keys, numbered, occurrences
from shiftproof.data.images.decoding import IMAGE_SUFFIXES, Decoder, Size, header, open_image
from shiftproof.data.images.folders import FolderSource, images_under
from shiftproof.data.images.source import describe, unreadable
from shiftproof.data.labels import read_table
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.exports.copies import CopiedRun, Copies, digest_of
from shiftproof.exports.suites import Target
from shiftproof.runs import Json, Row, write_atomically
from shiftproof.shifts.corrupting import corrupt
from shiftproof.shifts.image_shift import SMALLEST_SIDE

Format = Literal["png", "jpg", "same"]

LABELS = "labels.csv"
_SUFFIXES = {"png": (".png",), "jpg": (".jpg", ".jpeg", ".jfif")}
_TEMPORARY = re.compile(r"\..+\.[a-z0-9_]{8}")  # what `write_atomically` calls a file until it is whole


class Run(NamedTuple):
    """Decoded images [H, W, 3] by their place among the files, and the files that cannot be decoded."""

    images: dict[int, NDArray[np.uint8]]
    bad: list[BadFile]


@dataclass(frozen=True, kw_only=True)
class FileCopies(Copies):
    """Copies of the images under the folder `root`, whatever their sizes.

    `files` are their paths from the root, with how many values each has; `unread` are the files left out.
    """

    slice_images: ClassVar[int] = 64

    root: Path
    files: tuple[str, ...]
    file_values: tuple[int, ...]
    unread: tuple[BadFile, ...]
    size: Size | None
    file_format: Format
    quality: int
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
        return blake.hexdigest()

    def prepare(self, begun: Sequence[CopiedRun]) -> None:
        """Remove what a killed run left half-written."""
        for folder, _, files in os.walk(self.out):
            for name in filter(_TEMPORARY.fullmatch, files):
                (Path(folder) / name).unlink(missing_ok=True)

    def read(self, rows: range) -> Run:
        """Decode files."""
        run = Run({}, [])
        with warnings.catch_warnings(), ThreadPoolExecutor() as pool:
            warnings.simplefilter("ignore")  # about odd metadata; here, since threads share the filters
            for row, found in zip(rows, pool.map(self._decode, rows), strict=True):
                if isinstance(found, BadFile):
                    run.bad.append(found)
                else:
                    run.images[row] = found
        if run.bad and self.on_bad_file == "fail":
            raise unreadable(*run.bad[0])
        return run

    def write(self, images: Run, rows: range, target: Target) -> Row:
        """Shift images in groups of one size, and write their files."""
        groups: dict[tuple[int, ...], list[int]] = {}
        written: dict[int, bytes] = {}
        for row, image in images.images.items():
            groups.setdefault(image.shape, []).append(row)
        with ThreadPoolExecutor() as pool:
            for group in groups.values():
                batch = torch.from_numpy(np.stack([images.images[row] for row in group])).permute(0, 3, 1, 2)
                keys = numbered(content_keys(batch), self.repeats[group])
                made = corrupt(batch.to(self.device), target.shift, seed=self.seed, keys=keys)
                paths = (self.out / target.path / self.names[row] for row in group)
                saved = pool.map(self._save, paths, made.permute(0, 2, 3, 1).cpu().numpy())
                written.update(zip(group, saved, strict=True))  # an error in a thread is raised here
        digest = digest_of(written[row] for row in sorted(written))
        return {"images": len(written), "left_out": [list(bad) for bad in images.bad], "digest": digest}

    def digest(self, rows: range, target: Target, left_out: Collection[str]) -> str | None:
        """Return a digest of the files of some rows, as they are."""
        kept = [row for row in rows if printable(self.files[row]) not in left_out]
        with ThreadPoolExecutor() as pool:
            try:
                return digest_of(pool.map(lambda row: (self.out / target.path / self.names[row]).read_bytes(), kept))
            except OSError:
                return None

    def finish(self) -> None:
        """Write the table of labels into every tree, where the source has one."""
        if not (self.root / LABELS).is_file():
            return
        copied = dict(zip(self.files, self.names, strict=True))
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("file", "label"))
        for file, label in read_table(self.root / LABELS).items():
            if file in copied:
                writer.writerow((copied[file], label))
        for target in self.targets:
            write_atomically(self.out / target.path / LABELS, text.getvalue())

    def describe(self, left_out: Sequence[BadFile]) -> dict[str, Json]:
        """Say where each image comes from, and where it is in every tree."""
        missing = {bad.file for bad in left_out}
        return {
            "files": [
                {"path": printable(name), "source": printable(file)}
                for file, name in zip(self.files, self.names, strict=True)
                if printable(file) not in missing
            ],
        }

    def _decode(self, row: int) -> NDArray[np.uint8] | BadFile:
        try:
            with open_image(self.root / self.files[row]) as image:
                return Decoder("rgb", self.size).pixels(image)
        except Exception as error:  # the decoders of damaged files fail in any way there is
            return BadFile(printable(self.files[row]), describe(error))

    def _save(self, path: Path, image: NDArray[np.uint8]) -> bytes:
        content = encode(image, path.suffix, self.quality)
        write_atomically(path, content)
        return content


def copies_of_folder(
    root: Path, *, size: Size | None, file_format: Format, on_bad_file: OnBadFile, **options: Any
) -> FileCopies:
    """Find the images under a folder and read their headers."""
    listed = images_under(root)
    if not listed:
        raise DataError(
            f"There are no images in the folder {str(root)!r}.",
            expected=f"files that end in {' '.join(sorted(IMAGE_SUFFIXES))}, in sub-folders or not",
        )
    decoder = Decoder("rgb", size)
    with warnings.catch_warnings(), ThreadPoolExecutor() as pool:
        warnings.simplefilter("ignore")  # about odd metadata
        found = dict(zip(listed, pool.map(lambda file: _values(root / file, decoder), listed), strict=True))
    good = {file: values for file, values in found.items() if isinstance(values, int)}
    bad = tuple(BadFile(printable(file), reason) for file, reason in found.items() if isinstance(reason, str))
    if bad and (on_bad_file == "fail" or not good):
        raise unreadable(*bad[0])
    _check_distinct(good, file_format)
    return FileCopies(
        root=root,
        files=tuple(good),
        file_values=tuple(good.values()),
        unread=bad,
        size=size,
        file_format=file_format,
        on_bad_file=on_bad_file,
        **options,
    )


def copied_name(file: str, file_format: Format) -> str:
    """Return the path of a file's copy: its own, with another suffix where the format asks for one.

    >>> copied_name("cat/1.JPEG", "jpg"), copied_name("cat/1.JPEG", "png"), copied_name("cat/1.bmp", "same")
    ('cat/1.JPEG', 'cat/1.png', 'cat/1.bmp')
    """
    stem, suffix = os.path.splitext(file)  # noqa: PTH122  (as text: `with_suffix` would refuse odd names)
    if file_format == "same" or suffix.lower() in _SUFFIXES[file_format]:
        return file
    return stem + _SUFFIXES[file_format][0]


def encode(image: NDArray[np.uint8], suffix: str, quality: int) -> bytes:
    """Return an image [H, W, 3] as the content of a file with a suffix; `quality` is for formats that lose some."""
    kind = Image.registered_extensions()[suffix.lower()]
    # PNG loses nothing at any level, and noise does not get smaller with more work; JPEG is optimised as published.
    lossless: dict[str, Any] = {"compress_level": 1}
    file = io.BytesIO()
    options = lossless if kind == "PNG" else {"quality": quality, "optimize": True}
    Image.fromarray(image).save(file, kind, **options)
    return file.getvalue()


def printable(file: str) -> str:
    """Return a path as text: bytes of a name that are not UTF-8 are written out."""
    return os.fsencode(file).decode("utf-8", "backslashreplace")


def _values(path: Path, decoder: Decoder) -> int | str:
    """Return how many values an image will have, or why it cannot be used."""
    try:
        size, _ = header(str(path))
    except Exception as error:  # what is no image fails in any way there is
        return describe(error)
    width, height = decoder.output_size(size)
    if min(width, height) < SMALLEST_SIDE:
        return f"{width} x {height} pixels; sides of at least {SMALLEST_SIDE} can be corrupted"
    return 3 * width * height


def _check_distinct(files: Iterable[str], file_format: Format) -> None:
    """Refuse files whose copies would have one name, or cannot be written."""
    first: dict[str, str] = {}
    for file in files:
        name = copied_name(file, file_format)
        if name in first:
            raise ConfigurationError(
                "Two files would be written under one name.",
                got=f"{printable(first[name])} and {printable(file)}, both as {printable(name)}",
                fix="--format same keeps the names and formats of files",
            )
        if Image.registered_extensions().get(Path(name).suffix.lower()) not in Image.SAVE:
            raise ConfigurationError(
                f"This installation of Pillow cannot write files such as {printable(name)!r}.", fix="--format png"
            )
        first[name] = file
