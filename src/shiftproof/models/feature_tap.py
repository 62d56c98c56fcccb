"""The features a classifier decides by: what enters its last linear layer, taken in passes that are made anyway."""

from __future__ import annotations

from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle


def last_linear(model: object) -> nn.Linear | None:
    """Return the last linear layer of a model, its classifier; None where it is no module with one."""
    layers = [one for one in model.modules() if isinstance(one, nn.Linear)] if isinstance(model, nn.Module) else []
    return layers[-1] if layers else None


def logits_and_features(network: nn.Module, images: Tensor) -> tuple[Tensor, Tensor]:
    """Return what a network says of images, and what enters its last linear layer, [N, F]; gradients are let through.

    >>> network = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    >>> logits_and_features(network, torch.zeros(3, 1, 2, 2))[1].shape
    torch.Size([3, 4])
    """
    caught: list[Tensor] = []
    layer = last_linear(network)
    assert layer is not None
    hook = layer.register_forward_pre_hook(lambda _, inputs: caught.append(inputs[0]))
    try:
        logits: Tensor = network(images)
    finally:
        hook.remove()
    return logits, caught[-1].flatten(1)


class FeaturesTap:
    """Takes what enters the last linear layer of a model, in whatever forward passes happen while it is open."""

    def __init__(self, layer: nn.Linear) -> None:
        self._layer = layer
        self._hook: RemovableHandle | None = None
        self._caught: list[Tensor] = []

    @classmethod
    def of(cls, model: object) -> FeaturesTap | None:
        """Return the tap of a model, None where it is no module with a linear layer."""
        layer = last_linear(model)
        return None if layer is None else cls(layer)

    def __enter__(self) -> Self:
        def hook(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            self._caught.append(inputs[0].detach())

        self._hook = self._layer.register_forward_pre_hook(hook)
        return self

    def __exit__(self, *_: object) -> None:
        if self._hook is not None:
            self._hook.remove()

    def latest(self) -> Tensor:
        """Return what the layer saw last, [N, F], where it is."""
        return self._caught[-1].flatten(1)

    def features(self, inputs: int) -> NDArray[np.float32] | None:
        """Return the features of so many inputs, [N, F]; None where the layer did not see each of them once."""
        caught, self._caught = self._caught, []
        if not caught or any(one.ndim != 2 for one in caught) or sum(map(len, caught)) != inputs:
            return None
        return torch.cat([one.float().cpu() for one in caught]).numpy()
