"""Which label map belongs to which image: by a folder of maps, or by a pattern of their names.

A folder's files have the images' paths; a pattern is such as `*_mask.png`, where the star stands for an image's path
without its suffix.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

from shiftproof.data.images.file_lists import images_under
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.runs.files import expand


class LabelMap(NamedTuple):
    """The label map of an image: its file, and its path in each tree of the copy."""

    path: Path
    name: str


def find_label_maps(root: Path, images: Sequence[str], masks: str | Path) -> dict[str, LabelMap]:
    """Return the label map of each image that has one; `images` are paths from the root, maps among them too."""
    text = Path(masks).as_posix()
    place = root / expand(masks)  # which is the masks' own path, if that begins at the top
    top = place if place.is_dir() else expand(masks)
    inside = "*" in text or top.resolve().is_relative_to(root.resolve())
    if not inside and not top.is_dir():
        raise ConfigurationError(
            f"There are no label maps at {text!r}.",
            expected=f"a folder of label maps, in {str(root)!r} or elsewhere, or a pattern such as '*_mask.png'",
        )
    pattern = text if "*" in text else f"{top.resolve().relative_to(root.resolve()).as_posix()}/*" if inside else "*"
    top = root if inside else top
    known = _by_stem(images if inside else images_under(top), pattern)
    found: dict[str, LabelMap] = {}
    owners: dict[str, str] = {}
    for image in images:
        mask = None if inside and image in known.values() else _mask_of(image, pattern, known, nested=not inside)
        if mask is None:
            continue
        if mask in owners:
            raise DataError(f"Two images share one label map, {mask!r}.", got=f"{owners[mask]} and {image}")
        owners[mask] = image
        found[image] = LabelMap(top / mask, mask if inside else f"{top.resolve().name}/{mask}")
    orphans = sorted(set(known.values()) - set(owners))
    if orphans:
        raise DataError(
            f"{len(orphans)} of {len(known)} label maps belong to no image.",
            expected=f"an image for each file of {text!r}, of the same name",
            got=", ".join(orphans[:3]) + (", ..." if len(orphans) > 3 else ""),
        )
    return found


def _by_stem(files: Iterable[str], pattern: str) -> dict[str, str]:
    """Return the files of a pattern by their paths, without a suffix where the pattern ends in its star."""
    known: dict[str, str] = {}
    for file in files:
        if fnmatch(file, pattern):
            stem = path_stem(file) if pattern.endswith("*") else file
            if stem in known:
                raise DataError("Two label maps have the same name.", got=f"{known[stem]} and {file}")
            known[stem] = file
    return known


def _mask_of(image: str, pattern: str, known: Mapping[str, str], nested: bool) -> str | None:
    """Return the label map of an image; images and maps in folders of their own may be in `images/a` and `masks/a`."""
    parts = path_stem(image).split("/")
    tries = range(len(parts)) if nested or "/" in pattern else range(1)
    stems = (pattern.replace("*", "/".join(parts[first:])) for first in tries)
    return next((known[stem] for stem in stems if stem in known), None)


def path_stem(file: str) -> str:
    """Return a path without its suffix."""
    return os.path.splitext(file)[0]  # noqa: PTH122  (as text: `with_suffix` would refuse odd names)
