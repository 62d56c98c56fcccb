"""The shell: state, resets, windows, bad batches, and the promise that the user's model is never changed."""

from __future__ import annotations

import copy
import io
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from shiftproof.adapters import METHODS, Adapter, adapt, method
from shiftproof.adapters.adapter import _distinct
from shiftproof.errors import DataError, ModelError
from tests.adapters.networks import SMALL, Flat, convolutional, stream, transformer

LEARNING = [name for name in METHODS if name not in ("source", "bn", "lame", "t3a")]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def small(name: str, model: nn.Module | None = None, **options: Any) -> Adapter:
    return adapt(model or convolutional(), name, **{**SMALL.get(name, {}), **options})


def everything(adapter: Adapter) -> dict[str, Any]:
    """Return the whole state, flat."""
    found: dict[str, Any] = {}

    def walk(name: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(f"{name}/{key}", inner)
        elif isinstance(value, list | tuple):
            walk(name, dict(enumerate(value)))
        else:
            found[name] = value

    walk("", dict(adapter.state_dict()))
    return found


def assert_same(first: dict[str, Any], second: dict[str, Any], *, but: tuple[str, ...] = ()) -> None:
    first, second = (
        {name: value for name, value in state.items() if not any(part in name for part in but)}
        for state in (first, second)
    )
    assert first.keys() == second.keys()
    for name, value in first.items():
        same = torch.equal(value, second[name]) if isinstance(value, Tensor) else value == second[name]
        assert same, name


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


@pytest.mark.parametrize("name", ["eta", "eata", "rdumb", "sar", "deyo"])
def test_an_empty_filtered_batch_is_no_update(name: str) -> None:
    adapter = small(name)
    first, second = stream(2)
    adapter(first)
    assert adapter.updates == 1  # so that there is momentum
    known = everything(adapter)
    adapter.parts = adapter.method.parts(type(adapter.options)({**adapter.options, "entropy_margin": 0.0}))
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


@pytest.mark.parametrize("name", ["tent", "cotta", "memo"])
def test_dropout_stays_off(name: str) -> None:
    one, other = small(name), small(name)
    one.train()
    other.model.apply(lambda module: setattr(module, "p", 0.0) if isinstance(module, nn.Dropout) else None)
    for batch in stream(2):
        assert torch.equal(one(batch), other(batch))
    assert not any(module.training for module in one.model.modules())


MODELS: dict[str, Callable[[], nn.Module]] = {
    "group": lambda: convolutional(lambda channels: nn.GroupNorm(2, channels)),
    "instance": lambda: convolutional(lambda channels: nn.InstanceNorm2d(channels, affine=True)),
    "transformer": transformer,
    "two classes": lambda: convolutional(classes=2),
    "thousand classes": lambda: convolutional(classes=1000),
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", METHODS)
def test_every_method_on_every_kind_of_model(name: str, model: str) -> None:
    net = MODELS[model]()
    adapter = small(name, net)
    for batch in stream(2):
        logits = adapter(batch)
        assert logits.shape == net(batch).shape
        assert bool(logits.isfinite().all())
    assert adapter.skipped == 0
    if name in LEARNING:
        assert adapter.updates > 0


@pytest.mark.parametrize("kind", ["1d", "3d"])
@pytest.mark.parametrize("name", ["bn", "tent", "eata", "sar", "slr"])
def test_other_dimensions(name: str, kind: str) -> None:
    torch.manual_seed(0)
    layers: list[nn.Module] = (
        [nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4)]
        if kind == "1d"
        else [nn.Conv3d(2, 4, 2), nn.BatchNorm3d(4), nn.ReLU(), Flat(), nn.Linear(4, 4)]
    )
    adapter = small(name, nn.Sequential(*layers))
    for batch in stream(2, shape=(6,) if kind == "1d" else (2, 3, 3, 3)):
        assert adapter(batch).shape == (8, 4)
    assert adapter.skipped == 0


def test_frozen_parameters_of_the_user_still_learn_in_the_copy() -> None:
    model = convolutional().requires_grad_(False)
    adapter = small("tent", model)
    adapter(stream(1)[0])
    assert adapter.updates == 1
    assert not any(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("name", ["source", "bn", "tent", "eata", "cotta", "rotta", "lame", "t3a"])
def test_reduced_precision(name: str) -> None:
    options: dict[str, Any] = {"prior": 4} if name == "bn" else {}
    full, reduced = small(name, **options), small(name, amp="bfloat16", **options)
    for batch in stream(2):
        exact, rough = full(batch), reduced(batch)
        assert rough.dtype == torch.float32
        torch.testing.assert_close(rough, exact, atol=0.1, rtol=0.1)
    assert all(parameter.dtype == torch.float32 for parameter in reduced.trained.values())
    assert reduced.skipped == 0


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
    with pytest.raises(DataError, match="changed their shape"):
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


def test_an_unused_layer_is_no_obstacle() -> None:
    class Spare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.spare = convolutional(), nn.BatchNorm2d(3)

        def forward(self, images: Tensor) -> Tensor:
            return self.used(images)  # type: ignore[no-any-return]

    for name in ("tent", "sar", "eata", "cotta", "rotta"):
        adapter = small(name, Spare())
        for batch in stream(2):
            adapter(batch)
        assert adapter.updates == 2


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
