"""Every stream by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shiftproof.data import Dataset
from shiftproof.registry import resolve
from shiftproof.streams.stream import Stream

STREAMS: Mapping[str, str] = {
    "ccc": "shiftproof.streams.ccc.continuous:Ccc",
    "concatenated": "shiftproof.streams.orders:Concatenated",
    "mixed": "shiftproof.streams.orders:Mixed",
    "correlated": "shiftproof.streams.orders:Correlated",
    "gradual": "shiftproof.streams.orders:Gradual",
}
"""Name -> lazy target."""


def make_stream(kind: str, data: Dataset, **options: Any) -> Stream:
    """Return a stream by name; options that are None are left to the stream."""
    made: Stream = resolve(STREAMS, kind, "stream")(
        data, **{name: value for name, value in options.items() if value is not None}
    )
    return made
