"""The features a classifier's last linear layer sees, for methods that work on them."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from shiftproof.errors import ModelError


def last_linear(model: nn.Module) -> nn.Linear:
    """Return the last linear layer of a model, its classifier."""
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not layers:
        raise ModelError(
            "This model has no linear layer at its end.",
            expected="a classifier whose last layer is nn.Linear, the input of which are its features",
            fix="methods that do not need features: bn, tent, eta, rdumb",
        )
    return layers[-1]


def features_and_logits(model: nn.Module, run: Callable[[Tensor], Tensor], images: Tensor) -> tuple[Tensor, Tensor]:
    """Return the inputs of the last linear layer, [N, F], and the logits, [N, C], of one forward pass."""
    caught: list[Tensor] = []
    handle = last_linear(model).register_forward_pre_hook(lambda _, inputs: caught.append(inputs[0].detach()))
    try:
        logits = run(images)
    finally:
        handle.remove()
    return caught[-1].flatten(1).to(logits.dtype), logits
