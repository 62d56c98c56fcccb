"""Files that are whole or absent: written to a temporary name in the same folder, synced, and renamed."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from shiftproof.errors import RunError


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write a file so that a reader, or a crash, sees the old content or the new one and nothing between."""
    data = content.encode() if isinstance(content, str) else content
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            temporary = Path(file.name)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise cannot_write(path, error) from error


def cannot_write(path: Path, error: Exception) -> RunError:
    """Return the error for a file that could not be written."""
    return RunError(
        f"Cannot write {str(path)!r}.",
        reason=str(error),
        instead="free some space or choose another folder with --out; what was computed is kept, and the same "
        "command goes on from there",
    )
