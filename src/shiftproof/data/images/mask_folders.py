"""Image sets with label maps from folders: found by layout, or where the user says that the maps are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from shiftproof.data.base import BadFile, OnBadFile
from shiftproof.data.images.decoding import Color, Size
from shiftproof.data.images.file_lists import images_under
from shiftproof.data.images.folders import from_files
from shiftproof.data.images.mask_layouts import find_masks
from shiftproof.data.images.mask_pairs import find_label_maps
from shiftproof.data.images.mask_values import MaskRules, PaletteLike, Values, read_mask
from shiftproof.data.images.maskset import MaskSet, make_mask_set
from shiftproof.data.images.source import describe
from shiftproof.data.labels import Naming
from shiftproof.errors import DataError

SHOWN = 3


def load_mask_folder(
    root: Path,
    *,
    label_maps: str | Path | None = None,
    ignore_label: int | None = None,
    palette: PaletteLike = None,
    split: str | None = None,
    classes: str | Path | Sequence[str] = "auto",
    size: Size | None = None,
    color: Color | None = None,
    on_bad_file: OnBadFile = "fail",
) -> MaskSet:
    """Return the set of a folder of images and label maps; `label_maps` says where the maps are, else the layout does.

    Images without a map are an error, or left out and listed with `on_bad_file="skip"`; so are maps without an image.
    All maps are read here: what is wrong with their values is told before any long work.
    """
    if label_maps is not None:
        at = root if split is None else root / split
        pairs, alone, orphans, rules = _given(at, label_maps)
        what = "a set of images and label maps"
    else:
        layout = find_masks(root)
        if layout is None:
            raise DataError(f"There are no label maps in {str(root)!r}.", fix="--label-maps FOLDER (label_maps=)")
        pairs, alone, orphans = layout.pairs(split)
        rules, what = layout.rules, layout.what
    if not pairs or ((alone or orphans) and on_bad_file == "fail"):
        raise _unpaired(root, pairs, alone, orphans)
    rules = rules.changed(classes, ignore_label, palette)
    top = root.resolve()
    files = [_below(image, top) for image, _ in pairs]
    plain = from_files(
        top,
        files,
        torch.arange(len(files)),
        Naming({}, (), numbering="index"),
        name=root.resolve().name if split is None else f"{root.resolve().name} {split}",
        where=str(root),
        size=size,
        color=color,
        on_bad_file=on_bad_file,
    )
    assert plain.labels is not None  # they say which files could be read
    maps = [_read(pairs[row][1], size) for row in plain.labels.tolist()]
    bad = [*plain.bad_files, *(BadFile(file, "it has no label map") for file in alone)]
    notes = [f"Read as {what}."] if rules.classes else []
    return make_mask_set(
        plain.source, maps, rules, name=plain.name, notes=notes, on_bad_file=on_bad_file, bad_files=bad
    )


def _given(root: Path, label_maps: str | Path) -> tuple[list[tuple[Path, Path]], list[str], list[str], MaskRules]:
    """Return the pairs of a folder whose maps the user names, and the images that have none."""
    images = images_under(root)
    found = find_label_maps(root, images, label_maps)
    taken = {one.path.resolve() for one in found.values()}
    alone = [file for file in images if file not in found and (root / file).resolve() not in taken]
    return [(root / file, found[file].path) for file in sorted(found)], alone, [], MaskRules()


def _unpaired(root: Path, pairs: Sequence[object], alone: Sequence[str], orphans: Sequence[str]) -> DataError:
    told = [
        f"{len(some)} {what} ({', '.join(some[:SHOWN])}{', ...' if len(some) > SHOWN else ''})"
        for some, what in ((alone, "images without a label map"), (orphans, "label maps without an image"))
        if some
    ]
    return DataError(
        "Images and label maps do not match.",
        expected=f"a label map of the same name for every image in {str(root)!r}",
        got="; ".join(told) or f"{len(pairs)} pairs",
        fix="add or remove these files; --on-bad-file skip leaves them out and lists them",
    )


def _below(image: Path, top: Path) -> str:
    return image.resolve().relative_to(top).as_posix() if image.resolve().is_relative_to(top) else str(image.resolve())


def _read(path: Path, size: Size | None) -> Values:
    try:
        return read_mask(path, size)
    except Exception as error:  # damaged files fail in any way there is
        raise DataError(
            f"Cannot read the label map {path.name!r}.",
            expected="a PNG, TIFF, BMP or GIF file of class numbers or of a palette's colours",
            got=error.headline if isinstance(error, DataError) else describe(error),
        ) from error
