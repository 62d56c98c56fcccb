from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from shiftproof.models import BlackBox, build_network, fingerprint, load_model
from shiftproof.models.identity import digest
from shiftproof.models.layer_options import stated_options


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


def test_of_a_vectorizer_does_not_depend_on_an_address() -> None:
    class Vectorizer:
        def __init__(self, address: int) -> None:
            self.vocabulary_, self._stop_words_id = {"film": 0}, address

    assert digest(Vectorizer(1)) == digest(Vectorizer(2))


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


class Config:
    def __init__(self, scale: float) -> None:
        self.scale = scale


@dataclasses.dataclass
class Settings:
    scale: float


class Holder(nn.Module):
    """A layer that holds one thing, and is printed alike whatever it is."""

    def __init__(self, held: object, name: str = "held") -> None:
        super().__init__()
        setattr(self, name, held)


def scaling(factor: float) -> Any:
    return lambda images: images * factor


PAIRED = (lambda x: x * 2, lambda x: x / 2)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 2),
        (Settings(1.0), Settings(2.0)),
        (Config(1.0), Config(2.0)),
        ({"inner": Config(1.0)}, {"inner": Config(2.0)}),
        (scaling(1.0), scaling(2.0)),
        PAIRED,
        ({1, 2}, {1, 3}),
        (torch.float32, torch.float16),
        (slice(1), slice(2)),
        (nn.functional.relu, nn.functional.silu),
        ([torch.zeros(2)], [torch.ones(2)]),
        (functools.partial(torch.clamp, min=0), functools.partial(torch.clamp, min=1)),
    ],
)
@pytest.mark.parametrize("name", ["held", "_held"])
def test_changes_with_all_that_a_layer_holds(one: object, other: object, name: str) -> None:
    def net(held: object) -> nn.Module:
        return nn.Sequential(Holder(held, name))

    assert fingerprint(net(one)) != fingerprint(net(other))
    assert fingerprint(net(one)) == fingerprint(net(copy.deepcopy(one)))


def attention(heads: int = 2) -> nn.Module:
    return nn.MultiheadAttention(16, heads, batch_first=True)


def encoder(heads: int = 2, **options: Any) -> nn.Module:
    return nn.TransformerEncoderLayer(16, heads, dim_feedforward=8, **{"batch_first": True, **options})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (attention, lambda: attention(4)),
        (encoder, lambda: encoder(4)),
        (encoder, lambda: encoder(norm_first=True)),
        (encoder, lambda: encoder(activation="gelu")),
        (encoder, lambda: encoder(batch_first=False)),
        (
            lambda: nn.Upsample(scale_factor=2, mode="bilinear"),
            lambda: nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True),
        ),
        (lambda: nn.AvgPool2d(3, padding=1), lambda: nn.AvgPool2d(3, padding=1, count_include_pad=False)),
        (lambda: nn.AvgPool2d(3), lambda: nn.AvgPool2d(3, divisor_override=2)),
    ],
)
def test_changes_with_options_that_pytorch_does_not_print(one: Any, other: Any) -> None:
    def weighed(make: Any) -> nn.Module:
        torch.manual_seed(0)
        made: nn.Module = make()
        return made

    assert repr(one()) == repr(other())
    assert fingerprint(weighed(one)) != fingerprint(weighed(other))
    assert fingerprint(weighed(one)) == fingerprint(weighed(one))


def test_of_pytorchs_layers_only_options_count_that_are_not_at_their_default() -> None:
    """What else they set follows from these, and is another in another version."""
    layer = nn.Conv2d(3, 4, 3, padding_mode="reflect")
    found = stated_options(layer)
    assert found["padding_mode"] == "reflect"
    assert found.keys() <= set(inspect.signature(nn.Conv2d).parameters)
    assert "batch_first" in stated_options(attention())
    assert "batch_first" not in stated_options(nn.MultiheadAttention(16, 2))
    layer.marked = 3  # type: ignore[assignment]
    assert stated_options(layer) == {**found, "marked": 3}


def test_changes_with_hooks_of_any_layer() -> None:
    def made(scale: float | None = None, *, before: bool = False) -> str:
        model = network()
        layer = next(layer for layer in model.modules() if isinstance(layer, nn.Conv2d))
        if scale is not None and before:
            layer.register_forward_pre_hook(lambda _, inputs: (inputs[0] * scale,))
        elif scale is not None:
            layer.register_forward_hook(lambda _, __, output: output * scale)
        return fingerprint(model)

    found = [made(), made(1.0), made(0.1), made(1.0, before=True), made(0.1, before=True)]
    assert len(set(found)) == 5
    assert made(0.1) == made(0.1)


def test_changes_with_a_number_that_a_program_holds(tmp_path: Path) -> None:
    """TorchScript's code names an attribute, whose value is elsewhere."""
    prints = []
    for number, scale in enumerate((1.0, 2.0, 1.0)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.jit.save(torch.jit.script(Scripted(scale)), tmp_path / f"{number}.ts")
        prints.append(fingerprint(load_model(tmp_path / f"{number}.ts")))
    assert prints[0] == prints[2] != prints[1]


class Scripted(nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, images: Tensor) -> Tensor:
        return images.mean((2, 3)) * self.scale


EVERYTHING = """
import dataclasses, functools, torch
from torch import nn
from helper import table

class Config:
    def __init__(self):
        self.names = {"a", "b", "c", "d"}
        self.kind = torch.float16

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.encoder = nn.TransformerEncoderLayer(16, 2, 8, activation="gelu")
        self._config = Config()
        self.scaled = lambda images: images * 2
        self.clamp = functools.partial(torch.clamp, min=0)
        self.register_forward_hook(lambda *_: None)
        self.cycle = [self]

    def forward(self, images):
        return table(images)
"""


def test_is_the_same_in_another_process_and_under_another_name(tmp_path: Path) -> None:
    prints = []
    for place, seed in (("a", "1"), ("b", "2")):
        (tmp_path / place).mkdir()
        (tmp_path / place / "model.py").write_text(EVERYTHING)
        (tmp_path / place / "helper.py").write_text("def table(images):\n    return images.mean((2, 3))\n")
        code = f"from shiftproof.models import *; print(fingerprint(load_model('{tmp_path / place}/model.py:Net')))"
        ran = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        assert ran.returncode == 0, ran.stderr
        prints.append(ran.stdout)
    assert prints[0] == prints[1]


class TestFiles:
    """What comes from a `file.py` counts with the file and with those beside it that it imports."""

    MODEL = "import shiftproof\nimport helper\n\ndef build():\n    return shiftproof.load_model('demo')\n"
    FUNCTION = "def build():\n    import deep.inner\n    return lambda images: deep.inner.f(images)\n"

    def test_a_file_whose_layers_are_all_a_librarys(self, tmp_path: Path) -> None:
        path = tmp_path / "model.py"
        path.write_text(self.MODEL.replace("import helper\n", ""))
        before = fingerprint(load_model(path))
        path.write_text(path.read_text() + "EDITED = True\n")
        assert len({before, fingerprint(load_model(path)), fingerprint(load_model("demo"))}) == 3

    @pytest.mark.parametrize("text", [MODEL, FUNCTION])
    def test_the_files_it_imports_and_those_they_import(self, text: str, tmp_path: Path) -> None:
        (tmp_path / "deep").mkdir()
        (tmp_path / "model.py").write_text(text)
        (tmp_path / "helper.py").write_text("from deep import inner\n")
        (tmp_path / "deep" / "__init__.py").write_text("")
        (tmp_path / "deep" / "inner.py").write_text("from .core import f\n")
        (tmp_path / "unrelated.py").write_text("x = 1\n")
        prints = []
        for scale in (1, 2):
            (tmp_path / "deep" / "core.py").write_text(f"def f(x):\n    return x.mean((2, 3)) * {scale}\n")
            prints.append(fingerprint(load_model(tmp_path / "model.py")))
        (tmp_path / "unrelated.py").write_text("x = 2\n")
        prints.append(fingerprint(load_model(tmp_path / "model.py")))
        assert prints[0] != prints[1] == prints[2]

    def test_an_edited_neighbour_is_read_anew_and_two_of_one_name_do_not_meet(self, tmp_path: Path) -> None:
        images = torch.rand(2, 3, 8, 8)
        text = "from helper import f\n\ndef build():\n    return f\n"
        for folder, scale in (("a", 2), ("b", 3), ("a", 5)):  # within a second, and of the same length
            (tmp_path / folder).mkdir(exist_ok=True)
            (tmp_path / folder / "model.py").write_text(text)
            (tmp_path / folder / "helper.py").write_text(f"def f(x):\n    return x.mean((2, 3)) * {scale}\n")
            model = load_model(tmp_path / folder / "model.py")
            torch.testing.assert_close(model(images), images.mean((2, 3)) * scale)


SCRIPT = """
from multiprocessing import get_context
from torch import nn
from shiftproof.models import fingerprint

SCALE = {scale}

class Net(nn.Module):
    def forward(self, images):
        return images.mean((2, 3)) * SCALE

if __name__ == "__main__":
    print({unrelated})
    with get_context("spawn").Pool(1) as pool:
        print(fingerprint(Net()), pool.apply(fingerprint, (Net(),)))
"""


def test_a_class_of_a_script_counts_with_what_it_uses_here_and_in_workers(tmp_path: Path) -> None:
    def run(scale: int, unrelated: int) -> list[str]:
        (tmp_path / "script.py").write_text(SCRIPT.format(scale=scale, unrelated=unrelated))
        ran = subprocess.run([sys.executable, tmp_path / "script.py"], capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.split()[1:]

    first, worker = run(2, 0)
    assert first == worker
    assert run(2, 1) == [first, first]
    assert first not in run(3, 0)


def test_functions_of_pytorch_are_known_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their code is another in another version."""
    before = digest(nn.functional.silu)
    assert before != digest(nn.functional.relu)
    monkeypatch.setattr(nn.functional.silu, "__code__", nn.functional.relu.__code__)
    assert digest(nn.functional.silu) == before
