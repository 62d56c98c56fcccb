"""Tuples applied to a fixed set of images, step by step, where what shared first steps make is made once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from shiftproof.data.images.levels import divide_
from shiftproof.keyed import Keyed
from shiftproof.models.allocation import keep_freed_memory
from shiftproof.shifts import ImageShift, Operation
from shiftproof.shifts.image_shift import Shape
from shiftproof.shifts.levels import from_levels, quantize_, to_levels
from shiftproof.shifts.operations.operation import apply_

MEMORY = 2**28
"""Bytes of intermediate images that are kept by default."""


class Applier:
    """Applies chains of steps to parts of a set of images, with the 256 levels of stored images between steps.

    `images` are uint8 [N, C, H, W] on the device of the work. Results equal those of `shifts.ImageChain`, which for
    enhancement operations are Pillow's. The images after each step but the last are kept, as bytes, until `memory` runs
    out, the longest unused first to go; 0 keeps nothing.
    """

    def __init__(self, images: Tensor, keys: Tensor, *, seed: int = 0, memory: int = MEMORY) -> None:
        self.images, self.keys, self.seed, self.memory = images, keys, seed, memory
        self._kept: OrderedDict[tuple[int, int, tuple[str, ...]], Tensor] = OrderedDict()
        self._held = 0
        if images.device.type == "cpu":
            keep_freed_memory()
        self.applied = 0
        """How many steps have been applied, for what reuse saves."""

    def __reduce__(self) -> tuple[object, ...]:
        """Leave behind what is kept: another process makes its own."""
        return _applier, (self.images, self.keys, self.seed, self.memory)

    def __call__(self, steps: Sequence[ImageShift], start: int, stop: int) -> Tensor:
        """Return the images from `start` to `stop` after the steps, float32 in [0, 1]."""
        return divide_(self.levels(steps, start, stop))

    def levels(self, steps: Sequence[ImageShift], start: int, stop: int) -> Tensor:
        """Return the images from `start` to `stop` after the steps, as whole float32 numbers 0..255."""
        labels = tuple(step.label for step in steps)
        done, levels = self._begin(labels, start, stop)
        for place in range(done, len(steps)):
            levels = self._step(levels, steps[place], place, start, stop)
            if place + 1 < len(steps):
                self._keep((start, stop, labels[: place + 1]), levels)
        return levels

    def _begin(self, labels: tuple[str, ...], start: int, stop: int) -> tuple[int, Tensor]:
        """Return how many steps are done already, and what they made."""
        for count in range(len(labels) - 1, 0, -1):
            key = (start, stop, labels[:count])
            if key in self._kept:
                self._kept.move_to_end(key)
                return count, self._kept[key].float()
        return 0, self.images[start:stop].float()

    def _step(self, levels: Tensor, step: ImageShift, place: int, start: int, stop: int) -> Tensor:
        if not step.severity:
            return levels
        self.applied += 1
        if isinstance(step, Operation):
            level = torch.full((len(levels),), step.level or 0.0, dtype=torch.float64, device=levels.device)
            return apply_(step.name, levels, level, step.fill)
        # As a chain draws: each step from a generator of its own, named by its place.
        rng = Keyed(self.seed, self.keys[start:stop], device=levels.device).fork("chain").fork(f"{place}/{step.name}")
        drawn = step.draw(rng, Shape(*levels.shape[1:]))
        return to_levels(quantize_(step.transform(from_levels(levels), drawn)))

    def _keep(self, key: tuple[int, int, tuple[str, ...]], levels: Tensor) -> None:
        if levels.numel() > self.memory:
            return
        self._kept[key] = _bytes(levels)
        self._held += levels.numel()
        while self._held > self.memory:
            self._held -= self._kept.popitem(last=False)[1].numel()


def _applier(images: Tensor, keys: Tensor, seed: int, memory: int) -> Applier:
    return Applier(images, keys, seed=seed, memory=memory)


def _bytes(levels: Tensor) -> Tensor:
    """Return levels as uint8; numpy converts several times as fast as torch on a CPU."""
    if levels.device.type == "cpu":
        return torch.from_numpy(levels.numpy().astype(np.uint8))
    return levels.to(torch.uint8)
