"""One driver per run directory: an advisory lock that the operating system releases when its owner dies.

The lock is on an open file, not a number in it: a process that is killed, or a machine that restarts, leaves none
behind, and a process that happens to get the number of a dead one does not hold it. Worker processes do not inherit it.
"""

from __future__ import annotations

import errno
import os
import platform
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO

from shiftproof.errors import RunError
from shiftproof.runs.files import not_through_a_link

FILE = "run.lock"
WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
"""What network file systems without locks answer."""


class Lock:
    """The lock of a run directory, held from construction to `release`."""

    def __init__(self, folder: Path) -> None:
        self._file: IO[str] | None = None
        path = folder / FILE
        with ExitStack() as stack:
            try:
                file = stack.enter_context(open(path, "a+", opener=not_through_a_link))
                taken = _take(file)
            except OSError as error:
                raise _unusable(folder, error) from error
            stack.pop_all()
        if not taken:
            file.seek(0)
            owner = file.read().strip()
            file.close()
            raise RunError(
                f"Another process is working in {str(folder)!r}.",
                got=f"a lock held by {owner or 'another process'}",
                fix="wait for it to end, stop it, or choose another folder",
            )
        with suppress(OSError):  # a full disk; who holds it is for the other's message only
            os.truncate(file.fileno(), 0)
            os.write(file.fileno(), f"process {os.getpid()} on {platform.node()}".encode())
        self._file = file

    def release(self) -> None:
        """Let another driver in."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _unusable(folder: Path, error: OSError) -> RunError:
    if error.errno in WITHOUT_LOCKS:
        return RunError(
            f"The file system of the run directory {str(folder)!r} has no locks.",
            reason=str(error),
            fix="choose a folder on a disk of this machine",
        )
    return RunError(
        f"Cannot write in the run directory {str(folder)!r}.",
        reason=str(error),
        fix="free some space, or choose another folder",
    )


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
        except BlockingIOError:
            return False
        return True
