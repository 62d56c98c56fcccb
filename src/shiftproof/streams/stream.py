"""What a stream is: batches of shifted images, where position k depends on (seed, k) alone.

The author of a stream writes `shifts_at`, which shift each position is under, and may write `order`, in which order a
pass goes through the images; the base class owns the outside: reading, shifting, batching, seeking, generating ahead.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from shiftproof.data import Batch, Dataset, as_images
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.keyed import Keyed
from shiftproof.models.devices import choose_device
from shiftproof.models.identity import digest
from shiftproof.prediction_tasks import PredictionTask, task_of
from shiftproof.runs import Json
from shiftproof.shifts import Shift
from shiftproof.shifts.catalogue import coded
from shiftproof.streams.ahead import ahead
from shiftproof.streams.pool import Pool

BLOCK_VALUES = {"cpu": 2**19, "cuda": 2**25}
"""So many values of images are made at a time: enough to fill a device, few enough to stay in a CPU's cache."""
MOST_AT_A_TIME = 1024


def images_at_a_time(shape: Sequence[int], device: torch.device) -> int:
    """Return how many images of a shape are worth making at one go on a device."""
    return max(1, min(BLOCK_VALUES.get(device.type, 0) // prod(shape), MOST_AT_A_TIME))


class Shifted(NamedTuple):
    """The shift of each position: `shifts[which[k]]` is that of the k-th."""

    shifts: tuple[Shift, ...]
    which: Tensor


class Stream(ABC):
    """A stream of batches of images whose shift changes over time; iteration continues from `position`.

    `len(stream)` counts images. Every pass over the data uses each image once, in a new order. Batches hold float32
    images in [0, 1], labels (None if unknown), keys and the label of their shift, all on `device`; they are generated
    on the fly.

    Args:
        data: The set of images.
        length: Number of images along the stream.
        seed: Seed of the order of images and of the shifts.
        batch_size: Images in a batch.
        device: Device of the batches.
        framing: A shift applied to every image first, such as a random crop. Default: none.
    """

    kind: ClassVar[str]
    fresh: ClassVar[bool] = False
    """Whether every visit to an image draws anew, keyed by its position, or always alike, keyed by the image."""

    def __init__(
        self,
        data: Dataset,
        *,
        length: int,
        seed: int = 0,
        batch_size: int = 64,
        device: torch.device | str = "cpu",
        framing: Shift | None = None,
    ) -> None:
        if length < 1 or batch_size < 1:
            raise ConfigurationError(
                "The length and batch size of a stream must be positive.",
                expected="a length and a batch size of 1 or more",
                got=f"{length}, {batch_size}",
            )
        if len(data) == 0:
            raise DataError("There are no images to make a stream of.")
        self.length = length
        self.seed = seed
        self.batch_size = batch_size
        self.device = torch.device(choose_device(device))
        self.framing = framing
        self.position = 0
        self.pool = Pool(as_images(data).take(), self.device)  # so that the names of files decide nothing
        self.data = self.pool.data
        self._orders = lru_cache(maxsize=4)(self.order)

    def __len__(self) -> int:
        return self.length

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_orders"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self._orders = lru_cache(maxsize=4)(self.order)

    @property
    def task(self) -> PredictionTask:
        """What the labels ask of a model."""
        return task_of(self.data)

    @property
    def class_labels(self) -> Tensor | None:
        """The class of each image, [N]; None if unknown, or for label maps."""
        return None if self.task.per_pixel else self.data.labels

    @property
    def notes(self) -> tuple[str, ...]:
        """Caveats on this stream, for reports."""
        return ()

    @property
    @abstractmethod
    def shift_names(self) -> tuple[str, ...]:
        """The shifts that occur along the stream, by name, in the order in which they first do where there is one."""

    @abstractmethod
    def shifts_at(self, positions: Tensor) -> Shifted:
        """Return the shift of each of some positions, [n] in order."""

    @abstractmethod
    def describe(self) -> dict[str, Json]:
        """Return the settings that determine the stream's content, besides its images."""

    def order(self, number: int) -> Tensor:
        """Return the order of the images in pass `number`, as row indices [N]."""
        return Keyed(self.seed, [number]).fork("order").permutation(len(self.pool))[0]

    def rows_at(self, positions: Tensor) -> Tensor:
        """Return the row indices of the images at some positions, [n] int64."""
        passes = positions // len(self.pool)
        rows = torch.empty_like(positions)
        for number in dict.fromkeys(passes.tolist()):
            here = passes == number
            rows[here] = self._orders(number)[positions[here] % len(self.pool)]
        return rows

    def read(self, start: int, stop: int) -> Batch[Tensor]:
        """Return the images at positions start to stop - 1 as one batch, independent of the current position."""
        return self._batches(start, stop, max(1, stop - start))[0]

    def _batches(self, start: int, stop: int, size: int) -> list[Batch[Tensor]]:
        """Make a run of positions at one go, and cut it into batches: one call of each shift."""
        if not 0 <= start < stop <= self.length:
            raise ConfigurationError(
                "The positions are outside the stream.", expected=f"0 to {self.length}", got=f"{start} to {stop}"
            )
        positions = torch.arange(start, stop)
        rows = self.rows_at(positions)
        found, which = self.shifts_at(positions)
        images, keys = self.pool.read(rows)
        labels = None if self.data.labels is None else self.data.labels[rows].to(self.device)
        if self.fresh:
            keys = positions.to(self.device)
        if self.framing is not None:
            images, labels = self._under(self.framing, images, labels, keys)
        present = sorted(set(which.tolist()))
        if len(present) == 1:
            images, labels = self._under(found[present[0]], images, labels, keys)
        else:
            made, moved = torch.empty_like(images), None if labels is None else torch.empty_like(labels)
            for number in present:
                here = (which == number).nonzero()[:, 0].to(self.device)
                some = None if labels is None else labels[here]
                made[here], some = self._under(found[number], images[here], some, keys[here])
                if moved is not None and some is not None:
                    moved[here] = some
            images, labels = made, moved
        return [
            Batch(
                images[low : low + size],
                None if labels is None else labels[low : low + size],
                keys[low : low + size],
                _label(found, which[low : low + size]),
            )
            for low in range(0, stop - start, size)
        ]

    def _under(self, shift: Shift, images: Tensor, labels: Tensor | None, keys: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return images under a shift, with labels as they belong to them."""
        moved = None if labels is None else self.task.moved(shift, labels, keys, self.seed)
        return shift(images, keys, seed=self.seed), moved

    def __iter__(self) -> Iterator[Batch[Tensor]]:
        for batch in self.batches():
            self.position += len(batch)
            yield batch

    def batches(self, stop: int | None = None) -> Iterator[Batch[Tensor]]:
        """Yield the batches from the position on, to `stop` if given, without moving it; CUDA makes them ahead."""
        return ahead(self._made(self.position, self.length if stop is None else stop), self.device)

    def _made(self, start: int, stop: int) -> Iterator[Batch[Tensor]]:
        room = images_at_a_time(self.data.shape, self.device)
        block = max(1, room // self.batch_size) * self.batch_size
        for low in range(start, stop, block):
            yield from self._batches(low, min(low + block, stop), self.batch_size)

    def seek(self, position: int) -> None:
        """Set the position; iteration continues from there."""
        if not 0 <= position <= self.length:
            raise ConfigurationError(
                "The position is outside the stream.", expected=f"0 to {self.length}", got=str(position)
            )
        self.position = position

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that change with the stream's content."""
        told = self.describe()
        content = [self.kind, self.seed, self.length, self.framing, told, coded(json.dumps(told))]
        return digest([*content, self.data.fingerprint])

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the stream."""
        return {"position": self.position, "fingerprint": self.fingerprint}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the position of a stream of the same content."""
        if state["fingerprint"] != self.fingerprint:
            raise DataError(
                "This state belongs to another stream.", expected=self.fingerprint, got=str(state["fingerprint"])
            )
        self.seek(int(state["position"]))


def _label(found: Sequence[Shift], which: Tensor) -> str:
    """Name what a batch is under: one shift, a change from one to the next, or many."""
    names = [found[number].label for number in dict.fromkeys(which.tolist())]
    return " | ".join(names) if len(names) <= 2 else "mixed"
