"""The streams that safe adaptation is measured along: CCC, recurring, correlated, mixed, small batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from shiftproof.streams import Stream, StreamCalibration, calibrate, make_stream

LENGTH = 100_000
Images = NDArray[np.uint8]
Classes = NDArray[np.uint16]


@dataclass(frozen=True)
class Shape:
    """A stream: its kind, its options, its seed, and the size of batches."""

    name: str
    kind: str
    seed: int
    batch: int = 64
    length: int = LENGTH
    target: str | None = None
    speed: int | None = None
    concentration: float | None = None

    def calibration(self, out: Path) -> Path:
        """Return where the paths of its schedule are."""
        return out / "calibration" / f"{self.name}.json"

    def calibrate(self, model: str, data: str, out: Path, **options: Any) -> str:
        """Find the paths of a CCC stream for a model; return what was found."""
        made = calibrate(
            model,
            data,
            target=self.target or "easy",
            speed=self.speed or 1000,
            seed=self.seed,
            out=out / "calibration" / f"measured-{self.name}",
            **options,
        )
        made.save(self.calibration(out))
        return f"{self.name}: target {made.target:.1%}, {', '.join(made.noises)}"

    def make(self, data: Any, out: Path, shifts: Sequence[str] | None, device: str, images: int | None) -> Stream:
        """Return the stream, or its beginning."""
        length = min(self.length, images or self.length)
        options: dict[str, Any] = {"length": length, "seed": self.seed, "batch_size": self.batch, "device": device}
        if self.kind == "ccc":
            return make_stream("ccc", data, calibration=StreamCalibration.load(self.calibration(out)), **options)
        options |= {"speed": self.speed, "concentration": self.concentration, "shifts": shifts}
        return make_stream(self.kind, data, **options)


def shapes() -> Iterator[Shape]:
    """Yield all streams: 15, each at two rates and for every model."""
    for target in ("easy", "medium", "hard"):
        for speed, seed in ((1000, 43), (2000, 44), (5000, 45)):
            yield Shape(f"ccc-{target}-{speed}-{seed}", "ccc", seed, target=target, speed=speed)
    # Rounds of all corruptions, each in an order of its own: every one comes several times.
    yield Shape("recurring", "concatenated", 0, speed=1280)
    for share in (0.1, 1.0):
        yield Shape(f"correlated-{share:g}", "correlated", 0, concentration=share)
    yield Shape("mixed", "mixed", 0)
    for batch, length in ((1, 5_000), (16, 40_000)):
        yield Shape(f"batch-{batch}", "concatenated", 0, batch, length)


def held(stream: Stream) -> tuple[Images, Classes]:
    """Return all images of a stream as bytes, and their labels: the 256 levels are all there is."""
    images, labels = [], []
    for batch in stream:
        images.append((batch.inputs * 255).round().to(torch.uint8).cpu().numpy())
        if batch.labels is not None:
            labels.append(batch.labels.cpu().numpy().astype(np.uint16))
    return np.concatenate(images), np.concatenate(labels)
