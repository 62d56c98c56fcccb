"""What lies beside the images of a folder, such as annotations: copied, but for places in images that move."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from shiftproof.errors import ConfigurationError
from shiftproof.exports.copies import MANIFEST
from shiftproof.exports.suites import Target
from shiftproof.runs import lock as run_lock
from shiftproof.runs import store as run_store
from shiftproof.runs import write_atomically
from shiftproof.shifts.moving import moves_content

_JSON = re.compile(rb'"(bbox|segmentation|keypoints|polygon|points)"\s*:')
_XML = re.compile(rb"<(bndbox|robndbox|polygon|polyline|points|box)\b")
_YOLO = re.compile(rb"\s*\d+(\s+[-+.\deE]+){4,}\s*(\n|$)")
_COLUMNS = {"bbox", "xmin", "x_min", "ymin", "y_min", "xmax", "ymax", "polygon", "segmentation", "keypoints"}
_TEXTS = (".csv", ".json", ".jsonl", ".tsv", ".txt", ".xml", ".yaml", ".yml")
_NAMES_LOOKED_FOR = 20


def beside(root: Path, files: Iterable[str]) -> tuple[str, ...]:
    """Return the files to copy, of those under a folder that are not images; a copy's own run is not among them."""
    own = {run_store.FILE, f"{run_store.FILE}-wal", f"{run_store.FILE}-shm", run_lock.FILE, MANIFEST}
    if not (root / run_store.FILE).exists():
        own = set()
    return tuple(file for file in files if file not in own and (root / file).is_file())


def refuse_places(
    root: Path, files: Sequence[str], images: Collection[str], targets: Sequence[Target], size: object
) -> None:
    """Refuse annotations with places in images, such as boxes, where a shift moves content or images are resized."""
    moving = [target.shift.label for target in targets if moves_content(target.shift)] if files else []
    if not moving and size is None:
        return
    stems = {Path(image).stem for image in images}
    for file in files:
        kind = _places(root / file, stems)
        if kind is not None:
            what = f"the shift {moving[0]} moves content" if moving else f"images are brought to the size {size}"
            raise ConfigurationError(
                f"There are {kind} in {file!r}, and {what}.",
                expected="boxes, polygons and key points only under shifts that leave content where it is",
                got=", ".join(moving) or f"--size {size}",
                fix=f"leave {'such shifts' if moving else '--size'} out, or keep the annotations in another folder",
            )


def _places(path: Path, stems: Collection[str]) -> str | None:
    """Return what places a file of annotations holds, or None."""
    suffix = path.suffix.lower()
    if suffix in (".json", ".jsonl"):
        found = _JSON.search(path.read_bytes())
        return None if found is None else f"places ({found[1].decode()}, as in COCO)"
    if suffix == ".xml":
        found = _XML.search(path.read_bytes())
        return None if found is None else f"places ({found[1].decode()}, as in Pascal VOC)"
    if suffix in (".csv", ".tsv"):
        with path.open("rb") as file:
            columns = re.split(rb'[\s,;"]+', file.readline().strip().lower())
        named = sorted(_COLUMNS & {column.decode("utf-8", "replace") for column in columns})
        return f"places (the column {named[0]})" if named else None
    if suffix == ".txt" and path.stem in stems and _YOLO.match(path.read_bytes()):
        return "boxes (as in YOLO)"
    return None


def refuse_renaming(root: Path, files: Iterable[str], images: Sequence[str], names: Sequence[str]) -> None:
    """Refuse another format where annotations name the files whose suffix it would change."""
    changed = [file for file, name in zip(images, names, strict=True) if file != name]
    wanted = [os.fsencode(Path(file).name) for file in changed[:_NAMES_LOOKED_FOR]]
    for file in files:
        if wanted and Path(file).suffix.lower() in _TEXTS:
            content = (root / file).read_bytes()
            if any(name in content for name in wanted):
                raise ConfigurationError(
                    f"The file {file!r} names images whose suffix would change.",
                    got=f"{changed[0]}, to be written as {names[images.index(changed[0])]}",
                    fix="leave --format out, which keeps every name, or keep the annotations in another folder",
                )


def copy_beside(root: Path, files: Iterable[str], tree: Path) -> None:
    """Copy files to the same paths in a tree, byte for byte; those that are there already are left."""
    for file in files:
        content = (root / file).read_bytes()
        there = tree / file
        if there.is_symlink() or not there.is_file() or there.read_bytes() != content:
            write_atomically(there, content)
