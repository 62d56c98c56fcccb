from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from shiftproof.errors import ConfigurationError, ModelError, ShiftproofError
from shiftproof.models import BlackBox, build_network, fingerprint, load_model, logits
from shiftproof.models.networks import CIFAR10_MEAN, CIFAR10_STD

IMAGES = torch.rand(2, 3, 16, 16)


@pytest.fixture
def network() -> nn.Module:
    torch.manual_seed(0)
    return build_network("convnet", classes=5).eval()


def without_constants(network: nn.Module) -> dict[str, Tensor]:
    return {key: value for key, value in network.state_dict().items() if "normalize" not in key}


class TestDemo:
    def test_is_a_resnet20_in_evaluation_mode(self) -> None:
        model = load_model("demo")
        assert isinstance(model, nn.Module)
        assert not model.training
        assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
        assert sum(parameter.numel() for parameter in model.parameters()) == 269_722
        assert logits(model, torch.rand(3, 3, 32, 32)).shape == (3, 10)

    def test_normalises_with_the_statistics_of_cifar10(self) -> None:
        model = load_model("demo")
        assert isinstance(model, nn.Module)
        for name, constants in (("mean", CIFAR10_MEAN), ("std", CIFAR10_STD)):
            torch.testing.assert_close(
                model.get_buffer(f"normalize.{name}").flatten().float(), torch.tensor(constants), rtol=1e-3, atol=0
            )

    def test_is_the_same_every_time(self) -> None:
        assert fingerprint(load_model("demo")) == fingerprint(load_model("demo"))


class TestReferenceNetworks:
    def test_take_classes_channels_and_constants_from_their_weights(self, tmp_path: Path) -> None:
        made = build_network("convnet", classes=4, channels=1, mean=(0.3,), std=(0.7,)).eval()
        save_file(made.state_dict(), tmp_path / "weights.safetensors")
        model = load_model("convnet", weights=tmp_path / "weights.safetensors")
        assert torch.equal(logits(model, IMAGES[:, :1]), logits(made, IMAGES[:, :1]))
        assert fingerprint(model) == fingerprint(made)

    def test_take_constants_from_a_safetensors_header(self, network: nn.Module, tmp_path: Path) -> None:
        header = {"mean": json.dumps(CIFAR10_MEAN), "std": json.dumps(CIFAR10_STD)}
        save_file(without_constants(network), tmp_path / "weights.safetensors", metadata=header)
        model = load_model("convnet", weights=tmp_path / "weights.safetensors")
        assert torch.equal(logits(model, IMAGES), logits(network, IMAGES))

    def test_take_constants_as_options(self, network: nn.Module, tmp_path: Path) -> None:
        torch.save(without_constants(network), tmp_path / "weights.pt")
        model = load_model("convnet", weights=tmp_path / "weights.pt", mean=CIFAR10_MEAN, std=CIFAR10_STD)
        assert torch.equal(logits(model, IMAGES), logits(network, IMAGES))

    def test_do_not_guess_constants(self, network: nn.Module, tmp_path: Path) -> None:
        torch.save(without_constants(network), tmp_path / "weights.pt")
        with pytest.raises(ModelError, match="how their images were normalised"):
            load_model("convnet", weights=tmp_path / "weights.pt")

    def test_do_not_take_constants_twice(self, network: nn.Module, tmp_path: Path) -> None:
        torch.save(network.state_dict(), tmp_path / "weights.pt")
        with pytest.raises(ConfigurationError, match="their own normalisation"):
            load_model("convnet", weights=tmp_path / "weights.pt", mean=CIFAR10_MEAN, std=CIFAR10_STD)

    def test_need_weights(self) -> None:
        with pytest.raises(ModelError, match="needs weights") as caught:
            load_model("resnet110")
        assert "build_network" in caught.value.facts["fix"]

    def test_refuse_weights_of_another_network(self, network: nn.Module, tmp_path: Path) -> None:
        torch.save(network.state_dict(), tmp_path / "weights.pt")
        with pytest.raises(ModelError, match="do not fit the network ResNet"):
            load_model("resnet20", weights=tmp_path / "weights.pt")


class TestModelsAlreadyMade:
    def test_a_module_is_put_into_evaluation_mode(self, network: nn.Module) -> None:
        assert load_model(network.train()) is network
        assert not network.training
        assert all(parameter.requires_grad for parameter in network.parameters())

    def test_a_module_goes_where_it_is_wanted(self, network: nn.Module) -> None:
        load_model(network, device="meta")
        assert network.get_parameter("linear.bias").device.type == "meta"

    def test_a_function_becomes_a_black_box(self) -> None:
        model = load_model(lambda images: images.mean((2, 3)))
        assert isinstance(model, BlackBox)
        assert load_model(model) is model

    def test_a_normalisation_goes_in_front(self, network: nn.Module) -> None:
        mean, std = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
        torch.testing.assert_close(
            logits(load_model(network, mean=mean, std=std), IMAGES), logits(network, IMAGES * 2 - 1)
        )

    @pytest.mark.parametrize("made", [7, None, nn.ReLU])
    def test_anything_else_is_refused(self, made: object) -> None:
        with pytest.raises(ModelError, match="Unsupported model"):
            load_model(made)  # type: ignore[arg-type]


class TestBadInput:
    def test_a_missing_file(self) -> None:
        with pytest.raises(ModelError, match=r"no model file 'nowhere/model.onnx'"):
            load_model("nowhere/model.onnx")

    def test_a_name_of_a_hub_is_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match="no model file") as caught:
            load_model("google/vit-base-patch16-224")
        assert "save_pretrained" in caught.value.facts["fix"]
        with pytest.raises(ModelError, match="no model file") as caught:
            load_model(str(tmp_path / "vit"))
        assert "fix" not in caught.value.facts

    def test_an_unknown_name(self) -> None:
        with pytest.raises(ConfigurationError, match="resnet20"):
            load_model("resnet21")

    def test_a_folder(self, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match="is a folder"):
            load_model(tmp_path)

    def test_weights_without_an_architecture(self, network: nn.Module, tmp_path: Path) -> None:
        torch.save(network.state_dict(), tmp_path / "weights.pt")
        with pytest.raises(ModelError, match="holds weights, not a model") as caught:
            load_model(tmp_path / "weights.pt")
        assert "--weights" in caught.value.facts["fix"]

    def test_a_pickled_module(self, network: nn.Module, tmp_path: Path) -> None:
        torch.save(network, tmp_path / "model.pt")
        with pytest.raises(ModelError, match="arbitrary code"):
            load_model(tmp_path / "model.pt")

    @pytest.mark.parametrize("spec", ["demo", "model.onnx"])
    def test_weights_that_have_nowhere_to_go(self, spec: str) -> None:
        with pytest.raises(ConfigurationError, match="cannot be used with"):
            load_model(spec, weights="weights.safetensors")

    def test_half_a_normalisation(self, network: nn.Module) -> None:
        with pytest.raises(ConfigurationError, match="both mean and std"):
            load_model(network, mean=(0.5,))

    def test_a_second_normalisation(self) -> None:
        with pytest.raises(ShiftproofError):
            load_model("demo", mean=(0.5,), std=(0.5,))
