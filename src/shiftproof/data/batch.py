"""A batch: what a model is tested on at one time."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Batch:
    """Images with their labels and keys, all on one device, and the shift they went through.

    `images` are float32 [N, C, H, W] in [0, 1]; `labels` int64 [N], or None where nobody knows them; `keys` int64 [N]
    name the images, and decide their randomness.
    """

    images: Tensor
    labels: Tensor | None
    keys: Tensor
    shift: str = "clean"

    def __len__(self) -> int:
        return len(self.images)
