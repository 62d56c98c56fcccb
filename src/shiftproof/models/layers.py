"""What kinds of layers a model has."""

from __future__ import annotations

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm


def has_batch_norm(model: object) -> bool:
    """Return whether a model has batch-norm layers; always False for a black box.

    Args:
        model: Any model.

    >>> has_batch_norm(nn.Sequential(nn.BatchNorm2d(3))), has_batch_norm(nn.LayerNorm(3)), has_batch_norm(len)
    (True, False, False)
    """
    return isinstance(model, nn.Module) and any(isinstance(layer, _BatchNorm) for layer in model.modules())


def is_of(module: nn.Module, *packages: str) -> bool:
    """Return whether a module is of a kind that one of these packages of PyTorch makes: `torch.jit`, `torch.export`.

    >>> is_of(nn.Linear(1, 1), "torch.export"), is_of(nn.Linear(1, 1), "torch.nn")
    (False, True)
    """
    return any(kind.__module__.startswith(packages) for kind in type(module).__mro__)
