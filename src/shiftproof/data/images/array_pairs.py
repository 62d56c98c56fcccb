"""Folders of array files that belong together: `cifar10.1_v6_data.npy` and `cifar10.1_v6_labels.npy`.

CIFAR-10.1 is published so (Recht et al. 2018), in two versions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from shiftproof.data.images.arrays import labels_beside, load_array_file
from shiftproof.data.images.decoding import Color, Size
from shiftproof.data.images.imageset import ImageSet
from shiftproof.errors import DataError

DATA = "_data"


def find_pairs(folder: Path) -> Mapping[str, Path]:
    """Return the images of each pair of files in a folder, by name."""
    files = sorted(file for file in folder.glob(f"*{DATA}.npy") if labels_beside(file) is not None)
    return {file.stem.removesuffix(DATA): file for file in files}


def load_pair(
    folder: Path,
    *,
    split: str | None = None,
    size: Size | None = None,
    classes: str | Path | Sequence[str] = "auto",
    color: Color | None = None,
) -> ImageSet:
    """Return the only set of a folder, or one of several by its name, or by what follows the underscore in it."""
    pairs = find_pairs(folder)
    wanted = [name for name in pairs if split is None or split in (name, name.rpartition("_")[2])]
    if len(wanted) != 1:
        raise DataError(
            f"{str(folder)!r} holds several sets." if wanted else f"There is no set {split!r} in {str(folder)!r}.",
            expected="split= (--split) one of them",
            got=", ".join(name.rpartition("_")[2] for name in pairs),
        )
    return load_array_file(pairs[wanted[0]], size=size, classes=classes, color=color).named(wanted[0])
