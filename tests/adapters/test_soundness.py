"""What cannot be learnt from is not: empty batches, logits, weights and gradients that are not finite."""

from __future__ import annotations

import math

import pytest
import torch

from shiftproof.adapters import METHODS, adapt, method
from tests.adapters.networks import assert_same, convolutional, everything, small, stream


@pytest.mark.parametrize("name", ["eta", "eata", "rdumb", "sar", "deyo"])
def test_an_empty_filtered_batch_is_no_update(name: str) -> None:
    adapter = small(name)
    first, second = stream(2)
    adapter(first)
    assert adapter.updates == 1  # so that there is momentum
    known = everything(adapter)
    adapter.parts = adapter.method.parts(adapter.options.changed({"entropy_margin": 0.0}))
    adapter(second)
    assert_same(everything(adapter), known, but=("counts",))
    assert (adapter.updates, adapter.steps) == (1, 2)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("name", METHODS)
def test_not_finite_logits_are_answered_by_the_source(name: str, bad: float) -> None:
    """One bad image in the batch: the others get the source's answer, and nothing is learnt."""
    model = convolutional()
    adapter = small(name, model, window=0 if method(name).own_memory else 8)
    first, second = stream(2)
    adapter(first)
    known = everything(adapter)
    broken = second.clone()
    broken[0, 0, 0, 0] = bad
    logits = adapter(broken)
    torch.testing.assert_close(logits[1:], model(broken)[1:])
    assert not bool(logits[0].isfinite().all())
    assert adapter.skipped == 1
    assert_same(everything(adapter), known, but=("counts",))
    assert bool(adapter(second).isfinite().all())
    assert adapter.skipped == 1


def test_broken_weights_are_recovered() -> None:
    adapter = small("tent")
    first, second = stream(2)
    adapter(first)
    with torch.no_grad():
        next(iter(adapter.trained.values())).fill_(math.nan)
    torch.testing.assert_close(adapter(second), convolutional()(second))
    assert (adapter.skipped, adapter.resets) == (1, 1)
    torch.testing.assert_close(adapter(second), adapt(convolutional(), "bn")(second))


def test_not_finite_gradients_are_not_followed() -> None:
    adapter = small("tent")
    known = everything(adapter)
    adapter(stream(1)[0])
    adapter.reset()
    adapter.descend([torch.full_like(parameter, math.inf) for parameter in adapter.trained.values()])
    assert adapter.skipped == 1
    assert_same(everything(adapter), known, but=("counts", "shape"))


def test_gradients_that_hold_channels_last_are_followed_alike() -> None:
    """Fused optimisers, which CUDA devices have, read gradients in the order of memory of the parameters."""
    learnt = []
    for order in (torch.contiguous_format, torch.channels_last):
        adapter = adapt(convolutional(), "cotta", lr=0.1)
        adapter.optimizer = torch.optim.SGD(list(adapter.trained.values()), lr=0.1, fused=True)
        generator = torch.Generator().manual_seed(0)
        gradients = [torch.randn(parameter.shape, generator=generator) for parameter in adapter.trained.values()]
        adapter.descend([each.to(memory_format=order) if each.ndim == 4 else each for each in gradients])
        assert adapter.updates == 1
        learnt.append(adapter.trained)
    torch.testing.assert_close(learnt[1], learnt[0])
