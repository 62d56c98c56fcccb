"""The shell: state, resets, windows, bad batches, and the promise that the user's model is never changed."""

from __future__ import annotations

import copy
import io
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from shiftproof.adapters import METHODS, adapt
from shiftproof.adapters.adapter import _distinct
from shiftproof.errors import DataError, ModelError
from tests.adapters.networks import (
    LEARNING,
    assert_same,
    convolutional,
    everything,
    small,
    stream,
    transformer,
)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", METHODS)
def test_state_continues_bit_for_bit_in_a_fresh_adapter(name: str) -> None:
    batches = stream(4)
    first = small(name)
    for batch in batches[:2]:
        first(batch)
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    expected = [first(batch) for batch in batches[2:]]
    file.seek(0)
    second = small(name)
    second.load_state_dict(torch.load(file, weights_only=True))
    for batch, logits in zip(batches[2:], expected, strict=True):
        assert torch.equal(second(batch), logits)
    assert_same(everything(first), everything(second))


@pytest.mark.parametrize("name", METHODS)
def test_reset_restores_everything(name: str) -> None:
    adapter = small(name)
    start = everything(adapter)
    logits = [adapter(batch) for batch in stream(2)]
    if name in LEARNING:
        assert adapter.updates > 0
    adapter.reset()
    assert_same(everything(adapter), start, but=("counts", "shape"))
    adapter.steps = 0  # randomness is keyed by the step
    if name != "rdumb":
        assert torch.equal(adapter(stream(2)[0]), logits[0])


@pytest.mark.parametrize("name", ["source", "lame", "t3a", "foa", "prior"])
def test_reset_where_nothing_of_the_network_changes(name: str) -> None:
    adapter = adapt(convolutional(lambda channels: nn.GroupNorm(2, channels)), name, reset=2)
    batches = stream(3)
    for batch in batches:
        adapter(batch)
    assert adapter.resets == 1
    adapter.reset()
    assert (adapter.resets, adapter.memory) == (2, {})


@pytest.mark.parametrize("name", METHODS)
def test_model_of_the_user_is_never_changed(name: str) -> None:
    model = convolutional()
    model[3].requires_grad_(False)
    model[4].train()
    before = copy.deepcopy(model)
    adapter = small(name, model)
    for batch in stream(2):
        adapter(batch)
    adapter(torch.full_like(stream(1)[0], math.nan))
    for (key, old), new in zip(before.state_dict().items(), model.state_dict().values(), strict=True):
        assert torch.equal(old, new), key
    for old_parameter, parameter in zip(before.parameters(), model.parameters(), strict=True):
        assert old_parameter.requires_grad == parameter.requires_grad
        assert parameter.grad is None
    assert [module.training for module in before.modules()] == [module.training for module in model.modules()]
    assert adapter.source is model


ACTIONS = st.lists(st.sampled_from(["adapt", "predict", "save", "load", "reset", "bad"]), min_size=1, max_size=9)


@pytest.mark.parametrize("name", ["bn", "eata", "cotta", "rotta", "cmf", "t3a", "slr"])
@given(actions=ACTIONS)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_interleaving_is_a_replay_of_what_counts(name: str, actions: list[str]) -> None:
    """The state is that of an adapter which only did what the saves, loads and resets left standing."""
    options: dict[str, Any] = {"statistics": "cumulative"} if name == "bn" else {}
    adapter = small(name, **options)
    batches = stream(len(actions), size=4)
    history: list[str | int] = []
    saved: tuple[dict[str, Any], list[str | int]] | None = None
    for place, action in enumerate(actions):
        match action:
            case "adapt":
                adapter(batches[place])
                history.append(place)
            case "bad":
                adapter(torch.full_like(batches[place], math.inf))
                history.append("bad")
            case "predict":
                adapter.predict(batches[place])
            case "reset":
                adapter.reset()
                history.append("reset")
            case "save":
                saved = adapter.state_dict(), list(history)
            case "load" if saved is not None:
                adapter.load_state_dict(saved[0])
                history = list(saved[1])
    replayed = small(name, **options)
    for event in history:
        if event == "reset":
            replayed.reset()
        elif event == "bad":
            replayed(torch.full_like(batches[0], math.inf))
        else:
            replayed(batches[int(event)])
    assert_same(everything(adapter), everything(replayed))


@pytest.mark.parametrize("name", METHODS)
def test_predicting_changes_nothing(name: str) -> None:
    adapter = small(name)
    first, second = stream(2)
    adapter(first)
    known = everything(adapter)
    assert torch.equal(adapter.predict(second), adapter.predict(second))
    assert_same(everything(adapter), known)


@pytest.mark.parametrize("name", ["bn", "tent", "eta", "deyo", "cotta"])
def test_single_images_with_a_window(name: str) -> None:
    """With a window, one image at a time is normalised as part of the last ones."""
    still: dict[str, Any] = {} if name == "bn" else {"lr": 0.0}
    adapter = small(name, window=8, **still)
    images = torch.cat(stream(2))
    answers = torch.cat([adapter(image[None]) for image in images])
    assert answers.shape == (16, 5)
    if name in ("bn", "tent"):
        batch = adapt(convolutional(), "bn")
        torch.testing.assert_close(answers[7], batch(images[:8])[7])
        torch.testing.assert_close(answers[12], batch(images[5:13])[7])
    assert len(adapter.memory["recent"]) == 8


def test_a_batch_of_one_is_warned_of() -> None:
    image = stream(1)[0][:1]
    with pytest.warns(UserWarning, match="window=16"):
        adapt(convolutional(), "tent")(image)
    quiet: dict[str, dict[str, Any]] = {"bn": {"prior": 16}, "source": {}, "tent": {"window": 4}}
    for name, options in quiet.items():
        adapt(convolutional(), name, **options)(image)
    adapt(transformer(), "tent")(image)


def test_a_partial_batch_counts_by_its_images() -> None:
    """The loss is a mean over the images there are, so that repeating them changes nothing."""
    images = stream(1, size=4)[0]
    once, twice = (adapt(convolutional().double(), "tent", lr=0.1) for _ in range(2))
    once(images.double())
    twice(images.double().repeat(2, 1, 1, 1))
    for name, parameter in once.trained.items():
        torch.testing.assert_close(parameter, twice.trained[name])


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_learning_goes_on_where_gradients_are_off(mode) -> None:
    plain, switched = small("tent", lr=0.1), small("tent", lr=0.1)
    for batch in stream(3):
        expected = plain(batch)
        with mode():
            assert torch.equal(switched(batch * 1.0), expected)
    assert switched.updates == 3


def test_a_moved_adapter_moves_all_it_has() -> None:
    adapter = small("eata")
    batches = stream(3)
    adapter(batches[0])
    adapter.double()
    for batch in batches[1:]:
        assert adapter(batch.double()).dtype == torch.float64
    adapter.reset()
    assert adapter(batches[0].double()).dtype == torch.float64


def test_bad_batches_are_refused() -> None:
    adapter = small("tent")
    for bad in (torch.rand(0, 3, 16, 16), torch.ones(2, 3, 16, 16, dtype=torch.uint8), [1, 2], torch.rand(4)):
        with pytest.raises(DataError, match="not a batch of images"):
            adapter(bad)
    adapter(stream(1)[0])
    known = everything(adapter)
    with pytest.raises(DataError, match="shape of the images changed"):
        adapter(torch.rand(4, 3, 8, 8))
    assert_same(everything(adapter), known)


def test_outputs_that_are_no_logits_are_refused() -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = convolutional()

        def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
            return self.inner(images), images

    with pytest.raises(ModelError, match="does not return logits"):
        adapt(Pair(), "bn")(stream(1)[0])
    with pytest.raises(ModelError, match="2 classes or more"):
        adapt(convolutional(classes=1), "bn")(stream(1)[0])


def test_states_of_others_are_refused_before_anything_is_loaded() -> None:
    adapter = small("tent")
    known = everything(adapter)
    with pytest.raises(DataError, match="another method"):
        adapter.load_state_dict(small("rpl").state_dict())
    other = convolutional()
    nn.init.zeros_(other[0].weight)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="another source model"):
        adapter.load_state_dict(small("tent", other).state_dict())
    assert_same(everything(adapter), known)


def test_a_state_is_a_copy() -> None:
    adapter = small("tent", lr=0.1)
    first, second = stream(2)
    adapter(first)
    state = adapter.state_dict()
    known = copy.deepcopy(state)
    adapter(second)
    name = f"model.{next(iter(adapter.trained))}"
    assert torch.equal(state[name], known[name])
    assert not torch.equal(adapter.state_dict()[name], known[name])


def test_shared_parameters_learn_once() -> None:
    model = convolutional()
    model[4].weight = model[1].weight
    adapter = small("tent", model)
    assert list(adapter.trained) == ["1.weight", "1.bias", "4.bias"]
    adapter(stream(1)[0])
    named = {"a": nn.Parameter(torch.zeros(1))}
    assert list(_distinct({**named, "b": named["a"]})) == ["a"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", METHODS)
def test_on_a_device_and_back(name: str) -> None:
    """Made on the device, saved, and loaded into one that was made on the CPU and moved."""
    first = small(name, convolutional().cuda(), reset="guard")
    batches = [batch.cuda() for batch in stream(7)]
    for batch in batches[:6]:
        assert first(batch).device.type == "cuda"
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second = small(name, reset="guard")
    second(stream(1)[0])
    second.cuda()
    second.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
    torch.testing.assert_close(second(batches[6]), first(batches[6]))


def test_weights_are_digested_only_for_a_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large model takes long, and a comparison of methods makes an adapter for each of its tasks."""
    digested: list[object] = []

    def digest(state: object) -> str:
        digested.append(state)
        return "digest"

    monkeypatch.setattr("shiftproof.adapters.adapter.digest", digest)
    adapted = adapt(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten()), "tent")
    adapted(torch.rand(8, 3, 8, 8))
    assert not digested
    for _ in range(2):
        adapted.load_state_dict(adapted.state_dict())
    assert len(digested) == 1
