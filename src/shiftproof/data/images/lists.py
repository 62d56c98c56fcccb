"""Image sets from lists: of pictures or paths, of (picture, label) pairs, and pairs of lists of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from shiftproof.data.images.decoding import is_image_name
from shiftproof.data.images.folders import from_files
from shiftproof.data.images.imageset import ImageSet
from shiftproof.data.images.pictures import from_samples, is_picture
from shiftproof.data.labels import number_labels
from shiftproof.errors import DataError


def is_pictures(source: object) -> bool:
    """Whether a source is a list of pictures, of pairs of a picture and its label, or a pair of pictures and labels."""
    if not isinstance(source, list | tuple) or not source:
        return False
    return all(map(is_picture, source)) or all(map(_is_sample, source)) or _is_pair(source)


def _is_sample(value: object) -> bool:
    if not isinstance(value, tuple | list) or len(value) != 2 or not is_picture(value[0]):
        return False
    if isinstance(value[1], Image.Image):
        return value[1].mode not in ("RGB", "RGBA")  # a label map, and no second image
    if isinstance(value[1], np.ndarray | Tensor) and value[1].ndim == 2:
        return True
    return not is_image_name(value[1]) and (np.ndim(value[1]) == 0 or isinstance(value[1], list | tuple | set))


def _is_pair(source: Sequence[Any]) -> bool:
    """Whether the first of two is a list of pictures, which are not of one array."""
    return (
        len(source) == 2 and isinstance(source[0], list | tuple) and bool(source[0]) and all(map(is_picture, source[0]))
    )


def from_list(source: Sequence[Any], labels: Any = None, **options: Any) -> ImageSet:
    """Return the set of a list; other options are those of `from_lists`."""
    if all(map(is_picture, source)):
        return from_lists(source, labels, **options)
    if labels is not None:
        raise DataError("The images have labels already.", got="labels= beside them", fix="leave labels out")
    if _is_pair(source) and not all(map(_is_sample, source)):
        return from_lists(source[0], source[1], **options)
    return from_lists([picture for picture, _ in source], [label for _, label in source], **options)


def from_lists(
    pictures: Sequence[Any],
    labels: Any,
    *,
    root: Path | None = None,
    classes: str | Path | Sequence[str] = "auto",
    names: Sequence[str] | None = None,
    name: str = "list",
    **options: Any,
) -> ImageSet:
    """Return the set of pictures and of as many labels; paths are read as a folder's files are, from `root`."""
    if isinstance(labels, str | Path):
        raise DataError("The labels of a list are a list.", expected="one label for each image", got=repr(str(labels)))
    given = [None] * len(pictures) if labels is None else list(labels)
    if len(given) != len(pictures):
        raise DataError(
            "The labels do not fit the images.", expected=f"{len(pictures)} labels", got=f"{len(given)} labels"
        )
    if isinstance(labels, Tensor | np.ndarray) and labels.ndim == 1:
        given = labels.tolist()
    if not all(map(is_image_name, pictures)):
        samples = list(zip(pictures, given, strict=True))
        return from_samples(samples, name=name, names=names, classes=classes, **options)
    numbers, naming = number_labels(given, classes, names)
    base = Path() if root is None else root
    files = [str(path) for path in pictures]
    if root is not None and (out := [file for file in files if Path(file).is_absolute() or ".." in Path(file).parts]):
        raise DataError("A table points outside its folder.", expected=f"paths within {str(root)!r}", got=out[0])
    return from_files(base, files, numbers, naming, name=name, where=str(base), **options)
