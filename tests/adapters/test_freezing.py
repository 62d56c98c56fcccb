"""A frozen copy answers as the adapter did, to single images too, and changes no more."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from shiftproof.adapters import adapt, freeze
from shiftproof.certificates import Smoothed
from shiftproof.errors import ModelError
from tests.adapters.networks import convolutional, stream

CASES: list[tuple[str, dict[str, Any]]] = [
    ("source", {}),
    ("bn", {}),
    ("bn", {"prior": 16}),
    ("bn", {"prior": "auto"}),
    ("bn", {"statistics": "ema"}),
    ("bn", {"statistics": "cumulative", "prior": 4}),
    ("tent", {"lr": 0.1}),
]


@pytest.mark.parametrize(("name", "options"), CASES)
def test_a_frozen_copy_answers_as_the_adapter_would(name: str, options: dict[str, Any]) -> None:
    first, second, third, *_ = stream(4)
    adapter = adapt(convolutional(), name, **options)
    adapter(first)
    expected = adapter.predict(second)
    frozen = freeze(adapter, second)
    assert torch.equal(adapter.predict(second), expected)  # the adapter is as it was
    torch.testing.assert_close(frozen(second), expected)
    torch.testing.assert_close(frozen(second[:1]), expected[:1])  # whatever comes with it
    adapter(third)
    frozen(third)
    torch.testing.assert_close(frozen(second), expected)
    Smoothed(frozen, sigma=0.1)  # and it can be certified


def test_methods_that_answer_otherwise_are_refused() -> None:
    adapter = adapt(convolutional(), "lame")
    (images, *_) = stream(1)
    adapter(images)
    with pytest.raises(ModelError, match="cannot be frozen"):
        freeze(adapter, images)
