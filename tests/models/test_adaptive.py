"""What adapts says so by its class: models whose attributes have the names of an adapter's are plain models."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from shiftproof import adapt, certify, evaluate, load_data, load_model
from shiftproof.errors import ModelError
from shiftproof.models import Adaptive
from shiftproof.streams import make_stream


class LooksAdaptive(nn.Module):
    """A plain module with all the attributes that adapters have."""

    def __init__(self):
        super().__init__()
        self.source = load_model("demo")
        self.method, self.options, self.steps, self.resets = "mine", {}, 3, 7
        self.gradients: list[bool] = []

    def reset(self):
        """Do nothing."""

    def announce(self, shift):
        """Fail: nobody has asked to hear of shifts."""
        raise AssertionError("a plain module hears of no shifts")

    def forward(self, images):
        """Answer as the source does, and note whether gradients are on."""
        self.gradients.append(torch.is_grad_enabled())
        return self.source(images)


class Counting(Adaptive):
    """Adds its number of batches to the scores of the first class: its answers depend on what it has seen."""

    seen: Tensor

    def __init__(self):
        super().__init__()
        inside: Any = load_model("demo")
        self.source = inside
        self.register_buffer("seen", torch.zeros(()))
        self.heard: list[str] = []

    @property
    def updates(self):
        return int(self.seen)

    def announce(self, shift):
        self.heard.append(shift)

    def forward(self, images):
        assert torch.is_grad_enabled()
        self.seen += 1
        return self.source(images).detach() + self.seen * nn.functional.one_hot(torch.tensor(0), 10)


def along():
    return make_stream("concatenated", load_data("demo").take(64), shifts=["fog", "contrast"], length=64, batch_size=8)


def test_a_plain_module_is_evaluated_as_one(tmp_path):
    model = LooksAdaptive()
    trace = evaluate(model, along(), out=tmp_path, chunk=2)
    assert not any(model.gradients)
    assert not list(tmp_path.glob("state-*"))
    assert (trace.resets, trace.right) == (0, evaluate(model.source, along()).right)


def test_a_plain_module_is_certified():
    options: dict[str, Any] = {"sigma": 0.05, "n": 100, "n0": 10, "images": 4}
    found = certify(LooksAdaptive().eval(), "demo", **options)
    assert found.certificates == certify("demo", "demo", **options).certificates


def test_what_derives_from_the_marker_learns_is_resumed_and_not_certified(tmp_path):
    def stop(done, total, result):
        if done == 2:
            raise KeyboardInterrupt

    model = Counting()
    whole = evaluate(model, along())
    assert len(model.heard) == model.updates == 8
    with pytest.raises(KeyboardInterrupt):
        evaluate(Counting(), along(), out=tmp_path, chunk=2, on_progress=stop)
    again = Counting()
    resumed = evaluate(again, along(), out=tmp_path, chunk=2)
    assert len(again.heard) < again.updates == 8
    assert resumed.right == whole.right
    with pytest.raises(ModelError, match="adapts"):
        certify(Counting().eval(), "demo", sigma=0.05, n=100, n0=10, images=4)


def test_adapters_are_marked_and_told_apart_by_what_they_begin_with():
    demo: Any = load_model("demo")
    one, same, other = adapt(demo, "tent"), adapt(demo, "tent"), adapt(demo, "tent", lr=0.5)
    assert isinstance(one, Adaptive)
    assert one.identity() == same.identity() != other.identity()
