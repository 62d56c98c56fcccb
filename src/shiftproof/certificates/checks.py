"""What can be certified: a fixed function of one image. This module refuses what is not one, and says why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from shiftproof.errors import ConfigurationError, ModelError
from shiftproof.models import Adaptive, logits
from shiftproof.models.behaviour import in_training, try_out

PROBE = 8
"""Images that are put to the model before any certificate is made."""

_THEOREM = "The certificate is about a fixed function of one image"


def check_fixed(model: object) -> None:
    """Refuse a model that adapts, or is in training mode, by what it says of itself."""
    parts = list(model.modules()) if isinstance(model, nn.Module) else [model]
    for part in parts:
        if isinstance(part, Adaptive):
            raise ModelError(
                "A model that adapts cannot be certified.",
                expected="a model whose answer to an image is always the same",
                got=f"{type(part).__name__}, whose answers change with the images it has seen",
                reason=f"{_THEOREM}: one that changed while it was sampled is not one.",
                fix="freeze it first: shiftproof.adapters.freeze(adapted, images) is a plain copy with the weights "
                "and statistics it has reached; or certify its source",
            )
    for layer in in_training(model):
        raise ModelError(
            "A model in training mode cannot be certified.",
            expected="a model in evaluation mode: model.eval()",
            got=f"a {type(layer).__name__} in training mode",
            reason=f"{_THEOREM}: dropout draws at random, and batch normalisation looks at the whole batch.",
        )


def check_function(
    model: Callable[[Tensor], Any],
    images: Tensor,
    dtype: torch.dtype = torch.float32,
    ask: Callable[..., Tensor] = logits,
) -> int:
    """Refuse a model whose scores are no logits or not a function of the single image; return its number of classes.

    It is asked twice about the same images, and once more about half of them among others; `ask` gets its scores.
    """
    images = images[torch.arange(2 * PROBE, device=images.device) % len(images)].clone()
    images[PROBE:] = 1 - images[PROBE:]
    found = try_out(model, images[:PROBE], images[PROBE:], images[PROBE:].flip(3) * 0.5, dtype, ask)
    if found.random:
        raise ModelError(
            "A stochastic model cannot be certified.",
            expected="the same scores for the same images every time",
            got=f"scores that differ by up to {found.repeated:.3g}",
            reason=f"{_THEOREM}: a model that draws at random, or learns from what it sees, is not one.",
            fix="switch off dropout (model.eval()), sampling, and adaptation",
        )
    if found.of_batch:
        raise ModelError(
            "A model whose answers depend on the rest of the batch cannot be certified.",
            expected="the same scores for an image whatever images come with it",
            got=f"scores that differ by up to {found.company:.3g}",
            reason=f"{_THEOREM}; batch statistics make it one of many images.",
            fix="normalise with fixed statistics: model.eval()",
        )
    return int(found.scores.shape[1])


def check_sizes(n0: int, n: int) -> None:
    """Refuse numbers of samples that make no sense together."""
    if n0 < 1 or n0 > n:
        raise ConfigurationError(
            "n0 must not be larger than n.",
            expected="n0 from 1 to n, such as n0=100 and n=100,000",
            got=f"n0={n0}, n={n}",
        )
