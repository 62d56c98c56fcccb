"""Whether a model is a fixed function of one input: it is asked twice, and once more in other company."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from shiftproof.models.identity import digest
from shiftproof.models.layers import is_of
from shiftproof.models.outputs import logits
from shiftproof.models.precision import Reduced

AGREE = {torch.float32: 1e-3, torch.float64: 1e-3, torch.bfloat16: 2e-2, torch.float16: 2e-2}
"""How far the scores of the same input may be apart, as a share of their range, by the model's precision."""


@dataclass(frozen=True)
class Behaviour:
    """What a model did when it was tried.

    `scores` are its answers to all inputs, [N, K]. `repeated` is how far the scores of the same batch were apart,
    `company` how far those of the same inputs among others; up to `allowed` is rounding. `changed` says that weights or
    buffers were not the same afterwards, `training` how many of its layers were left in training mode.
    """

    scores: Tensor
    repeated: float
    company: float
    allowed: float
    changed: bool
    training: int

    @property
    def random(self) -> bool:
        """Whether the same inputs got other scores."""
        return self.repeated > self.allowed

    @property
    def of_batch(self) -> bool:
        """Whether the scores of an input depend on the inputs that come with it."""
        return self.company > self.allowed and not self.random


def try_out(
    model: Callable[[Any], Any],
    inputs: Any,
    others: Any,
    strangers: Any,
    dtype: torch.dtype | None = None,
    ask: Callable[[Callable[[Any], Any], Any], Tensor] = logits,
) -> Behaviour:
    """Ask a model about `inputs` with `others` twice, and with `strangers`; each is as many images, or texts.

    `dtype` is the precision that it computes in, where its weights do not say; `ask` is how it is asked for scores.
    """
    before = _state(model)
    first, again = (ask(model, _together(inputs, others)) for _ in range(2))
    third = ask(model, _together(inputs, strangers))
    return Behaviour(
        scores=first,
        repeated=float((first - again).abs().max()),
        company=float((first - third)[: len(inputs)].abs().max()),
        allowed=AGREE.get(dtype or _precision(model), AGREE[torch.float32])
        * max(float(first.max() - first.min()), 1e-6),
        changed=_state(model) != before,
        training=len(in_training(model)),
    )


def in_training(model: object) -> list[nn.Module]:
    """Return the layers of a model that are in training mode, where that says something.

    Of an exported program it does not: it computes what was exported, and its weights are in plain modules, which
    compute nothing. A traced one calls the layers that it was traced of.

    >>> in_training(nn.Sequential(nn.Flatten(), nn.Dropout()).eval())
    []
    """
    parts = model.modules() if isinstance(model, nn.Module) else ()
    return [part for part in parts if part.training and not is_program(part) and type(part) is not nn.Module]


def is_program(module: nn.Module) -> bool:
    """Whether a module is an exported or traced program, whose own mode flag says nothing."""
    return is_of(module, "torch.export", "torch.fx")


def _together(inputs: Any, others: Any) -> Any:
    return torch.cat([inputs, others]) if isinstance(inputs, Tensor) else [*inputs, *others]


def _state(model: Callable[..., Any]) -> str:
    return digest(list(chain(model.parameters(), model.buffers()))) if isinstance(model, nn.Module) else ""


def _precision(model: Callable[..., Any]) -> torch.dtype:
    if isinstance(model, nn.Module) and any(isinstance(part, Reduced) for part in model.modules()):
        return torch.bfloat16
    weights = model.parameters() if isinstance(model, nn.Module) else ()
    return next((one.dtype for one in weights if one.is_floating_point()), torch.float32)
