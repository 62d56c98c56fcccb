"""How much arithmetic a model does for one input: counted, not timed, so that it is the same on every machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from shiftproof.errors import ModelError
from shiftproof.models.outputs import logits

PER_PIXEL = 160_000.0
"""Operations per pixel of a ResNet-50, which stands for models whose arithmetic cannot be seen."""


def operations(model: Callable[[Any], Any], inputs: Tensor | list[Any]) -> float:
    """Return the floating-point operations of a forward pass per input, multiplications and additions both counted.

    Matrix products, convolutions and attention count. A model that computes outside PyTorch, such as an ONNX session,
    shows none; for images it is taken to do as much per pixel as a ResNet-50, and for texts nothing is known: 0.
    """
    from torch.utils.flop_counter import FlopCounterMode

    counter = FlopCounterMode(display=False)
    try:
        with counter:
            logits(model, inputs)
    except ModelError:  # the model's own failure, or one to be counted; whoever uses the model next will tell
        pass
    counted = float(counter.get_total_flops()) / len(inputs)
    if counted == 0 and isinstance(inputs, Tensor):
        return PER_PIXEL * inputs.shape[-2] * inputs.shape[-1]
    return counted
