from __future__ import annotations

import io
import json
import os
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from shiftproof.errors import ModelError
from shiftproof.models import build_network, fingerprint, load_model, logits
from shiftproof.models.archives import kind_of
from shiftproof.models.behaviour import in_training, try_out

IMAGES = torch.rand(5, 3, 16, 16)


@pytest.fixture(scope="module")
def network() -> nn.Module:
    torch.manual_seed(0)
    return build_network("convnet", classes=3).eval()


@pytest.fixture(scope="module")
def exported(network: nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Path:
    skip_old_layout()
    path = tmp_path_factory.mktemp("exported") / "model.pt2"
    batch = ({0: torch.export.Dim("batch")},)
    torch.export.save(torch.export.export(network, (IMAGES,), dynamic_shapes=batch), path)
    return path


@pytest.fixture(scope="module")
def scripted(network: nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scripted") / "model.ts"
    save_script(network, path)
    return path


def skip_old_layout() -> None:
    if torch.__version__.startswith("2.5."):
        pytest.skip("archives of PyTorch 2.5 are refused")


def save_script(module: nn.Module, path: Path) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`torch.jit")
        torch.jit.save(torch.jit.trace(module, IMAGES), path)


def rewrite(path: Path, target: Path, change: Callable[[str, bytes], bytes]) -> None:
    """Copy an archive, each member through `change(name, content)`."""
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(target, "w") as copy:
        for name in source.namelist():
            copy.writestr(name, change(name, source.read(name)))


@pytest.mark.parametrize("kind", ["exported", "scripted"])
class TestPrograms:
    def test_answer_as_the_network_does(self, kind: str, network: nn.Module, request: pytest.FixtureRequest) -> None:
        path: Path = request.getfixturevalue(kind)
        model = load_model(path)
        for count in (5, 2):  # batches of any size
            torch.testing.assert_close(logits(model, IMAGES[:count]), logits(network, IMAGES[:count]))

    def test_have_a_fingerprint(self, kind: str, request: pytest.FixtureRequest) -> None:
        path: Path = request.getfixturevalue(kind)
        model, again = load_model(path), load_model(path)
        assert isinstance(again, nn.Module)
        assert fingerprint(model) == fingerprint(again)
        with torch.no_grad():
            next(again.parameters()).flatten()[0] += 1e-3
        assert fingerprint(model) != fingerprint(again)

    def test_are_known_by_their_content(self, kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
        path: Path = request.getfixturevalue(kind)
        (tmp_path / "model.pt").write_bytes(path.read_bytes())
        assert kind_of(tmp_path / "model.pt") == {"exported": "exported", "scripted": "torchscript"}[kind]

    def test_are_not_called_in_training(self, kind: str, request: pytest.FixtureRequest) -> None:
        model = load_model(request.getfixturevalue(kind), mean=(0.1, 0.2, 0.3), std=(2.0, 2.0, 2.0))
        assert try_out(model, IMAGES[:2], IMAGES[2:4], IMAGES[3:]).training == 0

    def test_a_normalisation_can_go_in_front(
        self, kind: str, network: nn.Module, request: pytest.FixtureRequest
    ) -> None:
        model = load_model(request.getfixturevalue(kind), mean=(0.1, 0.2, 0.3), std=(2.0, 2.0, 2.0))
        by_hand = (IMAGES - torch.tensor([0.1, 0.2, 0.3])[:, None, None]) / 2
        torch.testing.assert_close(logits(model, IMAGES), logits(network, by_hand))

    def test_cut_files_are_refused(self, kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
        path: Path = request.getfixturevalue(kind)
        (tmp_path / "cut").write_bytes(path.read_bytes()[:-400])
        with pytest.raises(ModelError, match="cut"):
            load_model(tmp_path / "cut")


def test_layers_that_a_traced_network_calls_are_in_training_where_they_say_so() -> None:
    traced = torch.fx.symbolic_trace(nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(768, 3)).eval())
    assert in_training(traced.eval()) == []
    traced.get_submodule("1").train()
    assert [type(layer) for layer in in_training(traced)] == [nn.Dropout]


def test_scripts_of_different_programs_differ(network: nn.Module, scripted: Path, tmp_path: Path) -> None:
    class Negative(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = -self.inner(images)
            return out

    save_script(Negative(), tmp_path / "negative.ts")
    assert fingerprint(load_model(tmp_path / "negative.ts")) != fingerprint(load_model(scripted))


def test_a_program_for_one_size_of_batch_is_refused(network: nn.Module, tmp_path: Path) -> None:
    skip_old_layout()
    torch.export.save(torch.export.export(network, (IMAGES,)), tmp_path / "fixed.pt2")
    with pytest.raises(ModelError, match="batches of exactly 5") as caught:
        load_model(tmp_path / "fixed.pt2")
    assert "dynamic_shapes" in caught.value.facts["fix"]


class Hostile:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.target),)


@pytest.mark.parametrize("place", ["sample inputs", "weight"])
def test_pickles_in_an_exported_program_are_not_run(place: str, exported: Path, tmp_path: Path) -> None:
    target, path = tmp_path / "made by the pickle", tmp_path / "hostile.pt2"
    payload = io.BytesIO()
    torch.save(Hostile(target), payload)

    def change(name: str, content: bytes) -> bytes:
        if place == "sample inputs" and name.endswith("sample_inputs/model.pt"):
            return payload.getvalue()
        if place == "weight" and name.endswith("weights/weight_0"):
            return payload.getvalue()
        if place == "weight" and name.endswith("weights_config.json"):
            config = json.loads(content)
            entry = next(entry for entry in config["config"].values() if entry["path_name"] == "weight_0")
            entry["use_pickle"] = True
            return json.dumps(config).encode()
        return content

    rewrite(exported, path, change)
    with pytest.raises(ModelError, match="arbitrary code"):
        load_model(path)
    assert not target.exists()


def test_two_members_of_one_name_are_refused(exported: Path, tmp_path: Path) -> None:
    path = tmp_path / "twice.pt2"
    path.write_bytes(exported.read_bytes())
    with zipfile.ZipFile(path, "a") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        archive.writestr(next(name for name in archive.namelist() if name.endswith("model.pt")), b"other")
    with pytest.raises(ModelError, match="arbitrary code"):
        load_model(path)


def test_tells_kinds_apart_by_content(tmp_path: Path) -> None:
    state = {"weight": torch.ones(2)}
    torch.save(state, tmp_path / "a")
    torch.save(state, tmp_path / "b", _use_new_zipfile_serialization=False)
    save_file(state, tmp_path / "c")
    assert [kind_of(tmp_path / name) for name in "abc"] == ["weights"] * 3


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x05\x06" + bytes(18)], ids=["empty", "text", "empty zip"])
def test_refuses_other_files(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_bytes(content)
    with pytest.raises(ModelError, match="is not a model file"):
        load_model(tmp_path / "model.pt")
