"""One driver per run directory: an advisory lock that the operating system releases when its owner dies."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import IO

from shiftproof.errors import RunError

FILE = "run.lock"


class Lock:
    """The lock of a run directory, held from construction to `release`."""

    def __init__(self, folder: Path) -> None:
        self._file: IO[str] | None = None
        path = folder / FILE
        try:
            file = path.open("a+")
        except OSError as error:
            raise RunError(f"Cannot write in the run directory {str(folder)!r}.", reason=str(error)) from error
        if not _take(file):
            file.seek(0)
            owner = file.read().strip()
            file.close()
            raise RunError(
                f"Another process is working in {str(folder)!r}.",
                came=f"a lock held by process {owner}" if owner else "a lock held by another process",
                instead="wait for it to end, stop it, or choose another folder with --out",
            )
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        self._file = file

    def release(self) -> None:
        """Let another driver in."""
        if self._file is not None:
            self._file.close()
            self._file = None


if sys.platform == "win32":

    def _take(file: IO[str]) -> bool:
        import msvcrt

        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:

    def _take(file: IO[str]) -> bool:
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True
