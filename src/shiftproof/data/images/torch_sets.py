"""PyTorch's data sets and loaders: items are read by row, as their author's transform makes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, Subset, default_collate

from shiftproof.data.columns import find_columns
from shiftproof.data.images.imageset import ImageSet
from shiftproof.data.images.pictures import Sample, from_samples, pixels
from shiftproof.data.images.source import describe
from shiftproof.errors import DataError

Columns: TypeAlias = tuple[str | None, str | None]
"""The names of images and of labels in items that are mappings, where they are given."""

LOOKED_AT = 16
"""Items that are read twice, to see whether a transform is random."""


def is_torch_set(source: object) -> bool:
    """Whether an object is a data set or a loader of PyTorch."""
    return isinstance(source, Dataset | DataLoader)


class Items:
    """The items of a data set as samples: pairs, longer tuples, mappings, or images alone."""

    def __init__(self, dataset: Any, rows: Sequence[int], columns: Columns) -> None:
        self._dataset = dataset
        self._rows = rows
        self._columns = columns

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, row: int) -> Sample:
        try:
            item = self._dataset[self._rows[row]]
        except Exception as error:  # whatever a user's data set raises is told in one paragraph
            raise DataError(
                f"The data set failed at item {self._rows[row]}.", got=f"{type(error).__name__}: {describe(error)}"
            ) from error
        return _sample(item, self._columns)


def from_torch(
    source: Any, *, image_column: str | None = None, label_column: str | None = None, **options: Any
) -> ImageSet:
    """Return the set of a PyTorch `Dataset` or of what a `DataLoader` loads; class names are its `classes`.

    A loader's order does not matter, and is left alone; which rows it takes does. A loader with a `collate_fn` of its
    own, and a data set without rows, are read once and held in memory.
    """
    dataset: Any = source.dataset if isinstance(source, DataLoader) else source
    columns = image_column, label_column
    name = type(dataset).__name__
    if isinstance(source, DataLoader) and not _by_rows(source):
        samples: Any = [
            sample for batch in source for sample in _unbatched(batch, columns, one=source.batch_size is None)
        ]
        return from_samples(samples, name=name, names=class_names(dataset), **options)
    if isinstance(dataset, IterableDataset):
        samples = [_sample(item, columns) for item in dataset]
        return from_samples(samples, name=name, names=class_names(dataset), **options)
    items = Items(dataset, _rows(source) if isinstance(source, DataLoader) else range(len(dataset)), columns)
    _check_steady(items)
    return from_samples(items, name=name, names=class_names(dataset), **options)


def class_names(dataset: Any) -> list[str] | None:
    """Return the class names a data set has for the numbers that its labels are; None where it has none."""
    if getattr(dataset, "target_transform", None) is not None:
        return None  # the labels are other numbers
    if isinstance(dataset, Subset):
        return class_names(dataset.dataset)
    if isinstance(dataset, ConcatDataset):
        found = [class_names(part) for part in dataset.datasets]
        if any(names != found[0] for names in found):
            raise DataError(
                "The parts of the data set have different classes.",
                expected="one list of classes",
                got="; ".join(", ".join((names or ["no names"])[:5]) for names in found[:3]),
            )
        return found[0]
    names = getattr(dataset, "classes", None)
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) for name in names):
        return None
    return list(names)


def _by_rows(loader: DataLoader[Any]) -> bool:
    """Whether a loader takes rows of its data set as they are."""
    plain = loader.collate_fn is default_collate and loader.batch_sampler is not None
    return plain and not isinstance(loader.dataset, IterableDataset)


def _rows(loader: DataLoader[Any]) -> list[int]:
    """Return the rows that a loader takes, sorted; the user's stream of random numbers stays untouched."""
    with torch.random.fork_rng(devices=[]):
        return sorted(int(row) for batch in loader.batch_sampler or () for row in batch)


def _sample(item: Any, columns: Columns) -> Sample:
    """Return the picture and the label of an item, or those of a batch."""
    if isinstance(item, Mapping):
        image, label = find_columns(list(item), *columns)
        if image is None:
            raise DataError(
                "Cannot tell which part of an item is the image.",
                expected="image_column= the name of it",
                got=", ".join(map(str, item)),
            )
        return item[image], None if label is None else _scalar(item[label])
    if isinstance(item, tuple | list):
        return item[0], _scalar(item[1]) if len(item) > 1 else None
    return item, None


def _unbatched(batch: Any, columns: Columns, *, one: bool) -> list[Sample]:
    """Return the samples of what a loader gives: a batch, or one sample where it makes no batches."""
    images, labels = _sample(batch, columns)
    if one and getattr(images, "ndim", 3) < 4:
        return [(images, labels)]
    return list(zip(images, [None] * len(images) if labels is None else map(_scalar, labels), strict=True))


def _scalar(label: Any) -> Any:
    """Return a label that is one number as a Python number."""
    return label.item() if isinstance(label, Tensor | np.ndarray | np.generic) and label.ndim == 0 else label


def _check_steady(items: Items) -> None:
    """Refuse a data set that makes another image of an item each time."""
    for row in range(min(LOOKED_AT, len(items))):
        once, again = (pixels(items[row][0], None, None) for _ in range(2))
        if once.shape != again.shape or not np.array_equal(once, again):
            raise DataError(
                "The data set returns a different image each time an item is read.",
                expected="the same pixels, as for validation",
                got=f"item {row} differs from itself",
                fix="leave random transforms out (crops, flips, augmentation)",
            )
