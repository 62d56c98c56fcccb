"""How much of a disk a run takes: told, and compared with what is free, before any long work."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from shiftproof.audits.audited_images import AuditedImages
from shiftproof.audits.image_answers import answers_planned
from shiftproof.errors import RunError
from shiftproof.runs import AnyTask

BESIDES, PICTURES = 8_000_000, 130
"""Bytes of the report and of all results but those of single images, and of pictures for each pixel of an image."""
PICTURED = 224
"""Larger images are shown at about this size."""
STORED, ROW = 11, 63
"""Bytes of an answer in the store, and of its row in images.csv besides names: an image's one and three of classes."""


def space_needed(tasks: Iterable[AnyTask], images: AuditedImages | None, side: int | None) -> int:
    """Return how many bytes a run of these tasks takes, about: most of it, where it is much, for single images.

    `side` is how many pixels a side images have.
    """
    names = [] if images is None else [name for files in images.files.values() for name in files]
    classes = () if images is None else images.classes
    each = STORED + ROW + _mean_length(names) + 3 * _mean_length(classes)
    pictures = PICTURES * min(side or 0, PICTURED) ** 2
    return BESIDES + pictures + round(answers_planned(tasks) * each)


def refuse_full_disk(folder: Path, needed: int) -> None:
    """Refuse a run if its disk has no room even for its results of single images alone.

    What the folder has already is counted as done.
    """
    there = sum(entry.stat().st_size for entry in folder.iterdir() if entry.is_file()) if folder.is_dir() else 0
    free = shutil.disk_usage(folder).free
    if free < needed - BESIDES - PICTURES * PICTURED**2 - there:  # small runs write less than that besides
        raise RunError(
            f"The disk of {str(folder)!r} has too little room for this run.",
            expected=f"about {told_size(needed - there)}",
            got=f"{told_size(free)} free",
            fix="free some space, choose another folder (--out), or measure fewer images (--images)",
        )


def told_size(count: int) -> str:
    """Write a number of bytes in the unit a person would use.

    >>> told_size(340_000), told_size(16_300_000), told_size(2_100_000_000)
    ('0.3 MB', '16 MB', '2.1 GB')
    """
    if count < 1e9:
        return f"{count / 1e6:.{0 if count >= 1e7 else 1}f} MB"
    return f"{count / 1e9:.1f} GB"


def _mean_length(names: Iterable[str]) -> float:
    lengths = [len(name.encode("utf-8", "backslashreplace")) for name in names]
    return sum(lengths) / max(1, len(lengths))
