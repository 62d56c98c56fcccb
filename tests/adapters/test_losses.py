"""Closed forms and gradients of the losses, against linear solves, high precision and finite differences."""

from __future__ import annotations

import mpmath  # type: ignore[import-untyped]
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from shiftproof.adapters import losses


def random_logits(rows: int, classes: int, scale: float, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, classes, generator=generator, dtype=torch.float64) * scale


def conjugate_by_solve(logits: Tensor, epsilon: float) -> Tensor:
    """Return the conjugate of the PolyLoss as the paper states it: a C x C system per image."""
    p = logits.softmax(1)
    system = torch.eye(p.shape[1], dtype=p.dtype) + epsilon * (torch.diag_embed(p) - p[:, :, None] * p[:, None, :])
    y: Tensor = torch.linalg.solve(system, p[:, :, None]).squeeze(2)
    return logits.logsumexp(1) - (y * (logits - epsilon * (1 - p))).sum(1)


@given(st.integers(2, 50), st.floats(0, 10), st.floats(0.1, 6), st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_conjugate_poly_is_the_linear_solve(classes: int, epsilon: float, scale: float, seed: int) -> None:
    logits = random_logits(3, classes, scale, seed).requires_grad_()
    closed, solved = losses.conjugate_poly(logits, epsilon), conjugate_by_solve(logits, epsilon)
    torch.testing.assert_close(closed, solved, rtol=1e-9, atol=1e-9)
    ours, theirs = (torch.autograd.grad(loss.sum(), logits)[0] for loss in (closed, solved))
    torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-8)


def test_conjugate_poly_at_no_epsilon_is_the_entropy() -> None:
    logits = random_logits(6, 9, 3, 0)
    torch.testing.assert_close(losses.conjugate_poly(logits, 0.0), losses.entropy(logits))


@pytest.mark.parametrize("margin", [0.0, 1.0, 20.0, 36.0, 37.0, 80.0, 400.0])
def test_soft_likelihood_ratio_next_to_certainty(margin: float) -> None:
    """Where p rounds to 1 the ratio is still the margin's, to the last digits."""
    logits = [margin, 0.0, -1.5]
    with mpmath.workdps(400):
        exact = [mpmath.exp(value) for value in logits]
        p = [value / sum(exact) for value in exact]
        rest = [sum(p[:place]) + sum(p[place + 1 :]) for place in range(3)]
        expected = float(
            -sum(each * (mpmath.log(each) - mpmath.log(other)) for each, other in zip(p, rest, strict=True))
        )
    given_logits = torch.tensor([logits], dtype=torch.float64, requires_grad=True)
    loss = losses.soft_likelihood_ratio(given_logits)
    assert loss.item() == pytest.approx(expected, rel=1e-12)
    (slope,) = torch.autograd.grad(loss.sum(), given_logits)
    assert bool(slope.isfinite().all())
    if margin >= 20:  # it goes on rewarding certainty one to one, where the entropy has long gone flat
        assert slope[0, 0].item() == pytest.approx(-1, abs=1e-6)


@pytest.mark.parametrize(
    "loss",
    [
        losses.entropy,
        losses.robust_pseudo_label,
        lambda x: losses.conjugate_poly(x, 8.0),
        losses.soft_likelihood_ratio,
        lambda x: losses.cross_entropy(x, x.flip(0)),
        lambda x: losses.symmetric_cross_entropy(x, x.flip(0)),
        lambda x: losses.divergence_from_uniform(x.softmax(1).mean(0)),
    ],
    ids=["entropy", "rpl", "cpl", "slr", "cross_entropy", "symmetric", "divergence"],
)
def test_gradients(loss) -> None:
    assert torch.autograd.gradcheck(loss, random_logits(4, 7, 2, 1).requires_grad_())


def test_values_of_two_classes() -> None:
    logits = torch.tensor([[0.0, 0.0]], dtype=torch.float64)
    assert losses.entropy(logits).item() == pytest.approx(0.6931471805599453)
    assert losses.robust_pseudo_label(logits, 0.8).item() == pytest.approx((1 - 0.5**0.8) / 0.8)
    assert losses.soft_likelihood_ratio(logits).item() == pytest.approx(0)
    assert losses.divergence_from_uniform(torch.tensor([1.0, 0.0])).item() == pytest.approx(0.6931, abs=1e-4)
