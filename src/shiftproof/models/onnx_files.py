"""The files an ONNX model is made of: the graph, and those its tensors name as their external data.

The graph is a protocol buffer: fields of a number, a kind and a value. Only those on the way to tensors are followed,
by the field numbers of onnx.proto; the bytes of weights are stepped over.
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterator
from pathlib import Path

_INSIDE: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "graph": {1: "node", 5: "tensor", 15: "sparse tensor"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse tensor", 23: "sparse tensor"},
    "sparse tensor": {1: "tensor", 2: "tensor"},
    "tensor": {13: "entry"},
    "entry": {1: "key", 2: "value"},
}
"""Message -> the messages inside it, by field number."""


def digest_files(path: Path) -> str:
    """Return a digest of an ONNX file and of the files of its external data."""
    blake = hashlib.blake2b(digest_size=16)
    for part in (path, *(path.parent / name for name in external_files(path))):
        with part.open("rb") as file:
            blake.update(hashlib.file_digest(file, "blake2b").digest())
    return blake.hexdigest()


def external_files(path: Path) -> list[str]:
    """Return the locations of external data that an ONNX file names, sorted."""
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as held,
        memoryview(held) as data,
    ):
        try:
            return sorted(set(_locations(data, "model", 0, len(data))))
        except (IndexError, UnicodeDecodeError) as error:
            raise ValueError(f"{path.name} is cut short or is no ONNX file") from error


def _locations(data: memoryview, message: str, start: int, stop: int) -> Iterator[str]:
    inside = _INSIDE[message]
    for number, low, high in _fields(data, start, stop):
        kind = inside.get(number)
        if kind == "entry":
            entry = {_INSIDE[kind].get(field): bytes(data[a:b]) for field, a, b in _fields(data, low, high)}
            if entry.get("key") == b"location":
                yield entry.get("value", b"").decode()
        elif kind is not None:
            yield from _locations(data, kind, low, high)


def _fields(data: memoryview, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Yield the fields of bytes that have a length: number, and where the value starts and stops."""
    place = start
    while place < stop:
        tag, place = _varint(data, place)
        match tag & 7:
            case 0:
                _, place = _varint(data, place)
            case 1:
                place += 8
            case 2:
                length, place = _varint(data, place)
                if place + length > stop:
                    raise IndexError(place)
                yield tag >> 3, place, place + length
                place += length
            case 5:
                place += 4
            case _:
                raise IndexError(place)


def _varint(data: memoryview, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place
