"""A stream as files, for programs that cannot read it on the fly: tar shards of images with their labels and shifts."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torch import Tensor

from shiftproof.data import DataLike
from shiftproof.errors import ConfigurationError
from shiftproof.runs import Executor, OnProgress, Plan, Row, Store, Task, choose_executor, drive, write_atomically
from shiftproof.shifts.levels import to_bytes
from shiftproof.streams.making import as_stream
from shiftproof.streams.stream import Stream
from shiftproof.version import __version__

MANIFEST = "manifest.json"
QUALITY = 85

Format = Literal["png", "jpg"]


@dataclass(frozen=True)
class Shard(Task["Writer"]):
    """Positions of a stream that are one file."""

    kind = "shard"
    shard: int
    start: int
    stop: int

    def measure(self, subject: Writer) -> Row:
        """Write the shard."""
        return subject.write(self.shard, self.start, self.stop)


@dataclass(frozen=True)
class Writer:
    """Writes one shard; it can be sent to worker processes."""

    stream: Stream
    out: Path
    format: Format
    quality: int

    def __call__(self) -> Writer:
        """Be the worker."""
        return self

    def measure(self, task: Shard) -> Row:
        """Write a shard."""
        return task.measure(self)

    def write(self, number: int, start: int, stop: int) -> Row:
        """Write positions start to stop - 1 as `shard-000000.tar`."""
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            self.stream.seek(start)
            position = start
            for batch in self.stream.batches(stop):
                labels = None if batch.labels is None else batch.labels.cpu()
                for row, picture in enumerate(to_bytes(batch.inputs).cpu()):
                    name = f"{position:09d}"
                    _add(tar, f"{name}.{self.format}", _encoded(picture, self.format, self.quality))
                    if labels is not None and self.stream.task.per_pixel:
                        _add(tar, f"{name}.seg.png", _encoded(labels[row][None], "png", self.quality))
                    elif labels is not None:
                        _add(tar, f"{name}.cls", str(int(labels[row])).encode())
                    _add(tar, f"{name}.json", json.dumps({"shift": batch.shift, "key": int(batch.keys[row])}).encode())
                    position += 1
        name = shard_name(number)
        write_atomically(self.out / name, file.getvalue())
        return {"shard": name, "images": stop - start}


def write_stream(
    stream: str | Stream = "ccc",
    data: DataLike = "demo",
    *,
    out: str | Path,
    format: Format = "png",  # noqa: A002  (the option's name)
    quality: int = QUALITY,
    shard_images: int = 10_000,
    speed: int | None = None,
    shifts: Sequence[str] | None = None,
    calibration: str | Path | None = None,
    images: int | None = None,
    seed: int | None = None,
    device: str = "cpu",
    executor: str | Executor = "inline",
    on_progress: OnProgress | None = None,
) -> Path:
    """Write a stream as tar files of images, labels and shifts, with a manifest.

    Samples are in WebDataset format: `000000017.png` (or lossy `.jpg`), `.cls` with its label or `.seg.png` with its
    label map, and `.json` with its shift and key. Every executor writes the same bytes.

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
        out: Folder of the shards; the same call resumes it.
        format: png, or jpg, which is lossy.
        quality: Quality of JPEG files, 1 to 100.
        shard_images: Images per tar file.
        device: cpu, cuda, cuda:1 or auto. On the CPU, every machine draws the same random numbers.
        executor: inline, processes, processes:4, ray or ray:16. Does not affect the files.
        on_progress: Called as on_progress(done, total, result).

    >>> write_stream("mixed", shifts=["fog"], images=4, out=folder / "stream").name
    'manifest.json'
    """
    stream = as_stream(
        stream, data, images=images, speed=speed, shifts=shifts, calibration=calibration, seed=seed, device=device
    )
    if format not in ("png", "jpg"):
        raise ConfigurationError(f"Unsupported shard format {format!r}.", expected="png or jpg")
    if shard_images < 1 or not 1 <= quality <= 100:
        raise ConfigurationError(
            "Invalid shard settings.",
            expected="1 image or more, a quality of 1 to 100",
            got=f"{shard_images}, {quality}",
        )
    folder = Path(out)
    subject = {
        "version": __version__,
        "stream": stream.fingerprint,
        "shards": json.dumps([format, quality if format == "jpg" else None, shard_images]),
    }
    tasks = tuple(
        Shard(number, start, min(start + shard_images, len(stream)))
        for number, start in enumerate(range(0, len(stream), shard_images))
    )
    plan = Plan(tasks, subject)
    where = choose_executor(executor, device=str(stream.device))
    with Store(folder, subject) as store:
        writer = Writer(stream, folder, format, quality)
        results = drive(plan, store, writer, executor=where, on_progress=on_progress, essential="Writing a shard")
        content = {
            "shiftproof": __version__,
            "stream": stream.kind,
            "fingerprint": stream.fingerprint,
            "data": stream.data.name,
            "images": len(stream),
            "seed": stream.seed,
            "classes": stream.data.classes,
            **stream.describe(),
            "notes": stream.notes,
            "shards": [result.row for result in results],
        }
        write_atomically(folder / MANIFEST, json.dumps(content, indent=1) + "\n")
    return folder / MANIFEST


def shard_name(number: int) -> str:
    """Return the file name of a shard."""
    return f"shard-{number:06d}.tar"


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    """Add a file without a time or an owner, so that equal content is equal bytes."""
    about = tarfile.TarInfo(name)
    about.size = len(content)
    tar.addfile(about, io.BytesIO(content))


def _encoded(image: Tensor, file_format: Format, quality: int) -> bytes:
    """Return the content of an image file, of an image [C, H, W] of bytes."""
    from PIL import Image

    array = image.permute(1, 2, 0).contiguous().numpy()
    made = Image.fromarray(array.squeeze(2) if array.shape[2] == 1 else array)
    file = io.BytesIO()
    made.save(file, "PNG") if file_format == "png" else made.save(file, "JPEG", quality=quality)
    return file.getvalue()
