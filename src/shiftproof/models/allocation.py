"""Memory that a CPU's networks take again and again."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from functools import cache

TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3
"""What glibc's mallopt calls them: free bytes it keeps, bytes it takes in advance, bytes above which it keeps none."""
KEPT_BYTES, AHEAD_BYTES = 2**30, 2**26
MOST_BEFORE = 2**25
"""The highest MMAP_THRESHOLD that older versions take."""


@cache
def keep_freed_memory() -> None:
    """Let the C library keep the memory that is freed: it returns large blocks, and has them mapped and cleared anew.

    Every layer makes tensors of megabytes, of tens where images are large. At most 1 GiB that is not in use
    stays with the process. Where the C library is not glibc nothing changes.
    """
    with suppress(AttributeError, OSError, TypeError):  # other C libraries have no mallopt, Windows no library
        mallopt = ctypes.CDLL(None).mallopt
        if mallopt(MMAP_THRESHOLD, KEPT_BYTES) or mallopt(MMAP_THRESHOLD, MOST_BEFORE):
            mallopt(TRIM_THRESHOLD, KEPT_BYTES)
            mallopt(TOP_PAD, AHEAD_BYTES)
