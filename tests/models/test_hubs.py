"""Hubs need the network and matching builds; here small packages of the same interface stand in for them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from shiftproof.errors import ConfigurationError, ModelError
from shiftproof.models import Normalize, class_names, load_model, logits

IMAGES = torch.rand(2, 3, 8, 8)

TORCHVISION = """
from enum import Enum
from types import SimpleNamespace
from torch import nn

class Net_Weights(Enum):
    V1 = (0.1, 0.2)
    V2 = (0.3, 0.4)
    DEFAULT = (0.3, 0.4)

    meta = property(lambda self: {"categories": ["red", "green", "blue"]})

    def transforms(self):
        return SimpleNamespace(mean=[self.value[0]] * 3, std=[self.value[1]] * 3)

class Net(nn.Module):
    def forward(self, images):
        return images.mean((2, 3))

def get_model(name, weights):
    if name == "far":
        raise OSError("no route to host")
    return Net()

class models:
    list_models = staticmethod(lambda module: ["net", "far"])
    get_model_weights = staticmethod(lambda name: Net_Weights)
    get_model = staticmethod(get_model)
"""

TIMM = """
from torch import nn

class Net(nn.Module):
    pretrained_cfg = {"mean": (0.5, 0.4, 0.3), "std": (0.2, 0.2, 0.2), "label_names": ["r", "g", "b"]}

    def forward(self, images):
        return images.mean((2, 3))

list_models = lambda pretrained: ["net", "other"]
is_model = lambda name: name in list_models(False)

def create_model(name, pretrained):
    assert pretrained
    return Net()
"""


@pytest.fixture
def hubs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    packages = {"torchvision": TORCHVISION, "timm": TIMM}
    for name, text in packages.items():
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in packages:
        sys.modules.pop(name, None)


def constants(model: object) -> tuple[list[float], list[float]]:
    assert isinstance(model, nn.Sequential)
    layer = model[0]
    assert isinstance(layer, Normalize)
    return layer.mean.flatten().tolist(), layer.std.flatten().tolist()


@pytest.mark.usefixtures("hubs")
class TestLoading:
    def test_torchvision_normalises_as_its_weights_say(self) -> None:
        model = load_model("torchvision:net")
        assert constants(model) == ([0.3] * 3, [0.4] * 3)
        torch.testing.assert_close(logits(model, IMAGES), (IMAGES.mean((2, 3)) - 0.3) / 0.4)

    def test_torchvision_weights_by_name(self) -> None:
        assert constants(load_model("torchvision:net", weights="V1")) == ([0.1] * 3, [0.2] * 3)
        with pytest.raises(ConfigurationError, match="V1, V2"):
            load_model("torchvision:net", weights="V3")

    def test_timm_normalises_as_its_weights_say(self) -> None:
        assert constants(load_model("timm:net.tag")) == ([0.5, 0.4, 0.3], [0.2, 0.2, 0.2])

    def test_class_names_come_with_the_weights(self) -> None:
        assert class_names(load_model("torchvision:net")) == ("red", "green", "blue")
        assert class_names(load_model("timm:net")) == ("r", "g", "b")

    def test_unknown_names(self) -> None:
        for spec in ("torchvision:nett", "timm:nett"):
            with pytest.raises(ConfigurationError) as caught:
                load_model(spec)
            assert caught.value.facts["did you mean"] == "net"

    def test_weights_that_cannot_be_fetched(self) -> None:
        with pytest.raises(ModelError, match="no route to host"):
            load_model("torchvision:far")

    def test_their_normalisation_is_not_doubled(self) -> None:
        with pytest.raises(ConfigurationError, match="its own normalisation"):
            load_model("timm:net", mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))


@pytest.mark.parametrize("package", ["torchvision", "timm"])
def test_a_missing_package_names_the_extra(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModelError, match=r"shiftproof\[vision\]"):
        load_model(f"{package}:resnet50")


@pytest.mark.parametrize("package", ["torchvision", "timm"])
def test_builds_that_do_not_match_say_how_to(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / f"{package}.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.delitem(sys.modules, package, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModelError, match="not built for this torch") as caught:
        load_model(f"{package}:resnet50")
    assert torch.__version__ in caught.value.facts["got"]
    assert "torchvision 0.N+15" in caught.value.facts["fix"]
