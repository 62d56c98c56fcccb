"""Images with label maps: for every pixel a class, or the ignore label where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shiftproof.data.images.imageset import ImageSet
from shiftproof.data.images.mask_values import IGNORE, MaskRules, Values, described
from shiftproof.data.images.source import ImageSource
from shiftproof.errors import DataError


class MaskSet(ImageSet):
    """Images whose labels are maps, uint8 [N, H, W]: classes from 0, and `IGNORE` where there is no label."""

    task = "segmentation"
    labels: Tensor

    def __repr__(self) -> str:
        return f"MaskSet({self.name!r}, {len(self)} images of {self.shape}, {len(self.classes)} classes)"

    @property
    def known_labels(self) -> Tensor:
        """The classes that occur, [M] in order."""
        found = torch.bincount(self.labels.flatten(), minlength=IGNORE + 1)
        return found[:IGNORE].nonzero()[:, 0]

    @property
    def ignored(self) -> float:
        """The share of pixels without a label."""
        return float((self.labels == IGNORE).double().mean())


def make_mask_set(source: ImageSource, values: Sequence[Values], rules: MaskRules, **options: Any) -> MaskSet:
    """Return a set of images and of as many maps of raw values [H, W], or colours [H, W, 3], which rules make classes.

    Other options are those of a `Dataset`. Maps of another size than their images are refused.
    """
    _, height, width = source.shape
    for row, value in enumerate(values):
        if value.shape[:2] != (height, width):
            raise DataError(
                "A label map and its image differ in size.",
                expected=f"{width} x {height} pixels, as the image has",
                got=f"{value.shape[1]} x {value.shape[0]} pixels ({_named(source, row)})",
                fix="label maps are not resized to images: give those of these images; --size resizes both",
            )
    found = rules.read(values, [_named(source, row) for row in range(len(values))])
    return MaskSet(
        source,
        labels=torch.from_numpy(np.stack(found.maps)),
        classes=found.classes,
        numbering="index" if described(found.classes) else "own",
        **{**options, "notes": [*options.get("notes", ()), *found.notes]},
    )


def _named(source: ImageSource, row: int) -> str:
    return source.file(row) or f"image {row}"
