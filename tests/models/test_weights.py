from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from shiftproof.errors import ModelError
from shiftproof.models import build_network, load_weights, read_weights
from shiftproof.models.weights import Weights


class Hostile:
    """A pickle that runs a command where it is opened."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.target),)


def tensors(seed: int = 0) -> dict[str, torch.Tensor]:
    torch.manual_seed(seed)
    return build_network("convnet", classes=3).state_dict()


def same(network: nn.Module, state: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(value, state[key]) for key, value in network.state_dict().items())


@pytest.mark.parametrize("layout", ["safetensors", "zip", "before 1.6", "checkpoint", "DataParallel"])
def test_reads_tensors_of_every_layout(layout: str, tmp_path: Path) -> None:
    path, state = tmp_path / "weights", tensors()
    match layout:
        case "safetensors":
            save_file(state, path)
        case "zip":
            torch.save(state, path)
        case "before 1.6":
            torch.save(state, path, _use_new_zipfile_serialization=False)
        case "checkpoint":
            torch.save({"epoch": 3, "state_dict": state}, path)
        case "DataParallel":
            torch.save({f"module.{key}": value for key, value in state.items()}, path)
    network = build_network("convnet", classes=3)
    assert not same(network, state)
    load_weights(network, path)
    assert same(network, state)


@pytest.mark.parametrize("front", ["backbone.", "student.encoder.", "model.resnet."])
def test_a_network_may_be_called_anything_in_its_module(front: str, tmp_path: Path) -> None:
    state = {f"{front}{key}": value for key, value in tensors().items()}
    save_file({**state, "loss.weight": torch.ones(3)}, tmp_path / "weights")
    for network in (
        build_network("convnet", classes=3),
        nn.Sequential(nn.Identity(), build_network("convnet", classes=3)),
    ):
        load_weights(network, tmp_path / "weights")
        assert same(network[1] if isinstance(network, nn.Sequential) else network, tensors())
    twice = {f"teacher.{key}": value + 1 for key, value in tensors().items()}
    save_file({**state, **twice}, tmp_path / "twice")
    with pytest.raises(ModelError, match=r"more than once(?s:.*)teacher\."):
        load_weights(build_network("convnet", classes=3), tmp_path / "twice")
    with pytest.raises(ModelError, match="do not fit"):
        load_weights(
            build_network("convnet", classes=3),
            read_weights(tmp_path / "weights")._replace(tensors=dict(list(state.items())[:-1])),
        )


def test_half_precision_becomes_the_networks_own(tmp_path: Path) -> None:
    state = {key: value.half() if value.is_floating_point() else value for key, value in tensors().items()}
    save_file(state, tmp_path / "half.safetensors")
    network = build_network("convnet", classes=3)
    load_weights(network, tmp_path / "half.safetensors")
    weight = network.get_parameter("linear.weight")
    assert weight.dtype == torch.float32
    assert torch.equal(weight, state["linear.weight"].float())


def test_constants_and_counters_may_be_absent(tmp_path: Path) -> None:
    state = {key: value for key, value in tensors().items() if "normalize" not in key and "tracked" not in key}
    save_file(state, tmp_path / "bare.safetensors")
    network = build_network("convnet", classes=3, mean=(0.1, 0.2, 0.3), std=(1.0, 2.0, 3.0))
    load_weights(network, tmp_path / "bare.safetensors")
    assert network.get_buffer("normalize.mean").flatten().tolist() == [0.1, 0.2, 0.3]


def test_says_what_does_not_fit(tmp_path: Path) -> None:
    state = tensors()
    state["head.weight"] = state.pop("linear.weight")
    state["bn1.weight"] = torch.ones(5)
    save_file(state, tmp_path / "other.safetensors")
    with pytest.raises(ModelError) as caught:
        load_weights(build_network("convnet", classes=3), tmp_path / "other.safetensors")
    assert caught.value.facts["missing"] == "linear.weight"
    assert caught.value.facts["not in the network"] == "head.weight"
    assert caught.value.facts["wrong shape"] == "bn1.weight (5,) instead of (32,)"


@pytest.mark.parametrize("new", [True, False], ids=["zip", "before 1.6"])
def test_never_runs_code_in_a_file(new: bool, tmp_path: Path) -> None:
    path, target = tmp_path / "weights.pt", tmp_path / "made by the pickle"
    torch.save({"weight": torch.ones(1), "hook": Hostile(target)}, path, _use_new_zipfile_serialization=new)
    with pytest.raises(ModelError, match="arbitrary code") as caught:
        read_weights(path)
    assert "safetensors" in caught.value.facts["fix"]
    assert not target.exists()


def test_refuses_a_pickled_module(tmp_path: Path) -> None:
    torch.save(build_network("convnet"), tmp_path / "whole.pt")
    with pytest.raises(ModelError, match="arbitrary code"):
        read_weights(tmp_path / "whole.pt")


def test_refuses_files_that_hold_no_state_dict(tmp_path: Path) -> None:
    torch.save([torch.ones(1)], tmp_path / "list.pt")
    with pytest.raises(ModelError, match="holds no state dict"):
        read_weights(tmp_path / "list.pt")
    (tmp_path / "empty.pt").write_bytes(b"")
    (tmp_path / "plain.pt").write_bytes(pickle.dumps({"a": 1}))
    (tmp_path / "cut.safetensors").write_bytes((20).to_bytes(8, "little") + b'{"a": {"dtype": "F32"}}')
    for name in ("empty.pt", "plain.pt", "cut.safetensors"):
        with pytest.raises(ModelError):
            read_weights(tmp_path / name)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ModelError, match=r"nowhere.safetensors"):
        read_weights("nowhere.safetensors")


def test_a_file_that_may_not_be_read_is_told_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_file(tensors(), tmp_path / "weights.safetensors")

    def refused(*_: object, **__: object) -> None:  # as for another user's file; whoever runs this may be root
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(ModelError, match=r"Cannot read the weights(.|\n)*Permission denied"):
        read_weights(tmp_path / "weights.safetensors")


def test_only_what_holds_a_network_is_named_where_several_do() -> None:
    network = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(4), nn.Linear(4, 3))
    twice = {
        f"{front}.{key}": value + 0 for front in ("student", "teacher") for key, value in network.state_dict().items()
    }
    with pytest.raises(ModelError) as caught:
        load_weights(network, Weights(twice, {}))
    assert caught.value.facts["got"] == "student., teacher."


@pytest.mark.parametrize("front", ["", "model."])
def test_a_copy_is_not_loaded_in_the_place_of_the_network_beside_it(front: str) -> None:
    """The averaged copy fits exactly; the network itself stands beside what it has no place for."""
    plain = {f"{front}{key}": value for key, value in tensors().items()}
    averaged = {f"ema.{key}": value + 1 for key, value in tensors().items()}
    with pytest.raises(ModelError, match=r"not in the network|more than once"):
        load_weights(
            build_network("convnet", classes=3), Weights({**plain, f"{front}aux": torch.ones(1), **averaged}, {})
        )
