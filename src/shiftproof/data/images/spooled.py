"""Decoded pixels in a temporary file: what an audit holds in memory does not grow with the number of its images.

The file has no name and is gone with the process. It is read, not mapped: mapped pages would count as memory in use.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from shiftproof.data.images.source import HeldSource, ImageSource, Pixels

MOST_BYTES = 2**34
"""What a file may take; no more than half of the free disk in any case."""


def fits_on_disk(size: int) -> bool:
    """Whether so many bytes may be written to the folder of temporary files."""
    try:
        return size <= min(MOST_BYTES, shutil.disk_usage(tempfile.gettempdir()).free // 2)
    except OSError:
        return False


class SpooledSource(ImageSource):
    """Pixels [N, C, H, W], uint8 or float32 in [0, 1], that some other source decoded, in a file; `add` writes them."""

    def __init__(self, shape: tuple[int, int, int], value_bytes: int, decoding: str) -> None:
        self.shape, self.value_bytes, self.decoding = shape, value_bytes, decoding
        self._each = math.prod(shape) * value_bytes
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  (closed with the source)
        weakref.finalize(self, self._file.close)
        self._lock = threading.Lock()
        self._contents = torch.empty(0, dtype=torch.int64)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, images: Tensor) -> None:
        """Write images after those that are there."""
        written = memoryview(images.contiguous().numpy().data).cast("B")
        while len(written):  # a system may write less than it is given
            written = written[self._file.write(written) :]
        self._count += len(images)

    def ended(self, contents: Tensor) -> SpooledSource:
        """Return the source with the digests of where its pixels come from, [N]."""
        self._contents = contents
        return self

    def read(self, rows: Sequence[int]) -> Pixels:
        """Read rows, those that follow each other at once."""
        dtype = np.dtype(np.uint8 if self.value_bytes == 1 else np.float32)
        images = np.empty((len(rows), *self.shape), dtype)
        into = memoryview(images.data).cast("B") if len(rows) else memoryview(b"")
        first = 0
        while first < len(rows):
            last = first + 1
            while last < len(rows) and rows[last] == rows[last - 1] + 1:
                last += 1
            self._fill(into[first * self._each : last * self._each], rows[first] * self._each)
            first = last
        return Pixels(torch.from_numpy(images), list(range(len(rows))), [])

    def _fill(self, into: memoryview, start: int) -> None:
        while len(into):
            if hasattr(os, "preadv"):  # without a place in the file, which processes would share
                got = os.preadv(self._file.fileno(), [into], start)
            else:
                with self._lock:
                    self._file.seek(start)
                    got = self._file.readinto(into)
            if not got:
                raise EOFError("the temporary file of decoded images is shorter than it was")
            into, start = into[got:], start + got

    def make_contents(self) -> Tensor:
        """Return the digests of where the pixels come from."""
        return self._contents

    def __reduce__(self) -> tuple[object, ...]:
        """Send the pixels themselves: another process does not have the file."""
        return HeldSource, (self.read(range(len(self))).images, self._contents, self.decoding)
