"""Files of more than 8 bits, written by hand where Pillow cannot."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray


def png16(values: NDArray[np.uint16]) -> bytes:
    """Return a PNG of 16 bits, of values [H, W, C] with C = 1 to 4: grey, grey and alpha, RGB, RGBA."""
    height, width, channels = values.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    head = struct.pack(">IIBBBBB", width, height, 16, {1: 0, 2: 4, 3: 2, 4: 6}[channels], 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    chunks = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def tiff16(values: NDArray[np.uint16]) -> bytes:
    """Return a TIFF of 16 bits, of colours [H, W, 3]."""
    height, width, _ = values.shape
    data = values.astype("<u2").tobytes()
    tags = [(256, width), (257, height), (258, None), (259, 1), (262, 2), (273, None), (277, 3), (278, height)]
    tags.append((279, len(data)))
    behind = 8 + 2 + 12 * len(tags) + 4
    entries = b""
    for tag, value in tags:
        kind, count = (3, 3) if tag == 258 else (4, 1)
        place = {258: behind, 273: behind + 6}.get(tag, value)
        entries += struct.pack("<HHII", tag, kind, count, place)
    head = b"II*\0" + struct.pack("<IH", 8, len(tags))
    return head + entries + struct.pack("<I", 0) + struct.pack("<HHH", 16, 16, 16) + data
