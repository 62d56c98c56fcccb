"""Every stream by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shiftproof.data import DataLike, Dataset, load_images
from shiftproof.errors import ConfigurationError
from shiftproof.models import choose_device
from shiftproof.registry import resolve
from shiftproof.streams.ccc.stream_calibration import StreamCalibration
from shiftproof.streams.stream import Stream

STREAMS: Mapping[str, str] = {
    "ccc": "shiftproof.streams.ccc.continuous:Ccc",
    "concatenated": "shiftproof.streams.orders:Concatenated",
    "mixed": "shiftproof.streams.orders:Mixed",
    "correlated": "shiftproof.streams.orders:Correlated",
    "gradual": "shiftproof.streams.orders:Gradual",
}
"""Name -> lazy target."""


def as_stream(
    stream: str | Stream,
    data: DataLike = "demo",
    *,
    images: int | None = None,
    speed: int | None = None,
    shifts: Sequence[str] | None = None,
    calibration: str | Path | None = None,
    seed: int | None = None,
    device: str = "cpu",
) -> Stream:
    """Return a stream: one already made as it is, or that of a name over some data, as far as is said."""
    if isinstance(stream, Stream):
        return stream
    if calibration is not None and stream != "ccc":
        raise ConfigurationError("Only a ccc stream has a calibration.", expected="the stream ccc", got=stream)
    options: dict[str, Any] = {"length": images, "shifts": shifts, "seed": seed}
    if stream != "mixed" or speed is not None:
        options["speed"] = speed
    if calibration is not None:
        options["calibration"] = StreamCalibration.load(calibration)
    return make_stream(stream, load_images(data), device=choose_device(device), **options)


def make_stream(kind: str, data: Dataset, **options: Any) -> Stream:
    """Return a stream by name; options that are None are left to the stream."""
    made: Stream = resolve(STREAMS, kind, "stream")(
        data, **{name: value for name, value in options.items() if value is not None}
    )
    return made
