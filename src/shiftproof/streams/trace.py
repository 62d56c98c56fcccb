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
    """Per batch: its images, the right answers and the seconds; and the shifts with how many images came under each.

    `updates` counts how often a model that adapts learnt from a batch, `resets` how often it went back to its start.
    Where answers were kept, `predicted` are the classes of all images, with their `confidences`.

    Args:
        images: Images in each batch.
        right: Right answers in each batch.
        seconds: Time that each batch took.
        shifts: Each shift in turn, with the number of images under it.
        start: The position in the stream of the first image.
        resets: How often the model went back to its start.
        updates: How often it learnt from a batch.
        predicted: The classes of all images, where they were kept.
        confidences: The confidence of each of these answers.
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
        """Return the trace whose parts were stored as rows, in order."""
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
        """The share of right answers over the whole trace; of label maps, the mean of each image's own mIoU."""
        return sum(self.right) / sum(self.images)

    @property
    def seconds_per_batch(self) -> float:
        """The median time of a batch."""
        return sorted(self.seconds)[len(self.seconds) // 2]

    def rolling(self, window: int = WINDOW) -> tuple[list[int], list[float]]:
        """Return where batches end in the stream, and the accuracy over the last `window` images up to there."""
        ends, accuracy = rolling_accuracy(self.right, self.images, window)
        return [self.start + int(end) for end in ends], accuracy.tolist()

    def area(self, source: Trace) -> float:
        """Return the mean difference in accuracy to the source model's trace on the same stream."""
        return area_against(self.right, self._same(source).right, self.images)

    def collapse(self, source: Trace, window: int = WINDOW) -> int | None:
        """Return after how many images this model fell below the source model for good; None where it did not."""
        return collapse(self.right, self._same(source).right, self.images, window=window)

    def to_row(self) -> dict[str, Json]:
        """Return its numbers."""
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
