"""Label maps (segmentation masks) in a copy of a folder of images: copied as they are, or moved with their images."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from shiftproof.data.images.decoding import Decoder, Size, open_image
from shiftproof.data.images.mask_pairs import LabelMap, find_label_maps, path_stem
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.shifts.origins import OUTSIDE

__all__ = ["NONE", "LabelMap", "check_movable", "find_label_maps", "refuse_unnamed", "remade"]

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


def refuse_unnamed(root: Path, images: Sequence[str]) -> None:
    """Refuse files that are label maps by name and content: as images they would be corrupted."""
    suspects = {file: tail for file in images if (tail := _tail(file)) is not None}
    others = {Path(path_stem(file)).name for file in images if file not in suspects}
    paired = [file for file, tail in suspects.items() if Path(path_stem(file)).name.removesuffix(tail) in others]
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
    path = Path(path_stem(file))
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
