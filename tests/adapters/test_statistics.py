"""The prior chosen by Proposition 1 or on hold-out corruptions, and exact statistics of a whole target set."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import nn

from shiftproof import load_data, load_model, shifts
from shiftproof.adapters import adapt, choose_prior
from shiftproof.errors import ConfigurationError
from shiftproof.measures import optimal_prior
from shiftproof.models import collect_statistics, source_statistics
from tests.adapters.networks import convolutional, stream


def demo() -> nn.Module:
    model = load_model("demo")
    assert isinstance(model, nn.Module)
    return model


def test_auto_is_the_prior_of_the_first_batch_until_a_reset() -> None:
    model, (first, second, *_) = convolutional(), stream(3)
    expected = optimal_prior(source_statistics(model), collect_statistics(model, [first]), n=len(first))
    assert 0 < expected < math.inf
    automatic, fixed = adapt(model, "bn", prior="auto"), adapt(model, "bn", prior=expected)
    assert torch.equal(automatic.predict(first), fixed(first))
    assert automatic.memory == {}
    for images in (first, second):
        assert torch.equal(automatic(images), fixed(images))
    assert float(automatic.memory["prior"]) == expected
    automatic.reset()
    assert "prior" not in automatic.memory


def test_auto_survives_saving_and_loading() -> None:
    model, (first, second, *_) = convolutional(), stream(3)
    one = adapt(model, "bn", prior="auto")
    one(first)
    other = adapt(model, "bn", prior="auto")
    other.load_state_dict(one.state_dict())
    assert torch.equal(one(second), other(second))


@pytest.mark.parametrize("prior", [0, 24, math.inf])
def test_full_statistics_are_those_of_the_whole_set_mixed_with_the_source(prior: float) -> None:
    model, batches = convolutional(), stream(3)
    images = torch.cat(batches)
    share = 1.0 if math.isinf(prior) else prior / (prior + len(images))
    expected = copy.deepcopy(model).eval()
    norms = dict(expected.named_modules())
    for layer in collect_statistics(model, batches, exact=True):
        norm = norms[layer.name]
        for buffer, values in ((norm.running_mean, layer.mean), (norm.running_var, layer.var)):
            buffer.copy_(share * buffer + (1 - share) * torch.from_numpy(values).to(buffer))
    adapter = adapt(model, "bn", statistics="full", target=images, prior=prior)
    torch.testing.assert_close(adapter(batches[1]), expected(batches[1]))
    again = adapter(batches[1][:1])  # single images too: nothing is taken from the batch
    torch.testing.assert_close(again, expected(batches[1][:1]))
    adapter.reset()
    torch.testing.assert_close(adapter(batches[1]), expected(batches[1]))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"statistics": "full"}, "need its images"),
        ({"target": torch.zeros(1, 3, 8, 8)}, "needs statistics='full'"),
        ({"prior": "auto", "statistics": "ema"}, "single batches"),
        ({"prior": "best"}, "number of images"),
        ({"statistics": "median"}, "no such statistics"),
    ],
)
def test_refusals(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        adapt(convolutional(), "bn", **options)


def test_a_prior_chosen_on_hold_out_corruptions_serves_small_batches() -> None:
    model, data = demo(), load_data("demo").take(96)
    choice = choose_prior(model, data, batch=4, severity=5.0, priors=(0, 4, 16, 1e9))
    assert set(choice.accuracies) == {0, 4, 16, 1e9}
    assert choice.best in (4, 16)  # the extremes are the batch of 4 alone, and the source alone
    assert choice.accuracies[choice.best] == max(choice.accuracies.values())
    by_hand = adapt(model, "bn", prior=16)
    hits = total = 0
    for name in shifts.names("holdout"):
        for part in data.batches(4):
            images = shifts.corruption(name, 5.0)(part.inputs, part.keys)
            assert part.labels is not None
            hits += int((by_hand(images).argmax(1) == part.labels).sum())
            total += len(images)
    assert choice.accuracies[16] == hits / total


def test_a_prior_cannot_be_chosen_without_labels() -> None:
    data = load_data("demo").take(20)
    data.labels = None
    with pytest.raises(Exception, match="labels"):
        choose_prior(demo(), data)
