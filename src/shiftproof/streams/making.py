"""Every stream by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shiftproof.data import DataLike, Dataset, DataSpec, load_images
from shiftproof.data.loading import is_joined
from shiftproof.errors import ConfigurationError
from shiftproof.models import choose_device
from shiftproof.registry import resolve, unknown
from shiftproof.streams.ccc.stream_calibration import StreamCalibration
from shiftproof.streams.stream import Stream

STREAMS: Mapping[str, str] = {
    "ccc": "shiftproof.streams.ccc.continuous:Ccc",
    "concatenated": "shiftproof.streams.orders:Concatenated",
    "mixed": "shiftproof.streams.orders:Mixed",
    "correlated": "shiftproof.streams.orders:Correlated",
    "recurring": "shiftproof.streams.orders:Recurring",
    "gradual": "shiftproof.streams.orders:Gradual",
}
"""Name -> lazy target."""
DOMAINS: Mapping[str, str] = {"domains": "shiftproof.streams.domains:Domains"}
"""What the texts `folders:...` and `suite:...` stand for."""


def read_stream(stream: str, data: DataLike) -> tuple[str, DataLike]:
    """Return the kind of a stream and its data: `folders:a,b` and `suite:CIFAR-10-C` are data themselves."""
    if not is_joined(stream):
        if stream not in STREAMS:
            raise unknown("stream", stream, [*STREAMS, "folders:day,night", "suite:CIFAR-10-C"])
        return stream, data
    spec = data if isinstance(data, DataSpec) else DataSpec(data)
    if not (isinstance(spec.given, str) and spec.given == "demo"):
        raise ConfigurationError(
            "data= cannot be combined with a stream of folders or a suite.",
            expected="no data=",
            got=f"{stream} and {spec.given}",
        )
    return "domains", DataSpec(stream, **spec.options)


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
    kind, data = read_stream(stream, data)
    options: dict[str, Any] = {"length": images, "shifts": shifts, "seed": seed, "speed": speed}
    check_options(kind, shifts=shifts, speed=speed)
    if calibration is not None:
        options["calibration"] = StreamCalibration.load(calibration)
    return make_stream(kind, load_images(data), device=choose_device(device), **options)


def check_options(kind: str, *, shifts: Sequence[str] | None, speed: int | None) -> None:
    """Refuse options that a kind of stream does not have."""
    if kind in ("mixed", "domains") and speed is not None:
        raise ConfigurationError(
            f"speed= cannot be used with a {_WORDS[kind]}.", expected="no speed", got=f"speed {speed}"
        )
    if kind == "domains" and shifts is not None:
        raise ConfigurationError(
            "shifts= cannot be used with a stream of folders or a suite.", expected="no shifts", got=", ".join(shifts)
        )


def severities_of(kind: str, severity: float | None) -> dict[str, float | tuple[float, ...] | None]:
    """Return one severity for all corruptions as a kind of stream takes it; refuse it where severities change."""
    if severity is not None and kind in ("ccc", "gradual", "domains"):
        raise ConfigurationError(
            "severity= cannot be used with this stream.", expected="no severity", got=f"severity {severity:g}"
        )
    if kind == "mixed":
        return {"severities": None if severity is None else (severity,)}
    return {} if severity is None else {"severity": severity}


_WORDS = {"mixed": "mixed stream", "domains": "stream of folders"}


def make_stream(kind: str, data: Dataset, **options: Any) -> Stream:
    """Make a stream by name; options that are None keep the stream's defaults.

    Args:
        kind: One of `streams.STREAMS`.
        data: The set of images.
        options: Options of that stream; those that are None keep their defaults.

    >>> from shiftproof import load_data
    >>> len(make_stream("mixed", load_data("demo"), shifts=["fog"], length=100))
    100
    """
    made: Stream = resolve({**STREAMS, **DOMAINS}, kind, "stream")(
        data, **{name: value for name, value in options.items() if value is not None}
    )
    return made
