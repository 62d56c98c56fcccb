"""Image sets from folders of files: one sub-folder per class, a CSV of labels, or no labels at all."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shiftproof.data.base import BadFile, OnBadFile
from shiftproof.data.file_digests import THREADS, file_digests
from shiftproof.data.images.decoded_files import decode_file
from shiftproof.data.images.decoding import IMAGE_SUFFIXES, Color, Decoder, Header, Size, header
from shiftproof.data.images.file_lists import images_by_folder, images_under, is_visible_image, named_file
from shiftproof.data.images.imageset import ImageSet
from shiftproof.data.images.source import DecodedSource, describe, sizes_differ, unreadable
from shiftproof.data.label_tables import LabelTable, read_table
from shiftproof.data.labels import Naming, number_classes
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.runs.files import is_file, is_hidden

_COLOURS = "it has colours, and color='gray' wants one channel"
TABLE = "labels.csv"
"""A table inside a folder that says which files belong to the set, and their classes."""
SPLITS = frozenset({"train", "val", "valid", "validation", "test"})


class FolderSource(DecodedSource):
    """Files under a folder, decoded when they are read."""

    def __init__(self, root: Path, files: Sequence[str], decoder: Decoder, size: tuple[int, int]) -> None:
        self._root = root
        self._files = files
        self._decoder = decoder
        self.size = decoder.size
        self.decoding = repr(decoder)
        width, height = decoder.output_size(size)
        self.shape = (decoder.channels, height, width)

    def __len__(self) -> int:
        return len(self._files)

    def name(self, row: int) -> str:
        """Name a file by its path in the folder."""
        return self._files[row]

    def file(self, row: int) -> str:
        """Return the path of a file in the folder."""
        return self._files[row]

    def path(self, row: int) -> Path:
        """Return where a file is."""
        return self._root / self._files[row]

    def decode(self, row: int) -> NDArray[np.uint8]:
        """Return one image, [H, W, C]."""
        return decode_file(str(self.path(row)), self._decoder)

    def make_contents(self) -> Tensor:
        """Digest the whole of every file: its name does not count."""
        return file_digests(self._files, self._root)


class _Listing(NamedTuple):
    """Files of a folder in order, the class name of each where it is known, and every class name there is."""

    files: list[str]
    names: list[str] | None
    classes: list[str]
    notes: list[str]


def load_folder(
    root: Path,
    *,
    labels: str | Path | None = None,
    classes: str | Path | Sequence[str] = "auto",
    image_column: str | None = None,
    label_column: str | None = None,
    only: Sequence[str] | None = None,
    **options: Any,
) -> ImageSet:
    """Return the set of a folder; other options are those of `from_files`.

    With `labels`, or a `labels.csv` inside, the table decides which files belong to the set. Otherwise every
    sub-folder is a class; a folder that holds only images is a set without labels. `only` names images, as `named_file`
    does: the set is of these, in their order, and no other file is opened.
    """
    listing = _list(root, labels, image_column, label_column)
    names = listing.names
    places = {} if names is None else dict(zip(reversed(names), reversed(listing.files), strict=True))
    naming = Naming({}, ()) if names is None else number_classes(listing.classes, classes, places)
    numbers = None if names is None else torch.tensor([naming.numbers[name] for name in names])
    files = listing.files
    if only is not None:
        found = {named_file(file): place for place, file in enumerate(files)}
        chosen = [found[name] for name in only]
        files = [files[place] for place in chosen]
        numbers = None if numbers is None else numbers[chosen]
    return from_files(
        root, files, numbers, naming, name=root.resolve().name, notes=listing.notes, where=str(root), **options
    )


def from_files(
    root: Path,
    files: Sequence[str],
    labels: Tensor | None,
    naming: Naming,
    *,
    name: str,
    where: str,
    notes: Sequence[str] = (),
    size: Size | None = None,
    color: Color | None = None,
    on_bad_file: OnBadFile = "fail",
) -> ImageSet:
    """Return the set of some files below a folder, with a label for each where they are known.

    All headers are read here, pixels when they are wanted. Images are RGB; `color="gray"` keeps one channel where every
    image is grey. `where` says in messages where the files are.
    """
    decoder = Decoder(color or "rgb", size)
    scanned = _scan(root, files, decoder)
    bad = [found for found in scanned if isinstance(found, BadFile)]
    if bad and on_bad_file == "fail":
        raise _colours(bad[0].file) if bad[0].reason == _COLOURS else unreadable(*bad[0])
    known = [found for found in scanned if isinstance(found, Header)]
    if not known:
        raise DataError(
            f"None of the {len(files)} images in {where!r} can be read.",
            expected="image files that Pillow reads",
            got=f"{bad[0].file}: {bad[0].reason}",
        )
    good = [place for place, found in enumerate(scanned) if isinstance(found, Header)]
    kept = [files[place] for place in good]
    return ImageSet(
        FolderSource(root, kept, decoder, _one_size(kept, [found.size for found in known], decoder)),
        name=name,
        labels=None if labels is None else labels[good],
        classes=naming.classes,
        numbering=naming.numbering,
        notes=[*naming.notes, *notes, *_changes(known)],
        on_bad_file=on_bad_file,
        bad_files=bad,
    )


def _changes(headers: Sequence[Header]) -> list[str]:
    """Return what a report should say of images that look otherwise than where their files are only decoded."""
    turned, alpha = sum(found.turned for found in headers), sum(found.alpha for found in headers)
    said = {
        f"EXIF data of {turned:,} of {len(headers):,} images turn them, and they were set upright; torchvision's "
        "ImageFolder reads them as they are stored.": turned,
        f"{alpha:,} of {len(headers):,} images may have transparent pixels, which were laid on white; torchvision's "
        "ImageFolder reads the colours beneath.": alpha,
    }
    return [note for note, count in said.items() if count]


def _list(root: Path, labels: str | Path | None, image_column: str | None, label_column: str | None) -> _Listing:
    """Find the images of a folder and their class names."""
    if labels is not None and not isinstance(labels, str | Path):
        fix = "write a CSV with the columns file,label"
        raise ConfigurationError("The labels of a folder come from a table.", got=type(labels).__name__, fix=fix)
    if labels is not None or (root / TABLE).is_file():
        path = root / TABLE if labels is None else Path(labels)
        return _by_table(root, path, read_table(path, image_column, label_column, root))
    if image_column is not None or label_column is not None:
        raise ConfigurationError(
            "There is no table whose columns could be named.",
            expected="labels= a CSV file",
            got="a folder without a labels.csv",
        )
    inside = sorted(entry.name for entry in root.iterdir() if not is_hidden(entry.name))
    folders = [name for name in inside if (root / name).is_dir()]
    flat = [name for name in inside if is_visible_image(name) and (root / name).is_file()]
    found = images_by_folder(root, folders)
    if any(found.values()):
        return _by_class(root, found, len(flat))
    if flat:
        note = "The images have no labels: the folder has neither sub-folders of classes nor a labels.csv."
        return _Listing(flat, None, [], [note])
    raise DataError(
        f"There are no images in the folder {str(root)!r}.",
        expected="one sub-folder of images per class, or images with a labels.csv beside them",
        got=f"{len(folders)} sub-folders, {len(inside) - len(folders)} other files" if inside else "an empty folder",
        fix=f"image files end in {' '.join(sorted(IMAGE_SUFFIXES))}",
    )


def _by_class(root: Path, found: dict[str, list[str]], flat: int) -> _Listing:
    if {folder.lower() for folder in found} <= SPLITS:
        raise DataError(
            f"The folder {str(root)!r} holds parts of a data set, not classes.",
            expected="one sub-folder of images per class",
            got=", ".join(found),
            fix=f"split={max(found)!r}, or the folder {str(root / max(found))!r}",
        )
    if len(found) < 2:
        (only,) = found
        nested = any(entry.is_dir() for entry in (root / only).iterdir())
        raise DataError(
            f"The folder {str(root)!r} has one class.",
            expected="one sub-folder of images for each of at least two classes",
            got=f"only {only!r}",
            fix=f"are the classes inside it? Then give {str(root / only)!r}" if nested else "add the other classes",
        )
    notes = []
    if empty := [folder for folder, files in found.items() if not files]:
        notes.append(f"Class folders without images: {', '.join(empty)}.")
    if flat:
        notes.append(f"{flat} images outside the class folders were left out.")
    pairs = [(file, folder) for folder, files in found.items() for file in files]
    return _Listing([file for file, _ in pairs], [folder for _, folder in pairs], list(found), notes)


def _by_table(root: Path, path: Path, read: LabelTable) -> _Listing:
    table = read.labels
    missing = [file for file in table if not is_file(root / file)]
    if missing:
        raise DataError(
            f"{len(missing)} of {len(table)} files in {str(path)!r} do not exist.",
            expected=f"paths within {str(root)!r}",
            got=", ".join(missing[:3]) + (", ..." if len(missing) > 3 else ""),
            fix=_found_elsewhere(root, path, missing[0])
            if len(missing) == len(table)
            else "restore these files, or remove their rows from the table",
        )
    files = sorted(table)
    names = [table[file] for file in files]
    if len(set(names)) < 2:
        raise DataError(
            f"The labels in {str(path)!r} are all of one class.", expected="at least two classes", got=names[0]
        )
    others = len(set(images_under(root)) - table.keys())
    notes = [f"{others} images that {path.name} does not name were left out."] if others else []
    return _Listing(files, names, sorted(set(names)), [*notes, *read.notes])


def _found_elsewhere(root: Path, table: Path, name: str) -> str:
    """Return what would let a file be found that a table names, as far as can be seen."""
    ended = [name + suffix for suffix in sorted(IMAGE_SUFFIXES) if is_file(root / (name + suffix))]
    if ended:
        return f"write names with their endings: {ended[0]}"
    if is_file(Path(name)):
        return f"names begin at {str(root)!r}, and these at the working directory: --data . --labels {table}"
    if is_file(root / name.replace("\\", "/")):
        return "write / between folders, as in " + name.replace("\\", "/")
    return f"names begin at FOLDER of --data FOLDER --labels TABLE, here {str(root)!r}: give the folder they begin at"


def _colours(file: str) -> DataError:
    """Return the error for a coloured image where grey ones were asked for."""
    return DataError(
        f"The image {file!r} has colours.",
        expected="images of one channel: --color gray (color='gray') converts none",
        fix="leave out --color gray for a model of three channels, or convert the images to greyscale for one",
    )


def _scan(root: Path, files: Iterable[str], decoder: Decoder) -> list[Header | BadFile]:
    """Read every file's header, or find what is bad about it."""

    def look(file: str) -> Header | BadFile:
        try:
            found = header(str(root / file))
        except Exception as error:  # what is no image fails in any way there is
            return BadFile(file, describe(error))
        return BadFile(file, _COLOURS) if decoder.color == "gray" and not found.grey else found

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about odd metadata
        with ThreadPoolExecutor(THREADS) as pool:
            return list(pool.map(look, files))


def _one_size(files: Sequence[str], sizes: Sequence[tuple[int, int]], decoder: Decoder) -> tuple[int, int]:
    """Return the width and height of all files, which must agree unless they are brought to a size."""
    first = sizes[0]
    if decoder.size is None:
        for file, size in zip(files, sizes, strict=True):
            if size != first:
                raise sizes_differ((files[0], first), (file, size))
    return first
