"""Hugging Face `datasets`: saved to disk, or in memory."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from shiftproof.data.base import OnBadFile
from shiftproof.data.contents import digests
from shiftproof.data.images.decoded_files import decode_file
from shiftproof.data.images.decoding import Color, Decoder, Size
from shiftproof.data.images.imageset import ImageSet
from shiftproof.data.images.source import DecodedSource, describe, unreadable
from shiftproof.data.labels import check_labels, name_classes
from shiftproof.errors import DataError


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
    try:
        import datasets
    except (ImportError, RuntimeError) as error:
        raise DataError(
            f"Reading the saved data set {str(folder)!r} needs the package datasets.",
            got=f"{type(error).__name__}: {error}",
            fix="pip install 'shiftproof[huggingface]'",
        ) from error
    try:
        dataset = datasets.load_from_disk(str(folder))
    except Exception as error:  # damaged files fail in any way there is
        raise DataError(
            f"Cannot read the saved data set {str(folder)!r}.",
            expected="a folder that save_to_disk wrote",
            got=describe(error),
        ) from error
    return from_huggingface(dataset, name=folder.resolve().name, **options)


def from_huggingface(
    dataset: Any,
    *,
    name: str = "dataset",
    split: str | None = None,
    classes: str | Path | Sequence[str] = "auto",
    size: Size | None = None,
    color: Color | None = None,
    on_bad_file: OnBadFile = "fail",
) -> ImageSet:
    """Return a `datasets.Dataset` with an `Image` column as a set; its labels are in a `ClassLabel` column or `label`.

    Of a mapping of splits, `split` chooses one.
    """
    if isinstance(dataset, Mapping):
        dataset, name = _choose(dataset, split), f"{name} {split or next(iter(dataset))}"
    column = _column(dataset, "Image")
    if column is None:
        raise DataError(
            "The data set has no column of images.",
            expected="a column with the feature datasets.Image",
            got=", ".join(f"{key}: {type(feature).__name__}" for key, feature in dataset.features.items()),
        )
    source = DatasetSource(dataset, column, Decoder(color or "rgb", size))
    label = _column(dataset, "ClassLabel") or ("label" if "label" in dataset.features else None)
    labels = None if label is None else check_labels(list(dataset[label]), len(dataset))
    names = getattr(dataset.features[label], "names", None) if label is not None else None
    own = names if names and classes in ("auto", "sorted") else None
    return ImageSet(
        source,
        name=name,
        labels=labels,
        classes=name_classes(labels, own or classes),
        numbering="own" if own else "index" if classes in ("auto", "sorted") else "given",
        on_bad_file=on_bad_file,
    )


class DatasetSource(DecodedSource):
    """The image column of a data set, decoded by this package and not by `datasets`: the same rules for all images."""

    def __init__(self, dataset: Any, column: str, decoder: Decoder) -> None:
        self._rows = dataset.select_columns([column]).cast_column(column, type(dataset.features[column])(decode=False))
        self._column = column
        self._decoder = decoder
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


def _choose(splits: Mapping[str, Any], split: str | None) -> Any:
    if split is None and len(splits) == 1:
        return next(iter(splits.values()))
    if split is None or split not in splits:
        raise DataError(
            "The data set has several splits." if split is None else f"The data set has no split {split!r}.",
            expected=f"split= one of {', '.join(splits)}",
        )
    return splits[split]


def _column(dataset: Any, feature: str) -> str | None:
    """Return the first column of a feature's kind."""
    return next((key for key, held in dataset.features.items() if type(held).__name__ == feature), None)
