"""How long a task may take: one that hangs is ended, told of, and costs the others nothing."""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from shiftproof.errors import ConfigurationError

TICKS = 20
"""A limit is counted in so many parts, so that a process that is stopped for a while loses one of them at most."""
GRACE = 1.5
"""A worker process in which nothing answers ends after this many times the limit."""


class TimedOut(BaseException):
    """A task ran longer than it may; not an `Exception`, which the code of a model might catch."""


def check_timeout(seconds: float | None) -> None:
    """Refuse a limit that is none."""
    if seconds is not None and not seconds > 0:
        raise ConfigurationError("The time-out of a task must be positive.", expected="seconds", got=f"{seconds:g}")


@contextmanager
def time_limit(seconds: float | None, *, fatal: bool = False) -> Iterator[None]:
    """Raise `TimedOut` in what runs inside after so many seconds; None is no limit.

    It is raised between two steps of Python, and where Python waits for a lock, a file or the network. Code in C that
    does not come back cannot be interrupted: with `fatal`, for worker processes, it ends the process. Threads other
    than the main one, and systems without timers, have the fatal limit alone.
    """
    if seconds is None:
        yield
        return
    left = TICKS

    def tick(number: int, frame: FrameType | None) -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise TimedOut(f"It ran longer than {seconds:g} s, the time-out of a task.")

    alarmed = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123
        try:
            if fatal:
                faulthandler.dump_traceback_later(GRACE * seconds, exit=True, file=nowhere)
            if alarmed:
                before = signal.signal(signal.SIGALRM, tick)
                signal.setitimer(signal.ITIMER_REAL, seconds / TICKS, seconds / TICKS)
            yield
        finally:
            if alarmed:
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, before)
            if fatal:
                faulthandler.cancel_dump_traceback_later()
