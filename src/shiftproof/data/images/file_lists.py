"""Which files a folder holds: images or all of them, by sub-folder, through links but not in circles."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from shiftproof.data.images.decoding import is_image_name
from shiftproof.runs.files import is_hidden


def is_visible_image(name: str) -> bool:
    """Whether a file of this name counts as an image: hidden ones do not."""
    return not name.startswith(".") and is_image_name(name)


def images_under(root: Path) -> list[str]:
    """Return the images in a folder and below, as sorted paths from it; hidden ones do not count."""
    return images_by_folder(root, [""])[""]


def named_file(file: str) -> str:
    """Return what the image of a file is called: its path without the ending, which tells how it is stored."""
    return os.path.splitext(file)[0]  # noqa: PTH122


def has_images(folder: Path, *, below: bool = True) -> bool:
    """Whether there are images in a folder, or below it."""
    walked = os.walk(folder)
    return any(is_visible_image(name) for _, _, files in (walked if below else [next(walked)]) for name in files)


def files_under(root: Path) -> list[str]:
    """Return all files in a folder and below, images or not, as `images_under` does."""
    return images_by_folder(root, [""], lambda name: not name.startswith("."))[""]


def images_by_folder(
    root: Path, folders: Sequence[str], wanted: Callable[[str], bool] = is_visible_image
) -> dict[str, list[str]]:
    """Return the images, or the files wanted, below folders of the root, by folder, as sorted paths from the root.

    Links are followed, but every folder is read once, and where it is before where a link leads to it: circles end, and
    an image has one class.
    """
    seen = {_identity(above) for above in root.resolve().parents}
    if "" not in folders:
        seen.add(_identity(root))
    found: dict[str, list[str]] = {folder: [] for folder in folders}
    waiting = deque(sorted(((folder, root / folder) for folder in folders), key=lambda entry: entry[1].is_symlink()))
    while waiting:
        folder, top = waiting.popleft()
        for path, inside, files in os.walk(top):
            here = Path(path)
            if _identity(here) in seen:
                inside.clear()
                continue
            seen.add(_identity(here))
            inside[:] = [name for name in inside if not is_hidden(name)]
            waiting.extend((folder, here / name) for name in inside if (here / name).is_symlink())
            found[folder] += [(here.relative_to(root) / name).as_posix() for name in files if wanted(name)]
    return {folder: sorted(files) for folder, files in found.items()}


def _identity(folder: Path) -> tuple[int, int]:
    """Return what a folder is known by, whatever path leads to it."""
    found = folder.stat()
    return found.st_dev, found.st_ino
