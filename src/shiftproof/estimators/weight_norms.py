"""Norms of a network's weights, as measures of its complexity: what invariance and confidence are compared with.

Section B.1 of Ng et al. 2023, after Jiang et al. 2019: products over layers of squared norms, here as logarithms, which
rank models the same and do not overflow.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from shiftproof.errors import ModelError


def spectral_norm(model: nn.Module) -> float:
    """Return the log of the product over layers of the squared largest singular value of the weights."""
    return float(sum(2 * torch.linalg.matrix_norm(weights, 2).log() for weights in _weights(model)))


def frobenius_norm(model: nn.Module) -> float:
    """Return the log of the product over layers of the squared Frobenius norm of the weights."""
    return float(sum(2 * torch.linalg.matrix_norm(weights).log() for weights in _weights(model)))


def _weights(model: nn.Module) -> list[Tensor]:
    """Return the weights of convolutions and linear layers as matrices [out, in * kernel], in double precision."""
    kinds = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
    layers = [module for module in model.modules() if isinstance(module, kinds)] if isinstance(model, nn.Module) else []
    if not layers:
        raise ModelError(
            "The model has no weights to take norms of.",
            expected="a PyTorch module with linear or convolutional layers",
            got=f"a {type(model).__name__}",
        )
    return [layer.weight.detach().double().flatten(1) for layer in layers]
