"""What is particular to each method, against its formulas written out once more."""

from __future__ import annotations

import copy
import math
from collections import Counter
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from shiftproof import shifts
from shiftproof.adapters import adapt, cotta, losses, views
from shiftproof.adapters.deyo import shuffle_patches
from shiftproof.adapters.lame import laplacian_smoothing
from shiftproof.adapters.rotta import Bank, Entry
from shiftproof.adapters.t3a import surest
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.keyed import Keyed
from tests.adapters.networks import convolutional, stream


def in_training(model: nn.Module) -> nn.Module:
    """Return a copy that normalises with batch statistics, its dropout off."""
    model = copy.deepcopy(model)
    for module in model.modules():
        module.train(isinstance(module, nn.BatchNorm2d))
    return model


@given(st.integers(0, 1000), st.integers(8, 19), st.integers(8, 19))
@settings(max_examples=20, deadline=None)
def test_patch_shuffling_is_a_permutation(seed: int, height: int, width: int) -> None:
    images = torch.arange(2 * 3 * height * width, dtype=torch.float64).view(2, 3, height, width)
    orders = Keyed(seed, [0, 1]).permutation(16)
    shuffled = shuffle_patches(images, orders)
    assert torch.equal(shuffled.flatten(2).sort(2).values, images.flatten(2))
    inverse = orders.argsort(1)
    assert torch.equal(shuffle_patches(shuffled, inverse), images)
    assert torch.equal(shuffled[:, :, height // 4 * 4 :], images[:, :, height // 4 * 4 :])


def test_fisher_is_the_mean_squared_gradient_and_pulls_back() -> None:
    model, (images, *_) = convolutional().double(), stream(1)
    images = images.double()
    adapter = adapt(model, "eata", entropy_margin=9.0, similarity=1.0, fisher=[images[:4], images[4:]], lr=0.0)
    adapter(images)
    plain = in_training(model)
    squares = []
    for part in (images[:4], images[4:]):
        logits = plain(part)
        loss = F.cross_entropy(logits, logits.argmax(1))
        squares.append([g.square() for g in torch.autograd.grad(loss, [plain[1].weight, plain[4].bias])])  # type: ignore[index]
    for name, first, second in zip(("1.weight", "4.bias"), *squares, strict=True):
        torch.testing.assert_close(adapter.memory[f"fisher/{name}"] / 2, (first + second) / 2)
    with pytest.raises(ConfigurationError, match="no images for the Fisher"):
        adapt(model, "eata", entropy_margin=9.0, similarity=1.0, fisher=[])(images)


def test_fisher_of_the_stream_stops_after_enough_images() -> None:
    adapter = adapt(convolutional(), "eata", entropy_margin=9.0, similarity=1.0, fisher_images=12)
    known = []
    for batch in stream(4):
        adapter(batch)
        known.append(adapter.memory["fisher/1.weight"])
    assert not torch.equal(known[0], known[1])
    assert torch.equal(known[1], known[3])


def test_the_released_fisher_is_taken_at_the_start_from_all_first_images() -> None:
    model, batches = convolutional().double(), [batch.double() for batch in stream(4)]
    options: dict[str, Any] = {"entropy_margin": 9.0, "similarity": 1.0, "lr": 0.1, "fisher_images": 16}
    online = adapt(model, "eata", variant="release", **options)
    beforehand = adapt(model, "eata", fisher=batches[:2], **options)
    unsure = adapt(model, "eata", variant="release", **{**options, "entropy_margin": 0.0})
    moving = adapt(model, "eata", **options)
    for batch in batches:
        for adapter in (online, beforehand, unsure, moving):
            adapter(batch)
    for name in online.trained:
        expected = beforehand.memory[f"fisher/{name}"]
        torch.testing.assert_close(online.memory[f"fisher/{name}"], expected)
        torch.testing.assert_close(unsure.memory[f"fisher/{name}"], expected)
    assert unsure.updates == 0
    assert not torch.allclose(moving.memory["fisher/4.weight"], beforehand.memory["fisher/4.weight"])


def test_cotta_step_by_its_formulas() -> None:
    model, batches = convolutional().double(), [batch.double() for batch in stream(3)]
    adapter = adapt(model, "cotta", confidence=0.0, restore=0.0, lr=0.1, keep_weights=0.9)
    student, teacher = in_training(model), in_training(model)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    for batch in batches:
        with torch.no_grad():
            target = teacher(batch)
        torch.testing.assert_close(adapter(batch), target)
        optimizer.zero_grad()
        losses.cross_entropy(student(batch), target).mean().backward()
        optimizer.step()
        with torch.no_grad():
            for old, new in zip(teacher.parameters(), student.parameters(), strict=True):
                old.mul_(0.9).add_(new, alpha=0.1)
    torch.testing.assert_close(adapter.predict(batches[0]), teacher(batches[0]).detach())


def test_cotta_averages_views_when_the_anchor_is_unsure() -> None:
    model, (images, *_) = convolutional(), stream(1)
    logits = adapt(model, "cotta", confidence=1.1, views=3, variant="release")(images)
    adapter = adapt(model, "cotta", confidence=1.1, views=3)
    plain = in_training(model)
    seen = [plain(views.view(views.jitter, images, adapter, number)).detach() for number in range(3)]
    torch.testing.assert_close(logits, torch.stack(seen).mean(0))
    torch.testing.assert_close(adapter(images).exp(), torch.stack(seen).softmax(2).mean(0))


def test_views_of_cotta_go_through_together_as_they_do_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    model, images = convolutional(), stream(1)[0].double()
    answers = {}
    for at_once in (1, 2, 5):
        monkeypatch.setattr(cotta, "together", lambda images, at_once=at_once: at_once)
        adapter = adapt(copy.deepcopy(model).double(), "cotta", confidence=1.1, views=5)
        answers[at_once] = adapter(images), adapter(images)
    for at_once in (2, 5):
        for one, other in zip(answers[1], answers[at_once], strict=True):
            assert torch.allclose(one, other, rtol=0, atol=1e-9)


def test_cotta_takes_what_is_no_image_with_views_of_ones_own() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 5)).eval()
    adapter = adapt(model, "cotta", confidence=1.1, views=3, augment=lambda given, keys, seed: given + 0.01)
    assert adapter(torch.rand(8, 6)).shape == (8, 5)
    assert adapter.updates == 1


def test_cotta_restores_a_random_share_keyed_by_step() -> None:
    batches = stream(2)
    one, other, whole = (
        adapt(convolutional(), "cotta", confidence=1.1, views=2, restore=share, lr=1.0) for share in (0.3, 0.3, 1.0)
    )
    restored = []
    for batch in batches:
        for adapter in (one, other, whole):
            adapter(batch)
        weight, start = one.trained["3.weight"].detach(), one.starts["3.weight"]
        assert torch.equal(weight, other.trained["3.weight"])
        restored.append(weight == start)
    assert 0.2 < restored[0].double().mean().item() < 0.4
    assert not torch.equal(restored[0], restored[1])
    for name, parameter in whole.trained.items():
        assert torch.equal(parameter, whole.starts[name])


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 1.3)), max_size=60), st.integers(4, 12))
@settings(max_examples=50, deadline=None)
def test_bank_is_balanced_and_bounded(seen: list[tuple[int, float]], capacity: int) -> None:
    bank = Bank(capacity, 4, [])
    for place, (label, doubt) in enumerate(seen):
        bank.add(Entry(place, label, doubt))
    counts = Counter(entry.label for entry in bank.entries)
    assert len(bank.entries) <= capacity
    assert all(count <= math.ceil(capacity / 4) for count in counts.values())
    assert len({entry.place for entry in bank.entries}) == len(bank.entries)
    assert all(entry.age == len(seen) - entry.place for entry in bank.entries)


def test_bank_prefers_the_new_and_the_sure() -> None:
    bank = Bank(2, 2, [Entry(0, 0, 0.5, age=9)])
    bank.add(Entry(1, 0, 0.1))
    assert [entry.place for entry in bank.entries] == [1]
    bank.add(Entry(2, 0, 0.6))  # less sure than the one there
    assert [entry.place for entry in bank.entries] == [1]
    bank.add(Entry(3, 1, 0.6))  # of a class with room
    assert [entry.place for entry in bank.entries] == [1, 3]


def test_rotta_answers_with_slow_statistics_and_a_teacher() -> None:
    model, batches = convolutional().double(), [batch.double() for batch in stream(2)]
    adapter = adapt(model, "rotta", capacity=64, update_every=8, ema=0.25, lr=0.1, keep_weights=0.5)
    torch.testing.assert_close(adapter(batches[0]), model(batches[0]))
    assert adapter.updates == 1
    bank = adapter.memory["bank/images"]
    mean = 0.75 * model[1].running_mean + 0.25 * model[0](bank).mean((0, 2, 3))  # type: ignore[operator]
    torch.testing.assert_close(adapter.memory["teacher/1.target_mean"], mean.detach())
    halfway = (adapter.starts["1.bias"] + adapter.trained["1.bias"]) / 2
    torch.testing.assert_close(adapter.memory["teacher/1.bias"], halfway.detach())
    assert not torch.equal(adapter(batches[1]), model(batches[1]))


def test_rotta_waits_for_enough_images() -> None:
    adapter = adapt(convolutional(), "rotta", update_every=20)
    updates = []
    for batch in stream(6):
        adapter(batch)
        updates.append(adapter.updates)
    assert updates == [0, 0, 1, 1, 2, 2]


def test_memo_treats_every_image_alone() -> None:
    images = stream(1)[0]
    adapter = adapt(convolutional(), "memo", views=4, lr=0.5, prior=math.inf)
    logits = adapter(images)
    assert adapter.updates == len(images)
    for name, tensor in adapter.changing().items():
        assert torch.equal(tensor, adapter.starts[name])
    torch.testing.assert_close(adapt(convolutional(), "memo", views=4, lr=0.5, prior=math.inf)(images[:3]), logits[:3])
    torch.testing.assert_close(adapter.predict(images), convolutional()(images))


def test_memo_lowers_the_entropy_of_the_mean_answer() -> None:
    image = stream(1)[0][:1]

    def flips(images: Tensor, keys: Tensor, *, seed: int = 0) -> Tensor:
        return torch.where((keys % 2 == 0).view(-1, 1, 1, 1), images, images.flip(3))

    entropies = []
    for rate in (0.0, 0.05):
        adapter = adapt(convolutional(), "memo", augment=flips, views=2, lr=rate, prior=math.inf)
        entropies.append(losses.entropy(adapter(image)).item())
    assert entropies[1] < entropies[0]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(1, 6), st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_surest_keeps_the_least_entropies_of_each_class(labels: list[int], count: int, seed: int) -> None:
    entropies = torch.rand(len(labels), generator=torch.Generator().manual_seed(seed))
    kept = surest(entropies, torch.tensor(labels), count).tolist()
    expected: list[int] = []
    for label in set(labels):
        of_class = [place for place, each in enumerate(labels) if each == label]
        expected += sorted(of_class, key=lambda place: entropies[place].item())[:count]
    assert kept == sorted(expected)


def test_t3a_starts_as_the_classifier_without_lengths() -> None:
    model, (images, *_) = convolutional(), stream(1)
    features = model[:-1](images)
    head = model[-1]
    assert isinstance(head, nn.Linear)
    prototypes = F.normalize(head.weight.detach(), dim=1)
    adapter = adapt(model, "t3a", supports=3)
    torch.testing.assert_close(adapter.predict(images), features @ prototypes.T)
    adapter(images)
    counts = torch.bincount(adapter.memory["labels"], minlength=5)
    assert int(counts.max()) <= 3
    assert int(counts.sum()) > 5


def test_cmf_is_a_kalman_filter_between_source_and_target() -> None:
    batches = stream(3)
    options: dict[str, Any] = {"lr": 0.1, "consistency": False}
    adapter = adapt(convolutional(), "cmf", keep_hidden=0.9, noise=0.1, keep_weights=0.6, **options)
    start = adapter.starts["1.bias"]
    hidden, variance = start, 0.0
    for batch in batches:
        bare = copy.deepcopy(adapter)
        bare.parts = adapt(convolutional(), "roid", keep_weights=1.0, **options).parts
        bare(batch)
        stepped = bare.trained["1.bias"].detach()
        adapter(batch)
        variance = 0.81 * variance + 0.1
        gain = variance / (variance + 0.9)
        variance = (1 - gain) * variance
        hidden = 0.9 * hidden + 0.1 * start
        hidden = hidden + gain * (stepped - hidden)
        torch.testing.assert_close(adapter.trained["1.bias"].detach(), 0.6 * stepped + 0.4 * hidden)
        assert float(adapter.memory["hidden_variance"]) == pytest.approx(variance)


def test_sar_moves_back_exactly_before_it_steps() -> None:
    adapter = adapt(convolutional(), "sar", entropy_margin=9.0, lr=0.0, rho=10.0, recover_below=-1.0)
    adapter(stream(1)[0])
    assert adapter.updates == 1
    for name, parameter in adapter.trained.items():
        assert torch.equal(parameter, adapter.starts[name])


def test_laplacian_smoothing_moves_neighbours_together() -> None:
    p = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.45, 0.55]], dtype=torch.float64)
    alone = laplacian_smoothing(p, torch.zeros(3, 3, dtype=torch.float64))
    torch.testing.assert_close(alone, p, rtol=1e-8, atol=1e-8)
    together = laplacian_smoothing(p, torch.ones(3, 3, dtype=torch.float64))
    assert together[2, 0] > 0.5
    torch.testing.assert_close(together.sum(1), torch.ones(3, dtype=torch.float64))


def test_views_are_keyed_and_in_range() -> None:
    images = stream(1, size=6)[0]
    adapter = adapt(convolutional(), "cotta")
    for augment in (views.jitter, shifts.parse("augmix")):
        first = views.view(augment, images, adapter, 1)
        assert torch.equal(first, views.view(augment, images, adapter, 1))
        assert torch.equal(first[:2], views.view(augment, images[:2], adapter, 1))
        assert not torch.equal(first, views.view(augment, images, adapter, 2))
        assert first.dtype == images.dtype
        assert 0 <= float(first.min()) <= float(first.max()) <= 1
        assert views.view(augment, images.double(), adapter).dtype == torch.float64
    adapter.steps = 1
    assert not torch.equal(views.view(views.jitter, images, adapter, 1), first)


def test_views_are_small_changes() -> None:
    """A ramp to the right stays one to a side, a ramp downwards one downwards."""
    ramp = torch.linspace(0.2, 0.8, 32).expand(1, 3, 32, 32)
    images = torch.cat([ramp, ramp.transpose(2, 3)])
    seen = views.jitter(images.repeat(8, 1, 1, 1), torch.arange(16))
    across = seen.diff(dim=3).abs().mean((1, 2, 3)) - seen.diff(dim=2).abs().mean((1, 2, 3))
    assert bool((across[0::2] > 0).all())
    assert bool((across[1::2] < 0).all())


def test_views_of_normalised_images_are_refused() -> None:
    with pytest.raises(DataError, match="outside"):
        adapt(convolutional(), "roid")(torch.randn(8, 3, 16, 16))
