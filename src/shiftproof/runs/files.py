"""Files that are whole or absent: written to a temporary name in the same folder, synced, and renamed."""

from __future__ import annotations

import errno
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from shiftproof.errors import RunError


def is_hidden(name: str) -> bool:
    """Whether a file or folder is none of the user's: hidden, or made by an archiver or by Python beside their own."""
    return name.startswith(".") or name in ("__MACOSX", "__pycache__")


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write a file atomically: a reader, or a crash, sees either the old or the new content.

    Args:
        path: The file.
        content: Its bytes or text.
    """
    # Bytes of a file's name that are not UTF-8 are written out; in JSON that is their own notation.
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    with replacing(path) as file:
        file.write(data)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file to write in parts that takes the place of another when all is written, and never before."""
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        name = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        with open(name, "xb", opener=not_through_a_link) as file:
            temporary = name
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise cannot_write(path, error) from error
        raise


def cache_folder() -> Path | None:
    """Return where what can be made again is kept: `$XDG_CACHE_HOME/shiftproof`, or the like of this system."""
    given = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    try:
        return (Path(given) if given else Path.home() / ".cache") / "shiftproof"
    except RuntimeError:  # there is no home
        return None


def not_through_a_link(path: str, flags: int) -> int:
    """Open a file to write as `open(..., opener=)` wants it: a link in its place, which may lead anywhere, is refused.

    Links come with folders that others made. The file's permissions are as the user's umask says.
    """
    if os.path.islink(path):  # noqa: PTH114
        raise OSError(errno.ELOOP, "it is a link, and nothing is written through links", str(path))
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def expand(path: str | Path) -> Path:
    """Return a path with `~` as the user's home; where there is no such home, as it is."""
    try:
        return Path(path).expanduser()
    except (RuntimeError, ValueError):  # nobody of that name, or a name that nobody can have
        return Path(path)


def is_file(path: str | Path) -> bool:
    """Whether a regular file is there; a name that no file can have is none, where `Path.is_file` would raise."""
    return os.path.isfile(path)  # noqa: PTH113


def is_writable(folder: Path) -> bool:
    """Whether files can be made in a folder; not in a run of somebody else's, or on a read-only disk."""
    return os.access(folder, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def read_json(path: Path) -> Any:
    """Return what a user's JSON file holds; raise OSError or ValueError, and nothing else, where there is none."""
    if path.exists() and not is_file(path):
        raise OSError("it is not a regular file")
    try:
        return json.loads(path.read_text("utf-8-sig"))
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def cannot_write(path: Path, error: Exception) -> RunError:
    """Return the error for a file that could not be written."""
    return RunError(
        f"Cannot write {str(path)!r}.",
        reason=str(error),
        fix="free some space or choose another folder; what was computed is kept, and the same "
        "command resumes from there",
    )
