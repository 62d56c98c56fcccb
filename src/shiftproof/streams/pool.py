"""Images by row, in any order, on the device where they are wanted."""

from __future__ import annotations

import torch
from torch import Tensor

from shiftproof.data import ImageSet
from shiftproof.data.images.levels import unit
from shiftproof.errors import DataError

HELD_BYTES = {"cpu": 2**30, "cuda": 2**34}
"""Sets of at most so many bytes are decoded once and held on a kind of device; larger ones are read as they come."""


class Pool:
    """The images of a set as float32 in [0, 1], by row; held on the device as bytes where they fit."""

    def __init__(self, data: ImageSet, device: torch.device) -> None:
        self.device = device
        self.data = data
        self._held = False
        if data.nbytes <= HELD_BYTES.get(device.type, 0):
            self.data = data.in_memory(device=device)
            self._held = True

    def __len__(self) -> int:
        return len(self.data)

    def read(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the images of some rows, [n, C, H, W], and their keys, [n], on the device."""
        if self._held:
            found = self.data.source.read(rows.tolist()).images
            return unit(found), self.data.keys[rows].to(self.device)
        batch = next(self.data.subset(rows).batches(len(rows), device=self.device), None)
        if batch is None or len(batch) < len(rows):
            raise DataError(
                "A stream cannot leave out the images that cannot be read.",
                got=", ".join(bad.file for bad in self.data.bad_files[:3]),
                fix="repair or remove the files",
            )
        return batch.inputs, batch.keys
