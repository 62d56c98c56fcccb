"""Label maps (segmentation masks) of a folder of images: found by name, copied as they are, or moved with their images.

Which file is the map of an image is said by a folder, whose files have the images' paths, or by a pattern such as
`*_mask.png`, where the star stands for an image's path without its suffix.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from shiftproof.data.images.decoding import Decoder, Size, open_image
from shiftproof.data.images.folders import images_under
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.runs.files import expand
from shiftproof.shifts.origins import OUTSIDE

NONE = "none"
"""What says that there are no label maps, where files look like some."""

_FOLDERS = {"mask", "masks", "label", "labels", "annotation", "annotations", "segmentation", "segmentations"}
_FOLDERS |= {"segmentationclass", "segmentationobject", "gt", "gtfine", "groundtruth", "ground_truth", "seg"}
_TAILS = ("_mask", "-mask", "_masks", "_seg", "_segmentation", "_label", "_labels", "_labelids", "_gt", "_trainids")
_FEW = 64
"""Colours of a label map, at most; a photograph has more."""
_SAMPLE = 8
_HIGHEST = {"1": 1, "L": 255, "LA": 255, "P": 255, "RGB": 255, "RGBA": 255, "I;16": 65535, "I": 2**31 - 1}
_VOID = (224, 224, 192)
"""The colour of an ignore label that a palette lacks."""


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
            raise DataError(f"Two images have one label map, {mask!r}.", got=f"{owners[mask]} and {image}")
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
            stem = _stem(file) if pattern.endswith("*") else file
            if stem in known:
                raise DataError("Two label maps have one name.", got=f"{known[stem]} and {file}")
            known[stem] = file
    return known


def _mask_of(image: str, pattern: str, known: Mapping[str, str], nested: bool) -> str | None:
    """Return the label map of an image; images and maps in folders of their own may be in `images/a` and `masks/a`."""
    parts = _stem(image).split("/")
    tries = range(len(parts)) if nested or "/" in pattern else range(1)
    stems = (pattern.replace("*", "/".join(parts[first:])) for first in tries)
    return next((known[stem] for stem in stems if stem in known), None)


def refuse_unnamed(root: Path, images: Sequence[str]) -> None:
    """Refuse files that are label maps by name and content: as images they would be corrupted."""
    suspects = {file: tail for file in images if (tail := _tail(file)) is not None}
    others = {Path(_stem(file)).name for file in images if file not in suspects}
    paired = [file for file, tail in suspects.items() if Path(_stem(file)).name.removesuffix(tail) in others]
    likely = [file for file in paired[:_SAMPLE] if _has_few_colours(root / file)]
    if not likely:
        return
    first = likely[0]
    tail = suspects[first]
    folder = next((part for part in Path(first).parts[:-1] if part.lower() in _FOLDERS), None)
    masks = f"*{tail}{Path(first).suffix}" if folder is None else first[: first.index(folder)] + folder
    raise ConfigurationError(
        "Some files look like label maps of others, and would be corrupted as images.",
        expected="images, and where the label maps among them are",
        got=", ".join(likely[:3]) + (", ..." if len(paired) > 3 else ""),
        fix=f"--masks {masks!r}; or --masks {NONE}, if they are images",
    )


def _tail(file: str) -> str | None:
    """Return how the name of a possible label map ends, which may be nothing; None where it is none."""
    path = Path(_stem(file))
    if any(part.lower() in _FOLDERS for part in path.parts[:-1]):
        return next((path.name[-len(tail) :] for tail in _TAILS if path.name.lower().endswith(tail)), "")
    return next((path.name[-len(tail) :] for tail in _TAILS if path.name.lower().endswith(tail)), None)


def _has_few_colours(path: Path) -> bool:
    try:
        with open_image(path) as image:
            if image.mode.startswith("I"):
                return len(np.unique(np.asarray(image))) <= _FEW
            return image.getcolors(_FEW) is not None
    except Exception:  # what is no image fails in any way there is, and is told of elsewhere
        return False


def check_movable(masks: Iterable[LabelMap], ignore: int) -> None:
    """Refuse label maps that cannot be moved, as far as the first ones tell: lossy ones, and those without a class."""
    values: set[int] = set()
    for mask, _ in zip(masks, range(_SAMPLE), strict=False):
        with open_image(mask.path) as image:
            if image.format in ("JPEG", "MPO"):
                raise DataError(
                    "Label maps cannot be moved in JPEG files, which lose labels.",
                    expected="label maps in PNG, TIFF, BMP or GIF files, for shifts that move content",
                    got=mask.path.name,
                )
            values.update(np.unique(np.asarray(image)).tolist())
    if ignore and ignore in values <= {0, ignore}:
        raise ConfigurationError(
            f"The label {ignore} is a class here, and pixels from outside an image would be given it.",
            expected="an ignore value that no class has",
            got=f"label maps of 0 and {ignore}",
            fix="--ignore 0, the background, or another number",
        )


def remade(
    content: bytes, origins: NDArray[np.int64] | None, *, ignore: int, size: Size | None, wanted: tuple[int, int]
) -> bytes:
    """Return a label map's file with labels moved to where `origins` [H, W] say, and its palette and format as before.

    The map is first brought to `size` as its image was, which then has the width and height `wanted`.
    """
    with open_image(io.BytesIO(content)) as image:
        image.load()
        kind, mode = str(image.format), image.mode
        fitted = Decoder("rgb", size).fit(image, Image.Resampling.NEAREST)
        if fitted.size != wanted:
            raise DataError(
                f"It has {fitted.size[0]} x {fitted.size[1]} pixels, and its image {wanted[0]} x {wanted[1]}."
            )
        if not 0 <= ignore <= _HIGHEST.get(mode, -1):
            raise DataError(f"Its mode is {mode}, which has no label {ignore}; --ignore is the label outside.")
        labels = np.array(fitted)
        if origins is not None:
            flat = labels.reshape(labels.shape[0] * labels.shape[1], -1)
            labels = flat[np.maximum(origins, 0)].reshape(labels.shape)
            labels[origins == OUTSIDE] = ignore
        made = Image.fromarray(labels)
        if mode == "P":
            made.putpalette(_palette(image, ignore))
        if "transparency" in image.info:
            made.info["transparency"] = image.info["transparency"]
        compression = image.info.get("compression") if kind == "TIFF" else None
    options: dict[str, Any] = (
        {"lossless": True} if kind == "WEBP" else {"compression": compression} if compression else {}
    )
    file = io.BytesIO()
    made.save(file, kind, **options)
    return file.getvalue()


def _palette(image: Image.Image, ignore: int) -> list[int]:
    """Return the colours of a palette, with one for the ignore label where it had none: files hold no label beyond."""
    colours = image.getpalette() or []
    missing = ignore + 1 - len(colours) // 3
    return colours + [0] * 3 * (missing - 1) + list(_VOID) if missing > 0 else colours


def _stem(file: str) -> str:
    return os.path.splitext(file)[0]  # noqa: PTH122  (as text: `with_suffix` would refuse odd names)
