"""How images look to a model: channel by channel, the mean and the mean square of what enters its normalisation layers.

Of a set of images these are averages over images, so that a mixture of sets has the mixture of their signatures. Models
without normalisation layers, and functions, are known by their outputs and by statistics of the images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from shiftproof.models import logits
from shiftproof.slices import image_statistics

CHANNELS = 1024
"""Channels that are looked at, at most, spread evenly over all layers."""

Signatures: TypeAlias = NDArray[np.float32]
"""Means of channels, then mean squares of them, [N, 2 C]."""


def norm_layers(model: Callable[..., Any]) -> list[nn.Module]:
    """Return the layers whose inputs are looked at, in order."""
    kinds = (_BatchNorm, nn.GroupNorm, nn.LayerNorm, nn.InstanceNorm2d)
    return [module for module in model.modules() if isinstance(module, kinds)] if isinstance(model, nn.Module) else []


def signatures(model: Callable[..., Any], images: Tensor) -> tuple[Signatures, Tensor]:
    """Return the signatures of images [N, C, H, W], and their logits."""
    seen: list[tuple[Tensor, Tensor]] = []
    with _hooked(norm_layers(model), seen):
        scores = logits(model, images)
    if not seen:
        known = [scores.double(), *(torch.from_numpy(values)[:, None] for values in image_statistics(images).values())]
        seen = [(values, values.square()) for values in known]
    means, squares = (torch.cat([pair[part].float().cpu() for pair in seen], 1) for part in (0, 1))
    chosen = torch.linspace(0, means.shape[1] - 1, min(CHANNELS, means.shape[1])).round().long()
    return torch.cat([means[:, chosen], squares[:, chosen]], 1).numpy(), scores


@contextmanager
def _hooked(layers: list[nn.Module], seen: list[tuple[Tensor, Tensor]]) -> Iterator[None]:
    """Note the moments of what enters layers, image by image, while it is open."""

    def note(layer: nn.Module, _: nn.Module, given: tuple[Tensor, ...]) -> None:
        inputs = given[0].detach().float()
        if isinstance(layer, nn.LayerNorm) and inputs.ndim > 2:  # channels last
            inputs = inputs.movedim(-1, 1)
        flat = inputs.flatten(2) if inputs.ndim > 2 else inputs[:, :, None]
        seen.append((flat.mean(2), flat.square().mean(2)))

    handles = [layer.register_forward_pre_hook(partial(note, layer)) for layer in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
