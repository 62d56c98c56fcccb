"""WebDataset's tar files: samples are files of one name with different endings, `000017.png` and `000017.cls`.

Images are read from where they are in the archive. What `write_stream` writes is read too, with the class names of its
manifest.
"""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from shiftproof.data.base import OnBadFile
from shiftproof.data.columns import LABEL_COLUMNS, find_columns
from shiftproof.data.contents import digests
from shiftproof.data.images.decoding import Color, Decoder, Size, is_image_name
from shiftproof.data.images.imageset import ImageSet
from shiftproof.data.images.source import DecodedSource, describe, unreadable
from shiftproof.data.labels import number_labels
from shiftproof.errors import DataError
from shiftproof.runs.files import read_json

MANIFEST = "manifest.json"
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_LARGEST_LABEL = 2**20  # bytes of a .cls, .txt or .json file


class Encoded(NamedTuple):
    """An image within an archive: where its bytes are."""

    tar: Path
    name: str
    start: int
    size: int

    def read(self) -> bytes:
        """Return the bytes."""
        with self.tar.open("rb") as file:
            file.seek(self.start)
            return file.read(self.size)


class TarSource(DecodedSource):
    """Images within tar files, decoded when they are read."""

    def __init__(self, images: Sequence[Encoded], decoder: Decoder) -> None:
        self._images = images
        self._decoder = decoder
        self.size = decoder.size
        self.decoding = repr(decoder)
        try:
            height, width, channels = self.decode(0).shape
        except Exception as error:  # the decoders of damaged files fail in any way there is
            raise unreadable(self.name(0), describe(error)) from error
        self.shape = (channels, height, width)

    def __len__(self) -> int:
        return len(self._images)

    def name(self, row: int) -> str:
        """Name an image by its archive and its name there."""
        return f"{self._images[row].tar.name}/{self._images[row].name}"

    def decode(self, row: int) -> NDArray[np.uint8]:
        """Return one image, [H, W, C]."""
        return self._decoder(io.BytesIO(self._images[row].read()))

    def make_contents(self) -> Tensor:
        """Digest every encoded image."""
        return digests(image.read() for image in self._images)


def shards_of(path: Path) -> list[Path]:
    """Return the tar files that a path stands for: one, those of a folder, or `shard-{000..017}.tar`; or none."""
    if found := _RANGE.search(path.name):
        first, last = found.groups()
        names = (f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1))
        return [path.with_name(path.name[: found.start()] + name + path.name[found.end() :]) for name in names]
    if path.is_dir():
        inside = sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
        tars = [entry for entry in inside if entry.suffix == ".tar" and entry.is_file()]
        return tars if tars and not any(entry.is_dir() for entry in inside) else []
    return [path] if path.suffix == ".tar" and path.is_file() else []


def load_webdataset(
    path: Path,
    *,
    image_column: str | None = None,
    label_column: str | None = None,
    classes: str | Path | Sequence[str] = "auto",
    size: Size | None = None,
    color: Color | None = None,
    on_bad_file: OnBadFile = "fail",
) -> ImageSet:
    """Return the samples of tar files. Columns are endings, or for labels keys of the `.json` beside an image."""
    images: list[Encoded] = []
    labels: list[Any] = []
    for tar in shards_of(path):
        for image, label in _samples(tar, image_column, label_column):
            images.append(image)
            labels.append(label)
    if not images:
        raise DataError(
            f"There are no samples of images in {str(path)!r}.",
            expected="files such as 000017.png and 000017.cls in the archive",
            fix="an archive of anything else: unpack it, and give the folder",
        )
    numbers, naming = number_labels(labels, classes, _names(path))
    return ImageSet(
        TarSource(images, Decoder(color or "rgb", size)),
        name=path.stem,
        labels=numbers,
        classes=naming.classes,
        numbering=naming.numbering,
        notes=naming.notes,
        on_bad_file=on_bad_file,
    )


def _samples(tar: Path, image_column: str | None, label_column: str | None) -> Iterator[tuple[Encoded, Any]]:
    """Yield the images of an archive with their labels, None where there is none."""
    try:
        with tarfile.open(tar, "r:") as archive:
            files: dict[str, dict[str, tarfile.TarInfo]] = {}
            for member in archive:
                folder, slash, base = member.name.rpartition("/")
                stem, dot, ending = base.partition(".")
                if member.isreg() and not member.issparse() and stem and dot:
                    files.setdefault(folder + slash + stem, {})[ending.lower()] = member
            for stem, parts in files.items():
                chosen = _picture(stem, parts, image_column)
                if chosen is None:
                    continue
                member = parts[chosen]
                image = Encoded(tar, f"{stem}.{chosen}", member.offset_data, member.size)
                yield image, _label(archive, parts, label_column)
    except (tarfile.TarError, OSError, ValueError) as error:
        raise DataError(
            f"Cannot read the archive {str(tar)!r}.",
            expected="a tar file of WebDataset's samples",
            got=describe(error),
            fix="an archive of anything else: unpack it, and give the folder",
        ) from error


def _picture(stem: str, endings: Iterable[str], column: str | None) -> str | None:
    """Return the ending of a sample's image: the one that is named, or the only one without a name in front of it.

    Masks and depth maps beside an image have one, as in `000017.seg.png`.
    """
    pictures = [ending for ending in endings if is_image_name(f"x.{ending}") and column in (None, ending)]
    plain = [ending for ending in pictures if "." not in ending] or pictures
    if len(plain) > 1:
        raise DataError(
            f"The sample {stem!r} has several images.",
            expected="one image, or the ending of the one to use",
            got=", ".join(plain),
            fix=f"--image-column {plain[0]} (image_column= in Python)",
        )
    return plain[0] if plain else None


def _label(archive: tarfile.TarFile, parts: dict[str, tarfile.TarInfo], column: str | None) -> Any:
    """Return a sample's label: its `.cls` (or the named ending), or what its `.json` says."""
    ending = next((one for one in ((column,) if column else LABEL_COLUMNS) if one in parts), None)
    if ending is not None:
        text = _content(archive, parts[ending]).decode("utf-8").strip()
        return int(text) if text.isascii() and text.isdigit() else text
    if "json" not in parts:
        return None
    said = json.loads(_content(archive, parts["json"]))
    found = find_columns(list(said), None, column)[1] if isinstance(said, dict) else None
    return None if found is None else said[found]


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    if file is None or member.size > _LARGEST_LABEL:
        raise ValueError(f"{member.name} is no label")
    return file.read()


def _names(path: Path) -> list[str] | None:
    """Return the class names that the manifest of `write_stream` beside the archives has."""
    manifest = (path if path.is_dir() else path.parent) / MANIFEST
    said = read_json(manifest) if manifest.is_file() else None
    names = said.get("classes") if isinstance(said, dict) and "shiftproof" in said else None
    return [str(name) for name in names] if isinstance(names, list) and names else None
