"""Hubs need the network and matching builds; here small packages of the same interface stand in for them."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from shiftproof.errors import ConfigurationError, ModelError
from shiftproof.models import InputSize, Normalize, class_names, input_size, load_model, logits

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
        return SimpleNamespace(
            mean=[self.value[0]] * 3, std=[self.value[1]] * 3, crop_size=[8], resize_size=[10]
        )

class Net(nn.Module):
    def __init__(self, num_classes=3):
        super().__init__()
        self.fc = nn.Linear(3, num_classes)

    def forward(self, images):
        return self.fc(images.mean((2, 3)))

def get_model(name, weights, num_classes=3):
    if name == "far" and weights is not None:
        raise OSError("no route to host")
    net = Net(num_classes)
    if weights is not None:
        nn.init.eye_(net.fc.weight), nn.init.zeros_(net.fc.bias)
    return net

class models:
    list_models = staticmethod(lambda module: ["net", "far"])
    get_model_weights = staticmethod(lambda name: Net_Weights)
    get_model = staticmethod(get_model)
"""

TIMM = """
from torch import nn

class Net(nn.Module):
    def __init__(self, num_classes=3):
        super().__init__()
        self.fc = nn.Linear(3, num_classes)
        self.pretrained_cfg = {
            "mean": (0.5, 0.4, 0.3), "std": (0.2, 0.2, 0.2), "label_names": ["r", "g", "b"],
            "input_size": (3, 224, 224), "crop_pct": 0.875,
        }

    def forward(self, images):
        return self.fc(images.mean((2, 3)))

list_models = lambda pretrained: ["net", "other"]
is_model = lambda name: name in list_models(False)

def create_model(name, pretrained, num_classes=3):
    assert name in ("net", "net.tag"), name
    return Net(num_classes)
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


@pytest.mark.usefixtures("hubs")
@pytest.mark.parametrize("hub", ["torchvision:far", "timm:net"])
class TestFiles:
    """Nothing is fetched: `torchvision:far` cannot be."""

    NETWORK = nn.Linear(3, 5)

    def tensors(self, front: str = "fc.") -> dict[str, torch.Tensor]:
        return {front + name: part for name, part in self.NETWORK.state_dict().items()}

    def expected(self, mean: float | list[float], std: float) -> torch.Tensor:
        with torch.no_grad():
            found: torch.Tensor = self.NETWORK((IMAGES.mean((2, 3)) - torch.tensor(mean)) / std)
        return found

    @pytest.mark.parametrize("front", ["fc.", "model.fc.", "module.fc.", "net.fc.", "module.model.fc.", "1.fc."])
    @pytest.mark.parametrize("form", ["state dict", "safetensors", "checkpoint", "options"])
    def test_weights_of_a_file(self, hub: str, front: str, form: str, tmp_path: Path) -> None:
        path, tensors = tmp_path / "weights.ckpt", self.tensors(front)
        if form == "safetensors":
            save_file(tensors, path)
        elif form == "state dict":
            torch.save(tensors, path)
        else:
            beside = {"loss.weight": torch.ones(2)} if front != "fc." else {}
            facts = {"hyper_parameters": {"lr": 0.1}} if form == "checkpoint" else {"args": Namespace(lr=0.1)}
            torch.save({"state_dict": {**tensors, **beside}, "epoch": 3, **facts}, path)
        model = load_model(hub, weights=path)
        own = (0.3, 0.4) if hub.startswith("torchvision") else ([0.5, 0.4, 0.3], 0.2)
        torch.testing.assert_close(logits(model, IMAGES), self.expected(*own))
        assert class_names(model) is None  # those of the pretrained weights are not its own

    def test_normalisation_is_what_was_given_or_the_files(self, hub: str, tmp_path: Path) -> None:
        torch.save(self.tensors(), tmp_path / "a.pth")
        model = load_model(hub, weights=tmp_path / "a.pth", num_classes=5, mean=[0.1] * 3, std=[0.9] * 3)
        torch.testing.assert_close(logits(model, IMAGES), self.expected(0.1, 0.9))
        save_file(self.tensors(), tmp_path / "b", metadata={"mean": "[0.2, 0.2, 0.2]", "std": "[0.8, 0.8, 0.8]"})
        torch.testing.assert_close(logits(load_model(hub, weights=tmp_path / "b"), IMAGES), self.expected(0.2, 0.8))

    def test_what_does_not_fit_is_refused(self, hub: str, tmp_path: Path) -> None:
        torch.save(self.tensors(), tmp_path / "a.pth")
        with pytest.raises(ModelError, match="do not fit"):
            load_model(hub, weights=tmp_path / "a.pth", num_classes=7)
        torch.save(
            {**self.tensors("model.fc."), **{"net." + k: v + 1 for k, v in self.tensors().items()}}, tmp_path / "b"
        )
        with pytest.raises(ModelError, match="more than once"):
            load_model(hub, weights=tmp_path / "b")
        with pytest.raises(ModelError, match="There is no weights file"):
            load_model(hub, weights="absent.pth")

    def test_a_number_of_classes_needs_weights(self, hub: str) -> None:
        with pytest.raises(ConfigurationError, match="num_classes"):
            load_model(hub, num_classes=5)
        with pytest.raises(ConfigurationError, match="num_classes"):
            load_model("demo", num_classes=5)

    def test_a_trained_folder_needs_no_hub(self, hub: str, tmp_path: Path) -> None:
        constants = {"0.mean": torch.full((1, 3, 1, 1), 0.2), "0.std": torch.full((1, 3, 1, 1), 0.8)}
        save_file({**self.tensors("1.fc."), **constants}, tmp_path / "model.safetensors")
        (tmp_path / "model.json").write_text(json.dumps({"model": hub, "classes": list("abcde")}))
        model = load_model(tmp_path)
        torch.testing.assert_close(logits(model, IMAGES), self.expected(0.2, 0.8))
        assert class_names(model) == tuple("abcde")

    def test_the_size_of_images(self, hub: str, tmp_path: Path) -> None:
        torch.save(self.tensors(), tmp_path / "a.pth")
        size = InputSize(10, 8, False) if hub.startswith("torchvision") else InputSize(256, 224, False)
        assert input_size(load_model(hub, weights=tmp_path / "a.pth")) == size
        if hub.startswith("timm"):
            assert input_size(load_model(hub)) == InputSize(256, 224)


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
