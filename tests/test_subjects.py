"""The front door: what is loaded, matched, mixed and fingerprinted, here and elsewhere."""

import pickle
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import nn

from shiftproof.data import load_data
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.models import load_model
from shiftproof.runs import Row, Task
from shiftproof.subjects import Measurer, Subject


def demo(**options: Any) -> Subject:
    return Subject.of("demo", "demo", **{"images": 8, "device": "cpu", **options})


def test_a_worker_that_loads_something_else_is_refused() -> None:
    subject = demo()
    prints = subject.fingerprints
    assert replace(subject, expected=prints).fingerprints == prints
    with pytest.raises(DataError, match="another set of inputs than the driver"):
        _ = replace(demo(seed=1), expected=prints).fingerprints
    with pytest.raises(DataError, match="another model than the driver"):
        _ = replace(subject, expected={"model": "0123"}).fingerprints


def test_it_travels_without_what_it_loaded_and_expects_the_same_elsewhere() -> None:
    subject = demo()
    prints = subject.fingerprints
    packed = pickle.dumps(subject)
    assert len(packed) < 10_000
    arrived = pickle.loads(packed)
    assert arrived.expected == prints
    assert arrived.fingerprints == prints


def test_the_chosen_images_are_a_sample_in_a_keyed_order() -> None:
    subject = demo(images=50, seed=3)
    whole = load_data("demo")
    assert subject.data.keys.tolist() == whole.take(50, seed=3).keys.tolist()
    assert torch.equal(whole.keys[subject.places], subject.data.keys)
    assert subject.taking(20).data.keys.tolist() == whole.take(20, seed=3).keys.tolist()
    assert subject.taking(20).identity == subject.identity


def test_other_batches_share_what_is_loaded() -> None:
    subject = demo()
    model, data = subject.model, subject.data
    other = subject.at_batch_size(3)
    assert other.batch_size == 3
    assert subject.batch_size == 64
    assert other.model is model
    assert other.data is data


@dataclass(frozen=True)
class Reveals(Task[Subject]):
    """A task that tells which model it looked into."""

    kind = "reveals"
    number: int

    def measure(self, subject: Subject) -> Row:
        return {"model": id(subject.inner_model), "batch": subject.batch_size}


def test_what_a_task_loads_is_kept_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[nn.Module] = []

    def copied(*_: object) -> nn.Module:
        made.append(nn.Identity())
        return made[-1]

    monkeypatch.setattr("shiftproof.subjects.LARGE_SIDE", 1)
    monkeypatch.setattr("shiftproof.subjects.in_channels_last", copied)
    worker = Measurer(demo(batch_size=4))
    assert worker.measure(Reveals(0)) == worker.measure(Reveals(1))
    assert len(made) == 1


def test_labels_are_outputs_of_the_model() -> None:
    whole = load_data("demo")
    named = load_data((next(whole.batches(4)).inputs, [1, 0, 2, 1]), classes=["dog", "cat", "ship"])
    refused = Subject.of("demo", named, device="cpu")
    with pytest.raises(DataError, match="not match the model"):
        _ = refused.data


def test_names_and_bad_choices() -> None:
    assert demo().name == "demo"
    assert Subject.of(load_model("demo"), "demo", device="cpu").name == "ResNet"
    with pytest.raises(ConfigurationError, match="batch size"):
        demo(batch_size=0)
    with pytest.raises(DataError, match="Images are needed, not texts"):
        _ = Subject.of("demo", ["a text", "another"], device="cpu").loaded_data
