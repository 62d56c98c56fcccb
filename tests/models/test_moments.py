"""Means and variances to the last digits of float32, whatever the order of memory, and gradients through them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import gradcheck

from shiftproof.models.moments import batch_norm, batch_norm_with, moments


def activations(*shape: int, order: torch.memory_format = torch.contiguous_format) -> Tensor:
    """Return what might enter a batch norm: half of it zero, a mean of its own."""
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(0)).relu() * 3 + 0.5
    return drawn.contiguous(memory_format=order)


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
def test_batch_norm_keeps_the_digits_of_float32(order: torch.memory_format) -> None:
    """PyTorch's own is off by a thousandth where channels come last."""
    x = activations(64, 16, 32, 32, order=order)
    weight, bias = torch.linspace(0.5, 1.5, 16).requires_grad_(), torch.linspace(-1, 1, 16)
    exact = F.batch_norm(x.double(), None, None, weight.double(), bias.double(), training=True)
    assert (batch_norm(x, weight, bias, 1e-5) - exact).abs().max() < 5e-6
    with torch.no_grad():  # a prediction of a layer that learns is what it learns from
        assert (batch_norm(x, weight, bias, 1e-5) - exact).abs().max() < 5e-6
        plain = F.batch_norm(x, None, None, weight, bias, training=True)
        assert torch.equal(batch_norm(x, weight.detach(), bias, 1e-5), plain)
    mean, var = moments(x)
    torch.testing.assert_close(mean.double(), x.double().mean((0, 2, 3)), rtol=1e-6, atol=0)
    torch.testing.assert_close(var.double(), x.double().var((0, 2, 3), correction=0), rtol=1e-6, atol=0)


@pytest.mark.parametrize("shape", [(6, 3), (4, 3, 5), (4, 3, 5, 2), (2, 3, 2, 2, 2)])
@pytest.mark.parametrize("correction", [0, 1])
def test_moments_are_those_of_pytorch(shape: tuple[int, ...], correction: int) -> None:
    x = activations(*shape).double()
    others = [dim for dim in range(x.ndim) if dim != 1]
    var, mean = torch.var_mean(x, others, correction=correction)
    found = moments(x, correction=correction)
    torch.testing.assert_close(found, (mean, var))
    assert moments(x.half())[1].dtype == torch.float32


def test_gradients_are_those_of_pytorch() -> None:
    x, weight, bias = (activations(*shape).double().requires_grad_() for shape in ((4, 3, 5, 2), (3,), (3,)))
    assert gradcheck(lambda x, weight, bias: batch_norm(x, weight, bias, 1e-5), (x, weight, bias))
    assert gradcheck(lambda x: batch_norm(x, None, None, 1e-5), (x,))
    (of_bias,) = torch.autograd.grad(batch_norm(x.detach(), weight, bias, 1e-5).square().sum(), (bias,))
    (expected,) = torch.autograd.grad(
        F.batch_norm(x.detach(), None, None, weight, bias, training=True).square().sum(), (bias,)
    )
    torch.testing.assert_close(of_bias, expected)


def test_gradients_flow_through_given_statistics() -> None:
    x, mean, weight, bias = (
        activations(*shape).double().requires_grad_() for shape in ((4, 3, 5, 2), (3,), (3,), (3,))
    )
    var = torch.tensor([0.5, 1.0, 3.0], dtype=torch.float64, requires_grad=True)
    assert gradcheck(
        lambda x, mean, var, weight, bias: batch_norm_with(x, mean, var, weight, bias, 1e-5),
        (x, mean, var, weight, bias),
    )
    assert gradcheck(lambda x, var: batch_norm_with(x, mean, var, None, None, 1e-5), (x, var))
    assert gradcheck(lambda mean: batch_norm_with(x.detach(), mean, var.detach(), weight, None, 1e-5), (mean,))


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(("kind", "close"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_gradients_of_given_statistics_keep_their_digits(
    kind: torch.dtype, close: float, order: torch.memory_format
) -> None:
    """Of images in half precision the statistics are float32."""
    x = activations(64, 16, 32, 32, order=order).to(kind)
    statistics = [torch.linspace(0.2, 1.2, 16), torch.linspace(0.5, 3, 16), torch.linspace(0.5, 1.5, 16)]
    found, expected = (
        torch.autograd.grad(F.softplus(batch_norm_with(x, mean, var, weight, mean, 1e-5)).double().sum(), given)
        for given in (
            [each.to(wide or each.dtype).requires_grad_() for each in (x, *statistics)]
            for wide in (None, torch.float64)
        )
        for x, mean, var, weight in [given]
    )
    for own, exact in zip(found, expected, strict=True):
        assert (own.double() - exact).abs().max() < close * exact.abs().max()


def test_half_precision_stays_pytorch_s_own() -> None:
    x = activations(8, 3, 4, 4).bfloat16()
    assert torch.equal(batch_norm(x, None, None, 1e-5), F.batch_norm(x, None, None, training=True))
