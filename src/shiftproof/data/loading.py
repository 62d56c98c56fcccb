"""`load_data`: a set of images or texts from a name, a folder, a file, or arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from shiftproof.data.base import Dataset, OnBadFile
from shiftproof.data.images.array_pairs import find_pairs, load_pair
from shiftproof.data.images.arrays import from_arrays, load_array_file
from shiftproof.data.images.cifar import find_layout, load_cifar
from shiftproof.data.images.decoding import Color, Size
from shiftproof.data.images.demo import DEMOS, load_demo
from shiftproof.data.images.folders import load_folder
from shiftproof.data.images.frames import from_frame, is_frame, load_parquet
from shiftproof.data.images.huggingface import from_huggingface, is_huggingface, is_saved, load_saved
from shiftproof.data.images.image_tables import TABLES, load_image_table
from shiftproof.data.images.imageset import ImageSet, as_images
from shiftproof.data.images.joining import JoinedSet, choose_parts, join
from shiftproof.data.images.lists import from_list, is_pictures
from shiftproof.data.images.mask_folders import load_mask_folder
from shiftproof.data.images.mask_layouts import find_masks
from shiftproof.data.images.mask_values import PaletteLike
from shiftproof.data.images.pictures import is_picture
from shiftproof.data.images.published_suites import (
    ReadOptions,
    StoredSuite,
    check_clear,
    find_suite,
    load_suite,
    read_options,
)
from shiftproof.data.images.torch_sets import from_torch, is_torch_set
from shiftproof.data.images.webdataset import load_webdataset, shards_of
from shiftproof.data.specs import DataLike, DataSpec
from shiftproof.data.text.loading import from_texts, is_table, is_text_folder, load_frame, load_table, load_text_folder
from shiftproof.data.text.textset import TextSet, is_texts
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.registry import Registry, is_prefixed, load_prefixed, unknown
from shiftproof.runs.files import expand

FORMS: Mapping[str, str] = {
    "demo": "1,000 embedded CIFAR-10 test images, 100 per class",
    "demo-source": "500 other CIFAR-10 test images: the demo's labelled source validation set",
    "folder/": "images in one sub-folder per class, or with a labels.csv (file,label), or without labels",
    "images/ and masks/": "images with label maps: two trees, a.jpg and a_mask.png, Cityscapes, ADE20K, VOC, CamVid",
    "images.csv": "a CSV or TSV file that names images in its folder, and their labels",
    "images.parquet": "a Parquet file with a column of images, or of their paths, and one of labels",
    "images.npz": "arrays images and labels (or x and y)",
    "images.npy": "an array of images, memory-mapped, with labels.npy beside it (v6_data.npy: v6_labels.npy)",
    "shards/": "WebDataset's tar files, one (shard.tar), some (shard-{000..017}.tar), or a folder of them",
    "cifar-10-batches-py/": "CIFAR-10 or CIFAR-100 as published, pickled or binary",
    "CIFAR-10-C/": "CIFAR-10-C, ImageNet-C or ImageNet-C-bar as published: audited as a whole, or --split fog@3 of it",
    "folders:day/,night/": "several sets as one, such as for a stream that goes from one to the next",
    "suite:CIFAR-10-C/": "each corruption of a suite at its highest severity, or --split 3, or --split fog@3,snow@3",
    "dataset/": "a Hugging Face data set of images or texts, saved to disk",
    "texts.csv": "texts, or pairs of them, with labels: .csv, .tsv, .jsonl, .json or .parquet with named columns",
    "texts/": "text files in one sub-folder per class",
}
"""What `load_data` takes, for tables and messages."""


class DataForm(NamedTuple):
    """A form in which people have images: its name, whether something is of it, what loads it, and what that takes.

    Every loader takes the size, the colour and the classes.
    """

    what: str
    fits: Callable[[Any], object]
    load: Callable[..., Dataset]
    takes: tuple[str, ...] = ()


_COLUMNS = ("image_column", "label_column", "on_bad_file")
_MASKS = ("ignore_label", "palette")
"""What says which values of label maps are classes, where labels are maps."""


def _is_array_pair(source: Any) -> bool:
    """Whether a source is an array of images and one of labels; a list may be of two images with channels instead."""
    if not isinstance(source, tuple | list) or len(source) != 2 or not isinstance(source[0], np.ndarray | Tensor):
        return False
    images, labels = source
    if images.ndim < 3 or not hasattr(labels, "__len__") or len(labels) != len(images):
        return False
    channels = images.ndim == 3 and {1, 3} & {images.shape[0], images.shape[2]}
    return not (isinstance(source, list) and channels and all(map(is_picture, source)))


def _is_pair(source: Any) -> bool:
    return isinstance(source, tuple | list) and len(source) == 2


def _from_pair(source: Any, **options: Any) -> ImageSet:
    return from_arrays(source[0], source[1], **options)


def _from_array(source: Any, labels: Any = None, **options: Any) -> ImageSet:
    if isinstance(labels, str | Path):
        raise ConfigurationError(
            "The labels of arrays must be an array.", expected="labels= one whole number per image", got=repr(labels)
        )
    return from_arrays(source, labels, **options)


def _load_cifar(path: Path, **options: Any) -> ImageSet:
    found = find_layout(path)
    assert found is not None  # it fits
    return load_cifar(*found, **options)


OBJECTS = (
    DataForm("a Hugging Face data set", is_huggingface, from_huggingface, ("split", *_COLUMNS, *_MASKS)),
    DataForm("a table", is_frame, from_frame, _COLUMNS),
    DataForm("a data set of PyTorch", is_torch_set, from_torch, (*_COLUMNS, *_MASKS)),
    DataForm("a pair of images and labels", _is_array_pair, _from_pair, _MASKS),
    DataForm("a list of images", is_pictures, from_list, ("labels", "on_bad_file", *_MASKS)),
    DataForm("a pair of images and labels", _is_pair, _from_pair, _MASKS),
    DataForm("an array", lambda source: isinstance(source, np.ndarray | Tensor), _from_array, ("labels", *_MASKS)),
)
"""Forms in Python's memory; the first that fits is taken."""

FILES = (
    DataForm("an array file", lambda path: path.suffix in (".npz", ".npy"), load_array_file, ("labels", "split")),
    DataForm("a table of images", lambda path: path.suffix.lower() in TABLES, load_image_table, _COLUMNS),
    DataForm("a Parquet file", lambda path: path.suffix.lower() == ".parquet", load_parquet, _COLUMNS),
    DataForm("a tar file", shards_of, load_webdataset, _COLUMNS),
)
LABEL_MAPS = DataForm(
    "a folder of images and label maps", find_masks, load_mask_folder, ("split", "on_bad_file", "label_maps", *_MASKS)
)
FOLDERS = (
    DataForm("a Hugging Face data set", is_saved, load_saved, ("split", *_COLUMNS, *_MASKS)),
    DataForm("CIFAR", find_layout, _load_cifar, ("split",)),
    DataForm("a published suite", find_suite, load_suite, ("split", "on_bad_file")),
    DataForm("CIFAR-10.1", find_pairs, load_pair, ("split",)),
    DataForm("a folder of tar files", shards_of, load_webdataset, _COLUMNS),
    LABEL_MAPS,
    DataForm("a folder", Path.is_dir, load_folder, ("labels", *_COLUMNS)),
)
"""Forms on disk; the first that fits is taken, and the split of a folder is a sub-folder."""

LOADERS: Registry[Callable[[str], Any]] = Registry(
    "data loader",
    "shiftproof.data",
    {},
    lambda found: callable(found) and not isinstance(found, type),
    "a function from the text behind NAME: to what load_data takes",
)
"""NAME of `NAME:rest` -> what loads it; others add theirs."""

JOINED = ("folders", "suite")
"""NAME of `NAME:rest` -> several sets as one."""

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
    image_column: str | None = None,
    text_column: str | None = None,
    label_column: str | None = None,
    label_maps: str | Path | None = None,
    ignore_label: int | None = None,
    palette: PaletteLike = None,
) -> Dataset:
    """Load a set of images or texts, with labels if available.

    Args:
        source: demo, a folder with one sub-folder per class, images.csv, a Parquet, .npz or tar file, CIFAR files,
            ImageNet-C, or texts.csv; in Python also a torch `Dataset` or `DataLoader`, a Hugging Face data set, a
            DataFrame, a list of images, of paths or of (image, label), arrays, a pair of images and labels, texts or
            pairs of texts, a `Dataset` of this package (returned unchanged), or a `DataSpec`.
        size: Resize the short side and crop the centre to this many pixels.
        labels: CSV of labels (columns file, label) for a flat folder, or an .npy file for arrays; in Python also an
            array, or a list for a list of images.
        classes: File of the model's class names, one per line, in the order of its outputs, or a list of them; `auto`
            matches by name, `sorted` is torchvision's order.
        split: The split to use, such as train; for a published suite, a part such as fog@3.
        color: `rgb` converts gray images to three channels; `gray` keeps one channel if all images of a folder are
            gray.
        on_bad_file: What to do with files that cannot be read: fail, or skip them.
        image_column: Column of images or image paths in a table. Default: found by its name.
        text_column: Column of texts in a table; two, separated by a comma, for pairs. Default: found by its name.
        label_column: Column of labels in a table. Default: found by its name.
        label_maps: Label maps of a folder's images, for segmentation: a folder of files with the same names, or a
            pattern such as `*_mask.png`. Default: found by folder names.
        ignore_label: Value of label maps that means no label; -1 if every value is a class. Default: 255, or as the
            data set's layout defines.
        palette: File of the colours of label maps, one line 'red green blue name' per class; in Python also a mapping.
            Default: label maps hold class numbers.

    >>> len(load_data("demo")), load_data("demo").classes[3]
    (1000, 'cat')
    """
    if isinstance(source, DataSpec):
        _refuse("a DataSpec, which has its own options", size=size, labels=labels, split=split, color=color)
        return load_data(source.given, **source.options)
    if is_prefixed(LOADERS, source):
        source = load_prefixed(LOADERS, str(source))
    columns = {"image_column": image_column, "label_column": label_column}
    maps = {"label_maps": label_maps, "ignore_label": ignore_label, "palette": palette}
    if is_joined(source):
        _refuse("several sets as one", labels=labels, text_column=text_column)
        return _load_joined(str(source), split, read_options(size, color, classes, on_bad_file), {**columns, **maps})
    rest: dict[str, Any] = {"labels": labels, "split": split, **columns, **maps}
    pixels: dict[str, Any] = {"size": size, "classes": classes, "color": color}
    if image_column is None:
        images = {"size": size, "split": split, "color": color, **maps}
        texts = _load_texts(source, labels, images, classes, on_bad_file, text_column, label_column)
        if texts is not None:
            return texts
    _refuse("what is no table of texts", text_column=text_column)
    if isinstance(source, Dataset):
        made = f"{'an' if source.noun.one == 'image' else 'a'} {type(source).__name__}, which is already made"
        chosen = None if classes == "auto" else classes
        _refuse(made, size=size, labels=labels, classes=chosen, split=split, color=color, **columns, **maps)
        return source
    if isinstance(source, str | Path):
        return _from_path(str(source), rest, pixels, on_bad_file)
    return _load_as(OBJECTS, source, rest, pixels, on_bad_file)


def _load_as(
    forms: Sequence[DataForm], source: Any, rest: Mapping[str, Any], pixels: Mapping[str, Any], on_bad_file: OnBadFile
) -> Dataset:
    """Load what a user gave as the first form that it fits; options that this form does not take are refused."""
    form = forms[0] if len(forms) == 1 else next((form for form in forms if form.fits(source)), None)
    if form is None:
        raise DataError(
            "Unsupported data.",
            expected=f"a path or name ({'; '.join(FORMS)}), {', '.join(dict.fromkeys(one.what for one in OBJECTS))}",
            got=f"a {type(source).__name__}",
        )
    _refuse(form.what, **{name: value for name, value in rest.items() if name not in form.takes})
    taken = {name: value for name, value in rest.items() if value is not None}
    bad = {"on_bad_file": on_bad_file} if "on_bad_file" in form.takes else {}
    return form.load(source, **taken, **bad, **pixels)


def is_joined(source: object) -> bool:
    """Whether something is a text that stands for several sets: `folders:day,night`, `suite:CIFAR-10-C`."""
    return isinstance(source, str) and ":" in source and source.partition(":")[0] in JOINED


def _load_joined(spec: str, split: str | None, reading: ReadOptions, options: Mapping[str, Any]) -> JoinedSet:
    kind, _, rest = spec.partition(":")
    if kind == "suite":
        _refuse("a suite", **options)
        suite = find_suite(expand(rest))
        if suite is None:
            raise DataError(f"{rest!r} is not a suite of corrupted images.", expected=FORMS["CIFAR-10-C/"])
        check_clear(suite)
        read = StoredSuite(suite.folder, suite.parts, reading=reading)
        sets = {label: read.load(label) for label in choose_parts(suite, split)}
        return join(sets, name=suite.name, ordered=False)
    names = [name.strip() for name in rest.split(",") if name.strip()]
    if len(set(names)) < len(names) or not names:
        raise ConfigurationError(
            "Name each set once.", expected="folders:day,night", got=spec, fix="a longer stream repeats them"
        )
    found = {name: load_images(name, split=split, **reading, **options) for name in names}
    return join(found, name=", ".join(names))


def load_images(source: Any, **options: Any) -> ImageSet:
    """Load images as `load_data` does; texts are an error.

    Args:
        source: Any form of data that `load_data` takes.
        options: The options of `load_data`.
    """
    return as_images(load_data(source, **options))


def _from_path(spec: str, rest: Mapping[str, Any], pixels: Mapping[str, Any], on_bad_file: OnBadFile) -> Dataset:
    if spec in DEMOS:
        _refuse("the demo", **rest)
        return load_demo(spec, **pixels)
    path = expand(spec)
    try:
        shards = shards_of(path)
        if not path.exists() and not shards:
            near = _beside(path)
            if path.suffix or "/" in str(spec) or "\\" in str(spec):
                answer = {"did you mean": ", ".join(str(path.parent / name) for name in near)} if near else {}
                raise DataError(f"There is no data at {spec!r}.", expected="; ".join(FORMS), **answer)
            raise unknown("data set or folder", spec, [*FORMS, *(f"{name}:..." for name in LOADERS), *near])
        if path.is_dir():
            return _from_folder(path, rest, pixels, on_bad_file)
        if (path.is_file() or shards) and any(form.fits(path) for form in FILES):
            return _load_as(FILES, path, rest, pixels, on_bad_file)
    except OSError as error:  # it may not be read, or its name is one that no file can have
        raise DataError(
            f"Cannot read the data at {spec[:200]!r}.", expected="; ".join(FORMS), got=error.strerror or str(error)
        ) from error
    packed = "unpack it, and give the folder" if path.suffix in _ARCHIVES else "give the folder it is in"
    got = "one file" if path.is_file() else "not a regular file"
    raise DataError(f"{spec!r} is not a supported data set.", expected="; ".join(FORMS), got=got, fix=packed)


def _beside(path: Path) -> list[str]:
    """Return what is called nearly as a path is that does not exist, in its folder."""
    inside = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    return get_close_matches(path.name, inside, n=3)


def _from_folder(path: Path, rest: Mapping[str, Any], pixels: Mapping[str, Any], on_bad_file: OnBadFile) -> Dataset:
    split = rest["split"]
    part = path if split is None else path / split
    if not is_saved(path) and part.is_dir() and is_text_folder(part):
        _refuse("a folder of texts", size=pixels["size"], color=pixels["color"], **{**rest, "split": None})
        return load_text_folder(part, classes=pixels["classes"], on_bad_file=on_bad_file)
    if rest["label_maps"] is not None:
        return _load_as([LABEL_MAPS], path, rest, pixels, on_bad_file)
    by_table = rest["labels"] is not None  # says which files belong to the set
    passed = (load_suite, load_mask_folder) if by_table else ()
    form = next(form for form in FOLDERS if form.load not in passed and form.fits(path))
    if split is not None and "split" not in form.takes:
        if not part.is_dir():
            inside = sorted(entry.name for entry in path.iterdir() if entry.is_dir())
            raise DataError(
                f"There is no split {split!r} in {str(path)!r}.",
                expected="one of its sub-folders",
                got=", ".join(inside[:20]) or "no sub-folders",
            )
        return _from_folder(part, {**rest, "split": None}, pixels, on_bad_file)
    return _load_as([form], path, rest, pixels, on_bad_file)


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
    if is_table(source, text_column):
        _refuse("a table of texts", labels=labels, **images)
        columns = {"text_column": text_column, "label_column": label_column}
        return load_table(expand(source), classes=classes, on_bad_file=on_bad_file, **columns)
    if is_texts(source):
        _refuse("a list of texts", label_column=label_column, **images)
        return from_texts(source, labels, classes=classes)
    if isinstance(source, tuple) and len(source) == 2 and is_texts(source[0]) and labels is None:
        _refuse("a list of texts", **images)
        return from_texts(*source, classes=classes)
    columns = {"text_column": text_column, "label_column": label_column}
    found = load_frame(source, split=images["split"], classes=classes, on_bad_file=on_bad_file, **columns)
    if found is not None:
        _refuse("a table of texts", labels=labels, **{**images, "split": None})
    return found


def _refuse(what: str, **options: object) -> None:
    for name, option in options.items():
        if option is not None:
            raise ConfigurationError(f"{name}= cannot be used with {what}.", fix=f"leave {name} out")
