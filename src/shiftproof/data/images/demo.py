"""The embedded demo: CIFAR-10 test images as sprites, 25 in a row, losslessly compressed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from shiftproof.data.images.arrays import from_arrays
from shiftproof.data.images.imageset import ImageSet
from shiftproof.errors import DataError

DEMOS = {"demo": "audit", "demo-source": "source"}
"""Name -> sprite: 1,000 images to audit, and 500 others as the labelled source validation set."""

_TILE = 32
_FOLDER = files("shiftproof.data") / "demo"


def load_demo(name: str, *, classes: str | Path | Sequence[str] = "auto", **options: Any) -> ImageSet:
    """Return a part of the demo."""
    part = DEMOS[name]
    try:
        facts = json.loads((_FOLDER / "labels.json").read_text("utf-8"))
        sprite = _sprite(part)
    except OSError as error:
        raise DataError(
            "The embedded demo is missing from this installation.", got=str(error), fix="install shiftproof again"
        ) from error
    rows, columns = sprite.shape[0] // _TILE, sprite.shape[1] // _TILE
    tiles = sprite.reshape(rows, _TILE, columns, _TILE, 3).swapaxes(1, 2).reshape(-1, _TILE, _TILE, 3)
    labels = facts[part]
    own = classes in ("auto", "sorted")
    return from_arrays(
        tiles[: len(labels)],
        labels,
        name=name,
        classes=facts["classes"] if own else classes,
        numbering="own" if own else "given",
        **options,
    )


@cache
def _sprite(part: str) -> NDArray[np.uint8]:
    """Return the pixels of the one file that holds all images of a part; they are copied from it."""
    with (_FOLDER / f"{part}.webp").open("rb") as file, Image.open(file) as image:
        return np.asarray(image.convert("RGB"))
