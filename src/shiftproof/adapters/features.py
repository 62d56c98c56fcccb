"""The features a classifier's last linear layer sees, for methods that work on them."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from shiftproof.errors import ModelError
from shiftproof.models import feature_tap


def last_linear(model: nn.Module) -> nn.Linear:
    """Return the last linear layer of a model, its classifier; refuse one without."""
    layer = feature_tap.last_linear(model)
    if layer is None:
        raise ModelError(
            "This model has no linear layer at its end.",
            expected="a classifier whose last layer is nn.Linear, whose input are the features",
            fix="methods that do not need features: bn, tent, eta, rdumb",
        )
    return layer


def features_and_logits(model: nn.Module, run: Callable[[Tensor], Tensor], images: Tensor) -> tuple[Tensor, Tensor]:
    """Return the inputs of the last linear layer, [N, F], and the logits, [N, C], of one forward pass."""
    with feature_tap.FeaturesTap(last_linear(model)) as tap:
        logits = run(images)
    return tap.latest().to(logits.dtype), logits
