"""`load_data`: a set of images or texts from a name, a folder, a file, or arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from shiftproof.data.base import Dataset, OnBadFile
from shiftproof.data.images.arrays import from_arrays, load_array_file
from shiftproof.data.images.cifar import find_layout, load_cifar
from shiftproof.data.images.decoding import Color, Size
from shiftproof.data.images.demo import DEMOS, load_demo
from shiftproof.data.images.folders import load_folder
from shiftproof.data.images.huggingface import from_huggingface, is_huggingface, is_saved, load_saved
from shiftproof.data.images.imageset import ImageSet, as_images
from shiftproof.data.specs import DataLike, DataSpec
from shiftproof.data.text.loading import from_texts, is_table, is_text_folder, load_table, load_text_folder
from shiftproof.data.text.textset import TextSet, is_texts
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.registry import Registry, is_prefixed, load_prefixed, unknown
from shiftproof.runs.files import expand

FORMS: Mapping[str, str] = {
    "demo": "1,000 embedded CIFAR-10 test images, 100 per class",
    "demo-source": "500 other CIFAR-10 test images: the demo's labelled source validation set",
    "folder/": "images in one sub-folder per class, or with a labels.csv (file,label), or without labels",
    "images.npz": "arrays images and labels (or x and y)",
    "images.npy": "an array of images, memory-mapped, with labels.npy beside it",
    "cifar-10-batches-py/": "CIFAR-10 or CIFAR-100 as published, pickled or binary",
    "dataset/": "a Hugging Face data set saved to disk",
    "texts.csv": "texts, or pairs of them, with labels: .csv, .tsv, .jsonl or .json with named columns",
    "texts/": "text files in one sub-folder per class",
}
"""What `load_data` takes, for tables and messages."""

LOADERS: Registry[Callable[[str], Any]] = Registry(
    "data loader",
    "shiftproof.data",
    {},
    lambda found: callable(found) and not isinstance(found, type),
    "a function from the text behind NAME: to what load_data takes",
)
"""NAME of `NAME:rest` -> what loads it; others add theirs."""

_ARCHIVES = (".tar", ".tgz", ".gz", ".zip", ".bz2", ".xz", ".7z", ".rar")


def load_data(
    source: DataLike,
    *,
    size: Size | None = None,
    labels: ArrayLike | Tensor | str | Path | None = None,
    classes: str | Path | Sequence[str] = "auto",
    split: str | None = None,
    color: Color | None = None,
    on_bad_file: OnBadFile = "fail",
    text_column: str | None = None,
    label_column: str | None = None,
) -> Dataset:
    """Return a set of images [C, H, W] with labels and keys, which streams float32 batches in [0, 1]; or of texts.

    Args:
        source: demo, a folder with one sub-folder per class, an .npz file, CIFAR files, or texts.csv; in Python also
            images, a pair of images and labels, texts or pairs of texts, a Hugging Face data set, a set already made
            (returned as it is), or a `DataSpec`.
        size: Resize the short side and crop the centre to this many pixels.
        labels: CSV of labels (columns file, label) for a flat folder; an array or .npy file for arrays.
        classes: File of the model's class names, one a line, in the order of its outputs, or a list of them; `auto`
            matches by name, `sorted` is torchvision's order.
        split: The part to use where there are several, such as train.
        color: `rgb` makes three channels of one, `grey` keeps one where a folder's images are all grey.
        on_bad_file: Whether to fail or skip when an image cannot be read.
        text_column: Column of texts in a table, or two with a comma between them for pairs.
        label_column: Column of labels in a table of texts.

    >>> len(load_data("demo")), load_data("demo").classes[3]
    (1000, 'cat')
    """
    if isinstance(source, DataSpec):
        _refuse("a DataSpec, which has its own options", size=size, labels=labels, split=split, color=color)
        return load_data(source.given, **source.options)
    if is_prefixed(LOADERS, source):
        source = load_prefixed(LOADERS, str(source))
    images: dict[str, Any] = {"size": size, "split": split, "color": color}
    texts = _load_texts(source, labels, images, classes, on_bad_file, text_column, label_column)
    if texts is not None:
        return texts
    pixels: dict[str, Any] = {"size": size, "classes": classes, "color": color}
    if isinstance(source, Dataset):
        made = f"{'an' if source.noun.one == 'image' else 'a'} {type(source).__name__}, which is already made"
        chosen = None if classes == "auto" else classes
        _refuse(made, size=size, labels=labels, classes=chosen, split=split, color=color)
        return source
    return _from_object(source, labels, split, on_bad_file, pixels)


def _from_object(
    source: Any, labels: Any, split: str | None, on_bad_file: OnBadFile, pixels: Mapping[str, Any]
) -> Dataset:
    """Return the set that a path, a name, arrays or a Hugging Face data set stand for."""
    if is_huggingface(source):
        _refuse("a Hugging Face data set", labels=labels)
        return from_huggingface(source, split=split, on_bad_file=on_bad_file, **pixels)
    if isinstance(source, str | Path):
        return _from_path(str(source), labels=labels, split=split, on_bad_file=on_bad_file, **pixels)
    if isinstance(source, tuple | list) and len(source) == 2 and labels is None:
        return from_arrays(source[0], source[1], **pixels)
    if isinstance(source, np.ndarray | Tensor):
        if isinstance(labels, str | Path):
            raise ConfigurationError(
                "The labels of an array are an array.", expected="labels= one whole number per image", got=repr(labels)
            )
        return from_arrays(source, labels, **pixels)
    raise DataError(
        "This is not a set of images.",
        expected=f"a path or name ({'; '.join(FORMS)}), images, (images, labels), or a Hugging Face data set",
        got=f"a {type(source).__name__}",
    )


def load_images(source: Any, **options: Any) -> ImageSet:
    """Return what `load_data` does, and refuse texts: for what works on pixels."""
    return as_images(load_data(source, **options))


def _from_path(spec: str, *, labels: Any, split: str | None, on_bad_file: OnBadFile, **pixels: Any) -> Dataset:
    if spec in DEMOS:
        _refuse("the demo", labels=labels, split=split)
        return load_demo(spec, **pixels)
    path = expand(spec)
    try:
        if not path.exists():
            if path.suffix or "/" in str(spec) or "\\" in str(spec):
                raise DataError(f"There is no data at {spec!r}.", expected="; ".join(FORMS))
            raise unknown("data set or folder", spec, [*FORMS, *(f"{name}:..." for name in LOADERS)])
        if path.is_dir():
            return _from_folder(path, labels=labels, split=split, on_bad_file=on_bad_file, **pixels)
        if path.is_file() and path.suffix in (".npz", ".npy"):
            return load_array_file(path, labels=labels, split=split, **pixels)
    except OSError as error:  # it may not be read, or its name is one that no file can have
        raise DataError(
            f"Cannot read the data at {spec[:200]!r}.", expected="; ".join(FORMS), got=error.strerror or str(error)
        ) from error
    packed = "unpack it, and give the folder" if path.suffix in _ARCHIVES else "give the folder it is in"
    got = "one file" if path.is_file() else "not a regular file"
    raise DataError(f"{spec!r} is not a set of images.", expected="; ".join(FORMS), got=got, fix=packed)


def _from_folder(path: Path, *, labels: Any, split: str | None, on_bad_file: OnBadFile, **pixels: Any) -> Dataset:
    if is_saved(path):
        _refuse("a Hugging Face data set", labels=labels)
        return load_saved(path, split=split, on_bad_file=on_bad_file, **pixels)
    part = path if split is None else path / split
    if part.is_dir() and is_text_folder(part):
        _refuse("a folder of texts", labels=labels, size=pixels["size"], color=pixels["color"])
        return load_text_folder(part, classes=pixels["classes"], on_bad_file=on_bad_file)
    if (layout := find_layout(path)) is not None:
        _refuse(layout[0].name, labels=labels)
        return load_cifar(*layout, split=split, **pixels)
    if split is not None:
        path = path / split
        if not path.is_dir():
            inside = sorted(entry.name for entry in path.parent.iterdir() if entry.is_dir())
            raise DataError(
                f"There is no split {split!r} in {str(path.parent)!r}.",
                expected="one of its sub-folders",
                got=", ".join(inside[:20]) or "no sub-folders",
            )
    return load_folder(path, labels=labels, on_bad_file=on_bad_file, **pixels)


def _load_texts(
    source: Any,
    labels: Any,
    images: Mapping[str, Any],
    classes: str | Path | Sequence[str],
    on_bad_file: OnBadFile,
    text_column: str | None,
    label_column: str | None,
) -> TextSet | None:
    """Return the set of texts a source stands for, None where it is none; options of `images` do not go with it."""
    columns = {"text_column": text_column, "label_column": label_column}
    if is_table(source):
        _refuse("a table of texts", labels=labels, **images)
        return load_table(expand(source), classes=classes, on_bad_file=on_bad_file, **columns)
    _refuse("what is no table of texts", **columns)
    if is_texts(source):
        _refuse("a list of texts", **images)
        return from_texts(source, labels, classes=classes)
    if isinstance(source, tuple) and len(source) == 2 and is_texts(source[0]) and labels is None:
        _refuse("a list of texts", **images)
        return from_texts(*source, classes=classes)
    return None


def _refuse(what: str, **options: object) -> None:
    for name, option in options.items():
        if option is not None:
            raise ConfigurationError(f"{name}= does not go with {what}.", fix=f"leave {name} out")
