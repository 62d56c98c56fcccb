"""The trace of a model along a stream: right answers and time, batch by batch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

from shiftproof.errors import ConfigurationError
from shiftproof.measures.windows import WINDOW, area_against, collapse, rolling_accuracy
from shiftproof.runs import Json, Row


@dataclass(frozen=True)
class Trace:
    """The trace of a model along a stream: images, correct predictions and seconds per batch, and the shifts.

    `updates` counts how often a model that adapts learnt from a batch, `resets` how often it went back to its start.
    Where answers were kept, `predicted` are the classes of all images, with their `confidences`.

    Args:
        images: Images in each batch.
        right: Correct predictions in each batch.
        seconds: Seconds per batch.
        shifts: Each shift in order, with the number of images under it.
        start: Position of the first image in the stream.
        resets: Number of resets of an adaptive model.
        updates: Number of updates of an adaptive model.
        predicted: Predicted classes of all images, if they were kept.
        confidences: Confidence of each of these predictions.
    """

    images: tuple[int, ...]
    right: tuple[float, ...]
    seconds: tuple[float, ...]
    shifts: tuple[tuple[str, int], ...]
    start: int = 0
    resets: int = 0
    updates: int = 0
    predicted: tuple[int, ...] = ()
    confidences: tuple[float, ...] = ()

    @classmethod
    def join(cls, rows: Iterable[Row]) -> Trace:
        """Join parts of a trace that were stored as rows, in order."""
        images: list[int] = []
        right: list[float] = []
        seconds: list[float] = []
        shifts: list[tuple[str, int]] = []
        predicted: list[int] = []
        confidences: list[float] = []
        start = resets = updates = 0
        for number, row in enumerate(rows):
            start = cast(int, row["start"]) if number == 0 else start
            resets, updates = cast(int, row["resets"]), cast(int, row.get("updates", 0))
            images += cast("list[int]", row["images"])
            predicted += cast("list[int]", row.get("predicted", []))
            confidences += cast("list[float]", row.get("confidences", []))
            right += cast("list[float]", row["right"])
            seconds += [1e-3 * time for time in cast("list[float]", row["milliseconds"])]
            for label, count in cast("list[tuple[str, int]]", row["shifts"]):
                if shifts and shifts[-1][0] == label:
                    shifts[-1] = label, shifts[-1][1] + count
                else:
                    shifts.append((label, count))
        kept = tuple(predicted), tuple(confidences)
        return cls(tuple(images), tuple(right), tuple(seconds), tuple(shifts), start, resets, updates, *kept)

    @property
    def accuracy(self) -> float:
        """Accuracy over the whole trace; for label maps, the mean over images of each image's mIoU."""
        return sum(self.right) / sum(self.images)

    @property
    def seconds_per_batch(self) -> float:
        """The median time of a batch."""
        return sorted(self.seconds)[len(self.seconds) // 2]

    def rolling(self, window: int = WINDOW) -> tuple[list[int], list[float]]:
        """Return the end position of each batch, and the accuracy over the last `window` images up to it."""
        ends, accuracy = rolling_accuracy(self.right, self.images, window)
        return [self.start + int(end) for end in ends], accuracy.tolist()

    def area(self, source: Trace) -> float:
        """Return the mean difference in accuracy from the source model's trace on the same stream."""
        return area_against(self.right, self._same(source).right, self.images)

    def collapse(self, source: Trace, window: int = WINDOW) -> int | None:
        """Return the number of images after which the model stayed below the source model; None if it never did."""
        return collapse(self.right, self._same(source).right, self.images, window=window)

    def to_row(self) -> dict[str, Json]:
        """Return its numbers as JSON-compatible values."""
        return {
            "images": sum(self.images),
            "right": sum(self.right),
            "accuracy": self.accuracy,
            "seconds_per_batch": self.seconds_per_batch,
        }

    def _same(self, source: Trace) -> Trace:
        if (source.start, source.images) != (self.start, self.images):
            raise ConfigurationError(
                "These traces are not of the same stream.",
                expected=f"{len(self.images)} batches from position {self.start}",
                got=f"{len(source.images)} batches from position {source.start}",
            )
        return source
