"""Mean and variance per channel, and batch normalisation with them, to the last digits of float32 on a CPU.

There PyTorch's `var_mean` updates one number after the other, and its training-mode `batch_norm` of images that hold
channels last sums tens of thousands of numbers into one float32: with 64 images of 32 x 32 the first takes fifteen
times as long as two sums, and the second is off in the third digit. Means are summed in cascades and are exact enough.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable


def moments(x: Tensor, *, correction: int = 0) -> tuple[Tensor, Tensor]:
    """Return the mean and variance of an input [N, C, ...] over all dimensions but the second, [C] each.

    Half precision has neither the range nor the digits for a variance: of such an input they are float32.
    """
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    others = [dim for dim in range(x.ndim) if dim != 1]
    if x.device.type != "cpu":
        var, mean = torch.var_mean(x, others, correction=correction)
        return mean, var
    count = x.numel() // x.shape[1]
    mean = x.mean(others, keepdim=True)
    centred = x - mean
    squares = centred.square() if centred.requires_grad else centred.square_()
    return mean.flatten(), squares.sum(others) / (count - correction)


def batch_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    """Normalise an input [N, C, ...] with its own mean and biased variance, letting gradients through them.

    On a CPU, layers that learn do so exactly, since what they learn from errors adds up. Layers that only predict are
    PyTorch's own, which writes nothing between and is a tenth faster over a small network.
    """
    if x.numel() == x.shape[1]:  # one value per channel, its own mean, which PyTorch refuses
        shape = (1, -1) + (1,) * (x.ndim - 2)
        centred = x - x if weight is None else (x - x) * weight.view(shape)
        return centred if bias is None else centred + bias.view(shape)
    learns = any(given is not None and given.requires_grad for given in (x, weight, bias))
    if learns and x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64):
        made: Tensor = _BatchNorm.apply(x, weight, bias, eps)  # type: ignore[no-untyped-call]
        return made
    return F.batch_norm(x, None, None, weight, bias, training=True, eps=eps)


def batch_norm_with(
    x: Tensor, mean: Tensor, var: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:
    """Normalise an input [N, C, ...] with given statistics, [C] each, letting gradients through them, too."""
    if mean.requires_grad or var.requires_grad:  # PyTorch's own takes them for constants
        made: Tensor = _GivenStatistics.apply(x, mean, var, weight, bias, eps)  # type: ignore[no-untyped-call]
        return made
    return F.batch_norm(x, mean, var, weight, bias, training=False, eps=eps)


class _GivenStatistics(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, mean: Tensor, var: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
    ) -> Tensor:
        ctx.save_for_backward(x, mean, var, weight)
        ctx.eps = eps
        return F.batch_norm(x, mean, var, weight, bias, training=False, eps=eps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, mean, var, weight = ctx.saved_tensors
        factor = torch.ones_like(mean) if weight is None else weight
        wanted = (ctx.needs_input_grad[0], True, True)
        # The output is weight * (x - mean) * scale + bias.
        scale = (var + ctx.eps).rsqrt()
        back = torch.ops.aten.native_batch_norm_backward
        to_x, to_weight, to_bias = back(gradient, x, factor, mean, var, mean, scale, False, ctx.eps, wanted)
        slope = factor * scale
        to_mean, to_var = -slope * to_bias, -0.5 * slope * scale * to_weight
        wants = ctx.needs_input_grad
        return to_x, to_mean, to_var, to_weight if wants[3] else None, to_bias if wants[4] else None, None


class _BatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
        mean, var = moments(x)
        ctx.save_for_backward(x, weight, mean, (var + eps).rsqrt())
        ctx.eps = eps
        return F.batch_norm(x, mean, var, weight, bias, training=False, eps=eps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, scale = ctx.saved_tensors
        wanted = ctx.needs_input_grad[:3]
        back = torch.ops.aten.native_batch_norm_backward
        return *back(gradient, x, weight, None, None, mean, scale, True, ctx.eps, wanted), None
