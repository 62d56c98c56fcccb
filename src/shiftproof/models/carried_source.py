"""A user's model file, copied beside the weights that were trained for it, and whether it may be run from there.

Who gives a folder of weights has not asked to run what is in it. A copy is run where this user trained with these very
files before, which is noted by their content: then it does not matter where the folder went.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

from shiftproof.errors import RunError
from shiftproof.models.python_file import split_python_file
from shiftproof.models.sources import neighbours, sources
from shiftproof.runs.files import cache_folder, write_atomically

FOLDER = "source"
"""Where in a trained folder the user's files are."""
KNOWN = "own-sources"
"""The folder of the user's cache whose files are named after the digests of sources that were trained with."""


def carry(spec: str, folder: Path) -> str:
    """Copy the file of `file.py:build`, with the files beside it that it imports; return how it is called there."""
    path, function = split_python_file(spec)
    root = path.resolve().parent
    for file in (path.resolve(), *neighbours(path).values()):
        write_atomically(folder / FOLDER / file.relative_to(root), file.read_bytes())
    _note(_digest(path))
    return f"{FOLDER}/{path.name}:{function}"


def is_own(path: Path) -> bool:
    """Whether this user trained with a file of this content, and of the files beside it that it imports."""
    known = cache_folder()
    return known is not None and path.is_file() and (known / KNOWN / _digest(path)).is_file()


def _digest(path: Path) -> str:
    """Return a digest of the very bytes: what may be run is no matter of what looks the same."""
    return hashlib.blake2b(repr(sources(path)).encode(), digest_size=16).hexdigest()


def _note(digest: str) -> None:
    known = cache_folder()
    if known is not None:
        with suppress(RunError):  # a home that cannot be written: the folder then asks for --model and --weights
            write_atomically(known / KNOWN / digest, "")
