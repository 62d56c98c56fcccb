"""COME: its formula written out, its gradient, and the methods that take it."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from shiftproof.adapters import adapt
from shiftproof.adapters.uncertainty import opinion_entropy
from tests.adapters.networks import convolutional, stream
from tests.adapters.test_methods import in_training


def by_formula(row: list[float]) -> float:
    evidence = [math.exp(value) for value in row]
    total = sum(evidence) + len(row)
    shares = [each / total for each in evidence] + [len(row) / total]
    return -sum(share * math.log(share) for share in shares)


def test_it_is_the_entropy_of_classes_and_not_knowing() -> None:
    logits = 4 * torch.randn(20, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = [by_formula(row) for row in logits.tolist()]
    assert opinion_entropy(logits).tolist() == pytest.approx(expected, abs=1e-12)
    huge = torch.tensor([[800.0, -800.0], [0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    value = opinion_entropy(huge)
    assert value.tolist() == pytest.approx([0.0, by_formula([0.0, 0.0])], abs=1e-12)
    (slope,) = torch.autograd.grad(value.sum(), huge)
    assert bool(slope.isfinite().all())


def test_only_the_direction_of_the_logits_learns() -> None:
    logits = torch.randn(5, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(opinion_entropy(logits).sum(), logits)
    torch.testing.assert_close((slope * logits).sum(1), torch.zeros(5, dtype=torch.float64), atol=1e-12, rtol=0)
    assert float(slope.abs().max()) > 1e-3


def test_tent_lowers_it_by_a_plain_loop() -> None:
    model, batches = convolutional().double(), [batch.double() for batch in stream(3)]
    adapter, plain = adapt(model, "tent", uncertainty="come", lr=0.1), in_training(model)
    parameters = [parameter for name, parameter in plain.named_parameters() if name[0] in "14"]
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    for batch in batches:
        logits: Tensor = plain(batch)
        torch.testing.assert_close(adapter(batch), logits.detach(), atol=1e-9, rtol=0)
        scaled = logits / logits.norm(dim=1, keepdim=True) * logits.norm(dim=1, keepdim=True).detach()
        evidence = torch.cat([scaled.exp(), torch.full_like(scaled[:, :1], 5.0)], 1)
        shares = evidence / evidence.sum(1, keepdim=True)
        optimizer.zero_grad()
        (-(shares * shares.log()).sum(1).mean()).backward()
        optimizer.step()


@pytest.mark.parametrize("name", ["eta", "eata", "rdumb", "guard", "sar", "asr"])
def test_filters_go_by_it_too(name: str) -> None:
    adapter, batches = adapt(convolutional(), name, uncertainty="come", entropy_margin=2.0), stream(3)
    for batch in batches:
        adapter(batch)
    assert adapter.updates
    largest = math.log(6)  # of five classes and not knowing: beyond ln 5, which softmax entropies never reach
    none = adapt(convolutional(), name, uncertainty="come", entropy_margin=0.9 * largest / math.log(5))
    uncertain = opinion_entropy(adapt(convolutional(), "bn")(batches[0]))
    none(batches[0])
    assert (none.updates == 0) == bool((uncertain >= 0.9 * largest).all())
