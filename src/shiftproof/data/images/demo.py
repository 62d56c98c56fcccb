"""The embedded demo: CIFAR-10 test images as sprites, 25 in a row, losslessly compressed."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from shiftproof.data.images.arrays import from_arrays
from shiftproof.data.images.imageset import ImageSet
from shiftproof.errors import DataError

DEMOS = {"demo": "audit", "demo-source": "source"}
"""Name -> sprite: 1,000 images to audit, and 500 others as the labelled source validation set."""

_TILE = 32


def load_demo(name: str, *, classes: str | Path | Sequence[str] = "auto", **options: Any) -> ImageSet:
    """Return a part of the demo."""
    part, folder = DEMOS[name], files("shiftproof.data") / "demo"
    try:
        facts = json.loads((folder / "labels.json").read_text("utf-8"))
        encoded = (folder / f"{part}.webp").read_bytes()
    except OSError as error:
        raise DataError(
            "The embedded demo is missing from this installation.", got=str(error), fix="install shiftproof again"
        ) from error
    with Image.open(io.BytesIO(encoded)) as image:
        sprite = np.asarray(image.convert("RGB"))
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
