"""The last layer of a classifier: found, and replaced by one for other classes."""

from __future__ import annotations

from torch import nn

from shiftproof.errors import ModelError


def head_of(network: nn.Module) -> tuple[str, nn.Linear | nn.Conv2d]:
    """Return the name and the module of the last layer that makes scores of features: a linear one, or 1 x 1.

    >>> head_of(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)))[0]
    '1'
    """
    found = [
        (name, layer)
        for name, layer in network.named_modules()
        if isinstance(layer, nn.Linear) or (isinstance(layer, nn.Conv2d) and layer.kernel_size == (1, 1))
    ]
    if not found:
        raise ModelError(
            "The model has no last layer that could be replaced.",
            expected="a linear layer at its end, as classifiers have",
            got=type(network).__name__,
            fix="replace it in your own build()",
        )
    return found[-1]


def with_new_head(network: nn.Module, classes: int) -> nn.Module:
    """Replace the last layer by one with random weights for so many classes; names of the old ones are forgotten."""
    name, old = head_of(network)
    made: nn.Module
    if isinstance(old, nn.Linear):
        made = nn.Linear(old.in_features, classes, bias=old.bias is not None)
    else:
        made = nn.Conv2d(old.in_channels, classes, 1, bias=old.bias is not None)
    if not name:
        raise ModelError("The model is a single layer: there is nothing before it to keep.", got=type(old).__name__)
    parent, _, last = name.rpartition(".")
    setattr(network.get_submodule(parent), last, made.to(old.weight.device, old.weight.dtype))
    for module in network.modules():
        module.__dict__.pop("class_names", None)
    return network
