"""Reduced precision: a module that computes in bfloat16 where PyTorch deems it safe, and answers in float32."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from shiftproof.errors import ModelError


class Reduced(nn.Module):
    """Runs a module under autocast. Another model, with a fingerprint of its own: its numbers differ a little."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.train(model.training)

    def forward(self, inputs: Any) -> Tensor:
        """Return the module's output in float32."""
        device = next((tensor.device.type for tensor in self.model.parameters()), "cpu")
        with torch.autocast(device, torch.bfloat16):
            output: Tensor = self.model(inputs)
        return output.float()


def reduced(model: object) -> Reduced:
    """Return a module in reduced precision; refuse what computes elsewhere.

    >>> import torch
    >>> reduced(torch.nn.Linear(4, 2))(torch.rand(3, 4)).dtype
    torch.float32
    """
    if not isinstance(model, nn.Module):
        raise ModelError(
            "Only a PyTorch module can run in reduced precision.",
            expected="an nn.Module",
            got=type(model).__name__,
            fix="leave --amp out; what runs the model (ONNX, a service) has settings of its own",
        )
    return Reduced(model)
