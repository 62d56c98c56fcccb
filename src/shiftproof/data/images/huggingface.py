"""Hugging Face `datasets`: saved to disk, or in memory."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from shiftproof.data.base import OnBadFile
from shiftproof.data.columns import NAME_IT, find_columns
from shiftproof.data.contents import digests
from shiftproof.data.images.decoded_files import decode_file
from shiftproof.data.images.decoding import Color, Decoder, Size
from shiftproof.data.images.imageset import ImageSet
from shiftproof.data.images.mask_values import PaletteLike, refuse_map_options
from shiftproof.data.images.pictures import from_samples
from shiftproof.data.images.source import DecodedSource, describe, unreadable
from shiftproof.data.labels import number_labels
from shiftproof.errors import ConfigurationError, DataError

MASK_COLUMNS = {"label", "labels", "mask", "annotation", "segmentation", "semantic_segmentation", "seg", "gt", "target"}


class _Featured(Protocol):
    """A set whose columns are known, and of which kind they are."""

    @property
    def features(self) -> Mapping[str, object]: ...


def is_huggingface(source: object) -> bool:
    """Whether an object is a `datasets.Dataset`, or a mapping of splits to them."""
    if isinstance(source, Mapping) and source:
        return all(is_huggingface(part) for part in source.values())
    return hasattr(source, "features") and hasattr(source, "cast_column")


def is_saved(folder: Path) -> bool:
    """Whether a folder is what `save_to_disk` wrote."""
    return (folder / "dataset_dict.json").is_file() or (
        (folder / "dataset_info.json").is_file() and (folder / "state.json").is_file()
    )


def load_saved(folder: Path, **options: Any) -> ImageSet:
    """Return the set that `save_to_disk` wrote to a folder."""
    return from_huggingface(read_saved(folder), name=folder.resolve().name, **options)


def read_saved(folder: Path) -> Any:
    """Return the `datasets.Dataset`, or the mapping of splits to them, that `save_to_disk` wrote to a folder."""
    try:
        import datasets
    except (ImportError, RuntimeError) as error:
        raise DataError(
            f"Reading the saved data set {str(folder)!r} needs the package datasets.",
            got=f"{type(error).__name__}: {error}",
            fix="pip install 'shiftproof[huggingface]'",
        ) from error
    try:
        return datasets.load_from_disk(str(folder))
    except Exception as error:  # damaged files fail in any way there is
        raise DataError(
            f"Cannot read the saved data set {str(folder)!r}.",
            expected="a folder that save_to_disk wrote",
            got=describe(error),
        ) from error


def as_stored(dataset: Any) -> tuple[Any, list[str]]:
    """Return a data set that gives its rows as they are stored, and what a report should say of that.

    A format makes tensors of them or leaves columns out; a transform is for a training loop, and often normalises.
    """
    form = getattr(dataset, "format", None)
    kind = form.get("type") if isinstance(form, Mapping) else None
    if kind is None and not (isinstance(form, Mapping) and set(form.get("columns", ())) < set(dataset.features)):
        return dataset, []
    note = (
        "The data set's own transform was left out: images are read as they are stored (size= resizes and crops them; "
        "normalisation belongs into the model)."
    )
    return dataset.with_format(None), [note] if kind == "custom" else []


def from_huggingface(
    dataset: Any,
    *,
    name: str = "dataset",
    split: str | None = None,
    classes: str | Path | Sequence[str] = "auto",
    size: Size | None = None,
    color: Color | None = None,
    image_column: str | None = None,
    label_column: str | None = None,
    on_bad_file: OnBadFile = "fail",
    ignore_label: int | None = None,
    palette: PaletteLike = None,
) -> ImageSet:
    """Return a `datasets.Dataset` with an `Image` column as a set; its labels are in a `ClassLabel` column or `label`.

    A column of labels that are images makes a set for segmentation. Of a mapping of splits, `split` chooses one. A set
    that is streamed is read once and held in memory.
    """
    if isinstance(dataset, Mapping):
        dataset, name = choose_split(dataset, split), f"{name} {split or next(iter(dataset))}"
    elif split is not None:
        raise ConfigurationError("split= cannot be used with a data set without splits.", fix="leave split out")
    if not hasattr(dataset, "__len__"):
        options: dict[str, Any] = {"classes": classes, "size": size, "color": color, "on_bad_file": on_bad_file}
        return _streamed(dataset, image_column, label_column, name=name, **options)
    dataset, notes = as_stored(dataset)
    find_columns(list(dataset.features), image_column, label_column)  # refuses a column that is not there
    masks = _mask_column(dataset, label_column)
    if masks is not None:
        image = image_column or next(key for key in _columns(dataset, "Image") if key != masks)
        kind = type(dataset.features[image])
        rows = dataset.select_columns([image, masks])
        for key in (image, masks):
            rows = rows.cast_column(key, kind(decode=False))
        samples = [(row[image], row[masks]) for row in rows]
        given: dict[str, Any] = {"size": size, "color": color, "on_bad_file": on_bad_file, "classes": classes}
        return from_samples(samples, name=name, notes=notes, ignore_label=ignore_label, palette=palette, **given)
    refuse_map_options(ignore_label, palette)
    column = image_column or _column(dataset, "Image")
    if column is not None and type(dataset.features[column]).__name__ != "Image":
        options = {"classes": classes, "size": size, "color": color, "on_bad_file": on_bad_file, "notes": notes}
        return _streamed(dataset, column, label_column, name=name, **options)
    if column is None:
        raise DataError(
            "The data set has no column of images.",
            expected="a column with the feature datasets.Image",
            got=", ".join(f"{key}: {type(feature).__name__}" for key, feature in dataset.features.items()),
            fix=NAME_IT,
        )
    source = DatasetSource(dataset, column, Decoder(color or "rgb", size))
    label = _label(dataset, label_column)
    labels, naming = number_labels(
        [None] * len(dataset) if label is None else list(dataset[label]), classes, _names(dataset, label)
    )
    return ImageSet(
        source,
        name=name,
        labels=labels,
        classes=naming.classes,
        numbering=naming.numbering,
        notes=[*naming.notes, *notes],
        on_bad_file=on_bad_file,
    )


def _streamed(dataset: Any, image_column: str | None, label_column: str | None, **options: Any) -> ImageSet:
    """Return the set of rows that come one after the other, or whose images are not of the feature `Image`."""
    rows = list(dataset)
    label = _label(dataset, label_column) if dataset.features is not None else label_column
    image, found = find_columns(list(rows[0]) if rows else [], image_column, label)
    if image is None:
        got = ", ".join(rows[0]) if rows else "no rows"
        raise DataError("The data set has no column of images.", got=got, fix=NAME_IT)
    samples = [(row[image], None if found is None else row[found]) for row in rows]
    return from_samples(samples, names=_names(dataset, found), **options)


def _label(dataset: _Featured, named: str | None) -> str | None:
    """Return the column of labels: the one that is named, that of class labels, or the first with a common name."""
    return named or _column(dataset, "ClassLabel") or find_columns(list(dataset.features), None, None)[1]


def _names(dataset: Any, label: str | None) -> Sequence[str] | None:
    features = dataset.features or {}
    return getattr(features[label], "names", None) if label in features else None


class DatasetSource(DecodedSource):
    """The image column of a data set, decoded by this package and not by `datasets`: the same rules for all images."""

    def __init__(self, dataset: Any, column: str, decoder: Decoder) -> None:
        self._rows = dataset.select_columns([column]).cast_column(column, type(dataset.features[column])(decode=False))
        self._column = column
        self._decoder = decoder
        self.size = decoder.size
        self.decoding = repr(decoder)
        try:
            height, width, channels = self.decode(0).shape
        except IndexError:
            raise DataError("The data set is empty.", expected="one image or more", got="no rows") from None
        except Exception as error:  # the decoders of damaged files fail in any way there is
            raise unreadable(self.name(0), describe(error)) from error
        self.shape = (channels, height, width)

    def __len__(self) -> int:
        return len(self._rows)

    def name(self, row: int) -> str:
        """Name an image by its row."""
        return f"row {row}"

    def decode(self, row: int) -> NDArray[np.uint8]:
        """Return one image, [H, W, C]."""
        entry = self._rows[row][self._column]
        if entry["bytes"] is None:
            return decode_file(entry["path"], self._decoder)
        return self._decoder(io.BytesIO(entry["bytes"]))

    def make_contents(self) -> Tensor:
        """Digest every encoded image."""

        def content(row: int) -> bytes:
            with self._encoded(row) as file:
                return file.read()

        return digests(map(content, range(len(self._rows))))

    def _encoded(self, row: int) -> IO[bytes]:
        entry = self._rows[row][self._column]
        return Path(entry["path"]).open("rb") if entry["bytes"] is None else io.BytesIO(entry["bytes"])


def choose_split(splits: Mapping[str, Any], split: str | None) -> Any:
    """Return one of several splits; the only one needs no name."""
    if split is None and len(splits) == 1:
        return next(iter(splits.values()))
    if split is None or split not in splits:
        raise DataError(
            "The data set has several splits." if split is None else f"The data set has no split {split!r}.",
            expected=f"split= one of {', '.join(splits)}",
        )
    return splits[split]


def _column(dataset: _Featured, feature: str) -> str | None:
    """Return the first column of a feature's kind."""
    return next(iter(_columns(dataset, feature)), None)


def _columns(dataset: _Featured, feature: str) -> list[str]:
    return [key for key, held in dataset.features.items() if type(held).__name__ == feature]


def _mask_column(dataset: _Featured, named: str | None) -> str | None:
    """Return the column of label maps: one of images beside another, of the name given or of a usual one."""
    images = _columns(dataset, "Image")
    if len(images) < 2:
        return None
    return named if named in images else next((key for key in images if key.lower() in MASK_COLUMNS), None)
