"""The worker of a calibration: how many images a model gets right under a shift."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, cast

import torch

from shiftproof.data import ImageSet, as_images
from shiftproof.errors import DataError
from shiftproof.keyed import Keyed, key_of
from shiftproof.models import BatchFitter, logits
from shiftproof.runs import Json, Row, Task
from shiftproof.shifts import Shift
from shiftproof.shifts.augment.framing import FlipCrop
from shiftproof.streams.ccc.balancing import balanced_order
from shiftproof.streams.ccc.continuous import default_crop
from shiftproof.streams.pool import HELD_BYTES, Pool
from shiftproof.streams.stream import images_at_a_time
from shiftproof.subjects import Subject


@dataclass(frozen=True)
class Condition:
    """What images are measured under: a shift, or none; the label decides which images are drawn, and in what order."""

    label: str
    shift: Shift | None = None
    cropped: bool = True

    @classmethod
    def of(cls, shift: Shift) -> Condition:
        """Return the condition of a shift."""
        return cls(shift.label, shift)


WHOLE = Condition("whole", cropped=False)
"""Images as they are."""
CLEAN = Condition("clean")
"""Images cropped and mirrored, under no shift."""

LEAST = 32
"""Images in a batch, at least: a model's own work fills a device with few of them."""


@dataclass(frozen=True)
class Probe:
    """Measures shifts on images drawn for each of them; it can be sent to worker processes, which load their own.

    Every shift has its own order of the images, classes in their shares: errors by the luck of the draw are then
    independent from shift to shift, and a fit over many shifts evens them out. As in a stream, images are cropped and
    mirrored. Of a set that does not fit in memory, as many images as do are used.
    """

    subject: Subject
    crop: float | None

    def __call__(self) -> Probe:
        """Be the worker."""
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Leave behind what was loaded."""
        return {name: value for name, value in self.__dict__.items() if name not in ("whole", "pool", "fit")}

    @cached_property
    def whole(self) -> ImageSet:
        """All images, in an order that the names of files do not decide."""
        if self.subject.loaded_data.labels is None:
            raise DataError(
                "A calibration measures accuracy, and the images have no labels.",
                expected="a folder with one sub-folder per class, a CSV of labels, or an .npz with labels",
            )
        return as_images(self.subject.labelled_data.take())

    @property
    def area(self) -> float:
        """The least area of a crop."""
        return default_crop(self.whole) if self.crop is None else self.crop

    @cached_property
    def pool(self) -> Pool:
        """The images that shifts are measured on."""
        device = torch.device(self.subject.device)
        each = prod(self.whole.shape) * self.whole.source.value_bytes
        return Pool(self.whole.take(max(1, HELD_BYTES.get(device.type, 0) // each), seed=self.subject.seed), device)

    @cached_property
    def fit(self) -> BatchFitter:
        """What keeps batches within memory."""
        return BatchFitter(max(LEAST, images_at_a_time(self.whole.shape, self.pool.device)))

    def measure(self, task: ConditionCount) -> Row:
        """Count the right answers of a task."""
        return task.measure(self)

    def count(self, condition: Condition, start: int, stop: int, size: int) -> Row:
        """Count the right answers under a condition, to the images from `start` to `stop` in its own order."""
        labels, seed = cast(torch.Tensor, self.pool.data.labels), self.subject.seed
        chosen = balanced_order(Keyed(seed, [key_of(condition.label)]).fork("calibration"), labels)[start:stop]
        right = classes = 0
        for low in range(0, len(chosen), size):
            rows = chosen[low : low + size]
            images, named = self.pool.read(rows)
            if condition.cropped:
                images = FlipCrop(smallest=self.area)(images, named, seed=seed)
            if condition.shift is not None:
                images = condition.shift(images, named, seed=seed)
            answers = logits(self.subject.fast_model, images)
            right, classes = right + int((answers.argmax(1) == labels[rows]).sum()), answers.shape[1]
        return {"right": right, "classes": classes}


@dataclass(frozen=True)
class ConditionCount(Task[Probe]):
    """Images under a condition."""

    kind = "calibration"
    condition: Condition
    start: int
    stop: int

    def measure(self, subject: Probe) -> Row:
        """Count the right answers."""
        return subject.fit(lambda size: subject.count(self.condition, self.start, self.stop, size))

    def parameters(self) -> dict[str, Json]:
        """Return the fields, the condition by its label."""
        return {"shift": self.condition.label, "start": self.start, "stop": self.stop}
