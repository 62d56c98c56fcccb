"""A look at a stream: images at evenly spread positions, as a picture or a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from shiftproof.data import DataLike
from shiftproof.errors import ConfigurationError
from shiftproof.exports.previews import Row, Sheet, to_html, to_png
from shiftproof.runs import write_atomically
from shiftproof.runs.files import expand
from shiftproof.shifts.levels import to_bytes
from shiftproof.streams.making import as_stream
from shiftproof.streams.stream import Stream


def preview_stream(
    stream: str | Stream = "ccc",
    data: DataLike = "demo",
    *,
    out: str | Path = "stream.png",
    rows: int = 12,
    columns: int = 6,
    speed: int | None = None,
    shifts: Sequence[str] | None = None,
    calibration: str | Path | None = None,
    images: int | None = None,
    seed: int | None = None,
) -> Path:
    """Show images at evenly spaced positions of a stream, as a PNG or an HTML page.

    Args:
        stream: ccc, concatenated, mixed, correlated, recurring, gradual, folders:day,night or suite:CIFAR-10-C; in
            Python also a `Stream`, which determines all options from `data` to `seed`.
        data: Anything `load_data` accepts.
        images: Length of the stream. Default: the stream's own.
        speed: Images per step of severity. Default: the stream's own.
        shifts: Shifts or families; holdout is for choosing hyper-parameters.
        calibration: With ccc, a file or folder that `calibrate` wrote. Default: severities change along a straight
            line.
        seed: Seed of every random draw. Default: the stream's own.
        out: Output file, .png or .html.
        rows: Positions to show.
        columns: Consecutive images at each position.

    >>> preview_stream("mixed", shifts=["fog"], images=12, rows=2, columns=2, out=folder / "stream.png").name
    'stream.png'
    """
    stream = as_stream(stream, data, images=images, speed=speed, shifts=shifts, calibration=calibration, seed=seed)
    path = expand(out)
    if path.suffix.lower() not in (".png", ".html"):
        raise ConfigurationError(
            "Unsupported output format for a preview.", expected="a name that ends in .png or .html", got=str(out)
        )
    if rows < 1 or columns < 1:
        raise ConfigurationError("rows and columns must be positive.", got=f"{rows} rows, {columns} columns")
    width = min(columns, len(stream))
    last = len(stream) - width
    starts = dict.fromkeys(round(last * row / max(1, rows - 1)) for row in range(rows))
    found = []
    for start in starts:
        batch = stream.read(start, start + width)
        pictures = to_bytes(batch.inputs).cpu().expand(-1, 3, -1, -1).permute(0, 2, 3, 1).contiguous().numpy()
        found.append(Row(f"{start:,}  {batch.shift}", "position and shift", tuple(pictures)))
    note = f"{stream.data.name}, {len(stream):,} images, seed {stream.seed}"
    sheet = Sheet(f"Stream: {stream.kind}", note, tuple(f"+{column}" for column in range(width)), tuple(found))
    write_atomically(path, to_png(sheet) if path.suffix.lower() == ".png" else to_html(sheet))
    return path
