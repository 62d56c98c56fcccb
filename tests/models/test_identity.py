from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from shiftproof.models import BlackBox, build_network, fingerprint, load_model
from shiftproof.models.identity import digest


def network() -> nn.Module:
    torch.manual_seed(0)
    return build_network("convnet", classes=3).eval()


class Scaled(nn.Module):
    """A layer with state of every kind: a plain attribute, a non-persistent buffer, a module."""

    table: Tensor

    def __init__(self, scale: float = 2.0) -> None:
        super().__init__()
        self.scale = scale
        self.inner = nn.Linear(3, 2)
        self.register_buffer("table", torch.zeros(2), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        out: Tensor = self.inner(images.mean((2, 3))) * self.scale + self.table
        return out


def test_is_sixteen_hexadecimal_digits() -> None:
    assert len(fingerprint(network())) == 16
    int(fingerprint(network()), 16)


def test_is_the_same_for_the_same_model() -> None:
    assert fingerprint(network()) == fingerprint(network()) == fingerprint(copy.deepcopy(network()))


def test_does_not_depend_on_mode_gradients_or_memory_layout() -> None:
    expected = fingerprint(network())
    assert fingerprint(network().train()) == expected
    assert fingerprint(network().requires_grad_(False)) == expected
    assert fingerprint(network().to(memory_format=torch.channels_last)) == expected  # type: ignore[call-overload]


def test_does_not_depend_on_how_a_version_of_pytorch_prints_a_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to 2.11 batch norms did not say whether they have a bias, 2.13's do."""
    model = nn.Sequential(nn.Conv2d(3, 4, 1, bias=False), nn.BatchNorm2d(4))
    expected = fingerprint(model)
    for bias in ("", ", bias=True"):
        text = f"4, eps=1e-05, momentum=0.1, affine=True{bias}, track_running_stats=True"
        monkeypatch.setattr(nn.BatchNorm2d, "extra_repr", lambda self, text=text: text)
        assert fingerprint(model) == expected
    assert fingerprint(nn.Linear(3, 2, bias=False)) != fingerprint(nn.Linear(3, 2))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_is_the_same_on_another_device() -> None:
    assert fingerprint(network().cuda()) == fingerprint(network())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_changes_with_the_last_bit_of_one_weight(dtype: torch.dtype) -> None:
    before, after = network().to(dtype), network().to(dtype)
    weight = after.get_parameter("linear.weight").data
    weight[1, 2] = torch.nextafter(weight[1, 2], torch.tensor(9.0, dtype=dtype))
    assert fingerprint(before) != fingerprint(after)


def test_changes_with_precision_and_buffers_and_attributes() -> None:
    torch.manual_seed(0)
    base = Scaled()
    buffered, scaled, halved = copy.deepcopy(base), copy.deepcopy(base), copy.deepcopy(base).half()
    buffered.table[1] = 1e-30
    scaled.scale = 2.5
    found = [fingerprint(model) for model in (base, buffered, scaled, halved)]
    assert len(set(found)) == 4


def test_changes_with_the_source_of_a_layer(tmp_path: Path) -> None:
    text = """
from torch import nn

class Net(nn.Module):
    def forward(self, images):
        return images.mean((2, 3)){change}

build = Net
"""
    prints = []
    for folder, change in (("a", ""), ("b", ""), ("c", " + 1")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "model.py").write_text(text.format(change=change))
        prints.append(fingerprint(load_model(f"{tmp_path}/{folder}/model.py")))
    assert prints[0] == prints[1] != prints[2]


def test_changes_with_a_function_beside_a_layer(tmp_path: Path) -> None:
    text = """
from torch import nn

def prepared(images):
    return images * {scale}

class Net(nn.Module):
    def forward(self, images):
        return prepared(images).mean((2, 3))
"""
    prints = []
    for scale in (1, 2):
        (tmp_path / f"{scale}.py").write_text(text.format(scale=scale))
        prints.append(fingerprint(load_model(f"{tmp_path}/{scale}.py:Net")))
    assert prints[0] != prints[1]


HELPER_SCALE = 2.0


def helper(images: Tensor) -> Tensor:
    return images.mean((2, 3)) * HELPER_SCALE


class TestFunctions:
    def test_count_the_functions_and_numbers_they_use(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def model(images: Tensor) -> Tensor:
            return helper(images)

        before = fingerprint(model)
        monkeypatch.setitem(globals(), "HELPER_SCALE", 3.0)
        assert fingerprint(model) != before

    def test_of_equal_source_and_data_are_equal(self) -> None:
        def make(offset: float, inner: nn.Module) -> Any:
            return lambda images: inner(images) + offset

        assert fingerprint(make(1.0, network())) == fingerprint(make(1.0, network()))
        assert fingerprint(make(1.0, network())) != fingerprint(make(2.0, network()))
        assert fingerprint(make(1.0, network())) != fingerprint(make(1.0, nn.Flatten()))

    def test_of_different_source_differ(self) -> None:
        first = lambda images: images.mean((2, 3))  # noqa: E731
        second = lambda images: images.amax((2, 3))  # noqa: E731
        assert fingerprint(first) != fingerprint(second)

    def test_partials_methods_and_objects_count_what_they_hold(self) -> None:
        class Service:
            def __init__(self, weights: Any) -> None:
                self.weights = weights

            def __call__(self, images: Tensor) -> Tensor:
                return images.mean((2, 3)) @ torch.as_tensor(self.weights)

        ones, twos = np.ones((3, 2)), np.full((3, 2), 2.0)
        assert fingerprint(Service(ones)) == fingerprint(Service(ones.copy())) != fingerprint(Service(twos))
        assert fingerprint(Service(ones).__call__) != fingerprint(Service(twos).__call__)
        assert fingerprint(functools.partial(pow, exp=2)) != fingerprint(functools.partial(pow, exp=3))

    def test_of_a_black_box_is_its_functions_or_as_given(self) -> None:
        def service(images: Tensor) -> Tensor:
            return images.mean((2, 3))

        assert fingerprint(BlackBox(service)) == fingerprint(service)
        first, second = (BlackBox(service, fingerprint=version) for version in ("v1", "v2"))
        assert len(fingerprint(first)) == 16
        assert fingerprint(first) != fingerprint(second)


def test_digest_ends_for_objects_that_refer_to_themselves() -> None:
    class Node:
        pass

    node: Any = Node()
    node.self = node
    assert len(digest(node)) == 16


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["ab", "c"], ["a", "bc"]),
        ([1, [2]], [[1], 2]),
        (1, "1"),
        (1, 1.0),
        ({1: 2}, [1, 2]),
        ({1, 2}, {1, 3}),
        (None, ()),
    ],
)
def test_digest_tells_values_apart(one: object, other: object) -> None:
    assert digest(one) != digest(other)
