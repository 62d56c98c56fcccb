"""Normalisation as a layer of the model, so that everything outside it acts on [0, 1] images."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from shiftproof.errors import ModelError


class Normalize(nn.Module):
    """Subtract a mean and divide by a standard deviation per channel: the first layer of a model.

    `mean` and `std` hold one number per channel, on the [0, 1] scale of the images. They are float64 buffers of shape
    [1, C, 1, 1], used in the images' own precision: `model.double()` computes with the constants as written. The
    model's `state_dict` carries them.

    Args:
        mean: One number per channel, on the [0, 1] scale.
        std: One number per channel, on the [0, 1] scale.

    >>> model = nn.Sequential(Normalize([0.5], [0.25]), nn.Identity())
    >>> model(torch.ones(1, 1, 8, 8))[0, 0, 0, 0]
    tensor(2.)
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        if len(mean) != len(std) or not mean or min(std) <= 0:
            raise ModelError(
                "The mean and std of a normalisation do not fit.",
                expected="one mean and one positive std per channel, on the [0, 1] scale",
                got=f"mean {tuple(mean)}, std {tuple(std)}",
            )
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float64).view(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(std, dtype=torch.float64).view(1, -1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        """Return normalised images, [N, C, H, W]."""
        # In place, on a copy: an image of one channel does not spread over three means, but is refused.
        return images.clone().sub_(self.mean.to(images.dtype)).div_(self.std.to(images.dtype))

    def extra_repr(self) -> str:
        """Name the constants where the module is printed."""
        mean, std = (tuple(round(value, 6) for value in part.flatten().tolist()) for part in (self.mean, self.std))
        return f"mean={mean}, std={std}"
