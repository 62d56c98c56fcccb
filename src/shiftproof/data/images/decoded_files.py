"""Pixels of files that were decoded before: each file is decoded once in a process, while what is kept fits."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from shiftproof.data.images.decoding import Decoder

KEPT_BYTES = 2**24
"""What is kept at most, as uint8: 5,000 images of 32 pixels a side, 110 of 224; whole sets are kept elsewhere."""
RECENT = 2.0
"""Seconds in which a file that was just written may change again without its time telling: it is not kept yet."""

Identity: TypeAlias = tuple[int, int, int, int, int, Decoder]


class DecodedFiles:
    """The last decoded files, by what tells that a file is the same, up to a number of bytes; threads may share it."""

    def __init__(self, limit: int = KEPT_BYTES) -> None:
        self.limit = limit
        self._held: OrderedDict[Identity, NDArray[np.uint8]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def __call__(self, file: str, decoder: Decoder) -> NDArray[np.uint8]:
        """Return the pixels of a file, [H, W, C], which must not be written to."""
        try:
            found = os.stat(file)  # noqa: PTH116  (for every image of every batch)
        except OSError:
            return decoder(file)  # which says what is wrong with it
        identity = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, decoder)
        with self._lock:
            held = self._held.get(identity)
            if held is not None:
                self._held.move_to_end(identity)
                return held
        image = decoder(file)
        if time.time() - max(found.st_mtime, found.st_ctime) > RECENT:
            self._keep(identity, image)
        return image

    def _keep(self, identity: Identity, image: NDArray[np.uint8]) -> None:
        with self._lock:
            if identity not in self._held:
                self._held[identity] = image
                self._bytes += image.nbytes
            while self._bytes > self.limit:
                self._bytes -= self._held.popitem(last=False)[1].nbytes


decode_file = DecodedFiles()
"""Decode a file, or return what it was decoded to before in this process."""
