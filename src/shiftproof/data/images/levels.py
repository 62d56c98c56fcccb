"""From the 256 levels of stored images to [0, 1]: the same numbers on every device."""

from __future__ import annotations

import torch
from torch import Tensor


def divide_(levels: Tensor, out: Tensor | None = None) -> Tensor:
    """Divide whole float32 numbers by 255, in place or into `out`, to the float32 nearest to the quotient.

    By a plain number PyTorch divides so on a CPU only; on CUDA it multiplies by the reciprocal, which for 126 of the
    256 levels has another last bit. That is enough for a shift to end on another level, in a few values of a million.
    """
    return torch.div(levels, torch.full((), 255.0, device=levels.device), out=levels if out is None else out)


def unit(stored: Tensor) -> Tensor:
    """Return stored images, uint8 levels or floats in [0, 1], as float32 in [0, 1]."""
    return divide_(stored.float()) if stored.dtype == torch.uint8 else stored.float()
