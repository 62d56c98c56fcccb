"""Which layers learn, and how fast: frozen ones, and rates that fall from the head towards the images."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from shiftproof.errors import ConfigurationError, ModelError
from shiftproof.models.opening import scores_in
from shiftproof.models.outputs import device_of, precision_of
from shiftproof.registry import unknown
from shiftproof.training.settings import TrainingSettings


def stages(network: nn.Module) -> list[str]:
    """Return the names of the parts of a network in their order, from the images on, as its outermost modules.

    A module that only wraps another, such as one with a normalisation before it, is looked into.

    >>> from shiftproof.models import build_network
    >>> stages(build_network("convnet"))[-1]
    'linear'
    """
    prefix, inner = "", network
    while True:
        parts = [(name, part) for name, part in inner.named_children() if any(True for _ in part.parameters())]
        if len(parts) != 1 or any(True for _ in inner.parameters(recurse=False)):
            return [prefix + name for name, _ in parts]
        prefix, inner = f"{prefix}{parts[0][0]}.", parts[0][1]


def freeze(network: nn.Module, names: tuple[str, ...]) -> None:
    """Let layers stay as they are, by the beginning of their names: weights, and statistics of normalisation."""
    for name in names:
        some = [(full, value) for full, value in network.named_parameters() if _below(full, name)]
        if not some:
            raise unknown("layer", name, stages(network))
        for _, value in some:
            value.requires_grad_(False)
    if names and not any(value.requires_grad for value in network.parameters()):
        raise ConfigurationError(
            "Nothing is left to train.", expected="some layers that are not frozen", got=str(names)
        )


def hold_frozen(network: nn.Module, names: tuple[str, ...]) -> None:
    """Put frozen layers of a network in training mode back into evaluation mode."""
    for full, module in network.named_modules():
        if full and any(_below(full, name) for name in names):
            module.eval()


def parameter_groups(network: nn.Module, settings: TrainingSettings) -> list[dict[str, object]]:
    """Return what learns, in groups from the images to the head, whose rate is the whole one."""
    if settings.layer_decay == 1.0:
        return [{"params": [value for value in network.parameters() if value.requires_grad], "scale": 1.0}]
    order = stages(network)
    found: dict[int, list[nn.Parameter]] = {place: [] for place in range(len(order))}
    for full, value in network.named_parameters():
        if value.requires_grad:
            place = next((place for place, name in enumerate(order) if _below(full, name)), 0)
            found[place].append(value)
    last = len(order) - 1
    return [
        {"params": values, "scale": settings.layer_decay ** (last - place)} for place, values in found.items() if values
    ]


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Put a network into evaluation mode, and back."""
    modes = {module: module.training for module in network.modules()}
    network.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


def check_gradients(network: nn.Module, images: Tensor) -> None:
    """Refuse a network, in evaluation mode, whose answers say nothing of how its weights should change."""
    with torch.enable_grad():
        scores = scores_in(network(images.to(device_of(network), precision_of(network))))
    if isinstance(scores, Tensor) and not scores.requires_grad:
        raise ModelError(
            "The model provides no gradients.",
            expected="a PyTorch module whose outputs depend on its weights through differentiable operations",
            got="outputs that are detached from the weights",
            fix="remove torch.no_grad(), .detach() and NumPy from its forward()",
        )


def _below(full: str, name: str) -> bool:
    return full == name or full.startswith(f"{name}.")
