"""A folder as the source of a corrupted copy: its images, their label maps and what lies beside them, checked first."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from PIL import Image

from shiftproof.data import BadFile
from shiftproof.data.base import OnBadFile
from shiftproof.data.images.decoding import IMAGE_SUFFIXES, is_image_name
from shiftproof.data.images.file_lists import files_under
from shiftproof.data.images.source import describe, unreadable
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.exports.annotations import beside, refuse_places, refuse_renaming
from shiftproof.exports.copies import MANIFEST
from shiftproof.exports.file_copies import LABELS, FileCopies, Format, copied_name, printable
from shiftproof.exports.image_files import FileHeader, Reader
from shiftproof.exports.label_maps import NONE, check_movable, find_label_maps, refuse_unnamed
from shiftproof.exports.suites import Target
from shiftproof.shifts.image_shift import SMALLEST_SIDE
from shiftproof.shifts.moving import moves_content, pixel_origins


def copies_of_folder(
    root: Path,
    *,
    targets: tuple[Target, ...],
    reader: Reader,
    file_format: Format,
    masks: str | Path | None,
    ignore: int,
    suite: bool,
    on_bad_file: OnBadFile,
    **options: Any,
) -> FileCopies:
    """Find the images under a folder, their label maps and what lies beside them, and read headers.

    A suite has its published layout: of what lies beside, the labels alone are taken.
    """
    every = files_under(root)
    pictures = [file for file in every if is_image_name(file)]
    maps = find_label_maps(root, pictures, masks) if masks is not None and str(masks) != NONE else {}
    if masks is None:
        refuse_unnamed(root, pictures)
    taken = {mask.name for mask in maps.values()}
    listed = [file for file in pictures if file not in taken]
    if not listed:
        raise DataError(
            f"There are no images in the folder {str(root)!r}.",
            expected=f"files that end in {' '.join(sorted(IMAGE_SUFFIXES))}, in sub-folders or not",
        )
    with warnings.catch_warnings(), ThreadPoolExecutor() as pool:
        warnings.simplefilter("ignore")  # about odd metadata
        found = dict(zip(listed, pool.map(lambda file: _look(root / file, reader), listed), strict=True))
    good = {file: look for file, look in found.items() if isinstance(look, FileHeader)}
    bad = tuple(BadFile(printable(file), reason) for file, reason in found.items() if isinstance(reason, str))
    if bad and (on_bad_file == "fail" or not good):
        raise unreadable(*bad[0])
    _check_depth(good, targets)
    names = [copied_name(file, file_format) for file in good]
    others = beside(root, [file for file in every if not is_image_name(file)])
    if bad or names != list(good):
        others = tuple(file for file in others if file != LABELS)  # written anew
    if suite:
        others = ()
    _check_writable(names)
    own = (MANIFEST,) if targets[0].path == "" else ()
    _check_distinct([*((file, file) for file in (*own, *taken, *others)), *zip(good, names, strict=True)])
    refuse_renaming(root, others, list(good), names)
    refuse_places(root, others, good, targets, reader.size)
    moving = [target.shift for target in targets if maps and moves_content(target.shift)]
    if moving:
        check_movable(maps.values(), ignore)
        for shift in moving:
            pixel_origins(shift, [0], SMALLEST_SIDE, SMALLEST_SIDE)  # refuses one that cannot say
    return FileCopies(
        root=root,
        targets=targets,
        files=tuple(good),
        file_values=tuple(look.values for look in good.values()),
        unread=bad,
        masks=maps,
        beside=others,
        reader=reader,
        file_format=file_format,
        ignore=ignore,
        on_bad_file=on_bad_file,
        **options,
    )


def _look(path: Path, reader: Reader) -> FileHeader | str:
    """Return what an image's header says, or why it cannot be used."""
    try:
        return reader.look(path)
    except Exception as error:  # what is no image fails in any way there is
        return describe(error)


def _check_depth(files: Mapping[str, FileHeader], targets: Iterable[Target]) -> None:
    """Refuse images of 16 bits under shifts that would leave 8 of them."""
    deep = next((file for file, look in files.items() if look.deep), None)
    shallow = [target.shift.label for target in targets if not target.shift.keeps_depth]
    if deep is not None and shallow:
        raise ConfigurationError(
            f"The image {printable(deep)!r} has 16 bits, and the shift {shallow[0]} is made on the 256 levels of 8.",
            expected="images of 8 bits, or shifts that keep more levels apart, such as gaussian_noise@3 or fog@3",
            got=", ".join(shallow[:5]) + (", ..." if len(shallow) > 5 else ""),
            fix="--color rgb writes 8-bit copies, of what load_data reads",
        )


def _check_writable(names: Iterable[str]) -> None:
    """Refuse images whose format this installation of Pillow only reads."""
    for name in names:
        if Image.registered_extensions().get(Path(name).suffix.lower()) not in Image.SAVE:
            raise ConfigurationError(
                f"This installation of Pillow cannot write files such as {printable(name)!r}.", fix="--format png"
            )


def _check_distinct(written: Iterable[tuple[str, str]]) -> None:
    """Refuse files, each with the name of its copy, of which two would have one name."""
    first: dict[str, str] = {}
    for file, name in written:
        if name in first:
            raise ConfigurationError(
                "Two files would be written under one name.",
                got=f"{printable(first[name])} and {printable(file)}, both as {printable(name)}",
                fix="rename one of them; without --format, every file keeps its name and format",
            )
        first[name] = file
