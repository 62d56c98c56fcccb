"""Reduced precision is another model: near the first, and told apart."""

import pytest
import torch

from shiftproof.adapters import adapt
from shiftproof.errors import ModelError
from shiftproof.models import fingerprint, load_model
from shiftproof.models.precision import reduced


def test_answers_are_near_and_in_float32():
    model, images = load_model("demo"), torch.rand(4, 3, 32, 32)
    low = reduced(model)
    with torch.inference_mode():
        exact, rough = model(images), low(images)
    assert rough.dtype == torch.float32
    assert not torch.equal(exact, rough)
    torch.testing.assert_close(rough, exact, atol=0.3, rtol=0.05)
    assert fingerprint(low) != fingerprint(model)


def test_it_adapts():
    low = reduced(load_model("demo"))
    adapted = adapt(low, "tent")
    adapted(torch.rand(8, 3, 32, 32))
    assert adapted.updates == 1


def test_a_black_box_has_settings_of_its_own():
    with pytest.raises(ModelError, match="--amp"):
        reduced(lambda images: images.mean((1, 2, 3)))
