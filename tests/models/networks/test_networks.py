from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from shiftproof.errors import ConfigurationError
from shiftproof.models import NETWORKS, Normalize, build_network, load_weights
from shiftproof.models.networks import CIFAR10_MEAN, CIFAR10_STD
from shiftproof.models.networks.resnet import BasicBlock

SHARED = Path(__file__).resolve().parents[3].parent / "shared"

# Counts of the papers' networks for 10 classes: He et al. print 0.27M, 0.85M and 1.7M, Zagoruyko and Komodakis 2.7M.
PARAMETERS = {"resnet20": 269_722, "resnet56": 853_018, "resnet110": 1_727_962, "wrn16_4": 2_748_890}


@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "unet"])  # which segments, below
class TestEveryNetwork:
    def test_maps_images_of_any_size_to_logits(self, name: str) -> None:
        network = build_network(name, classes=7, channels=1).eval()
        for height, width in ((28, 28), (33, 19)):
            assert network(torch.rand(2, 1, height, width)).shape == (2, 7)

    def test_normalises_inside(self, name: str) -> None:
        """A network that normalises is its normalisation, then the network that only passes images on."""
        torch.manual_seed(0)
        network = build_network(name).eval()
        plain = build_network(name, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0)).eval()
        state = network.state_dict()
        plain.load_state_dict({key: value for key, value in state.items() if "normalize" not in key}, strict=False)
        images = torch.rand(2, 3, 32, 32)
        by_hand = (images - torch.tensor(CIFAR10_MEAN)[:, None, None]) / torch.tensor(CIFAR10_STD)[:, None, None]
        torch.testing.assert_close(network(images), plain(by_hand))

    def test_learns(self, name: str) -> None:
        """Every parameter gets a gradient, and a step against it lowers the loss."""
        torch.manual_seed(0)
        network = build_network(name, classes=4)
        images, labels = torch.rand(8, 3, 16, 16), torch.arange(8) % 4
        loss = F.cross_entropy(network(images), labels)
        loss.backward()
        with torch.no_grad():
            for parameter in network.parameters():
                assert parameter.grad is not None
                assert parameter.grad.abs().sum() > 0
                parameter.sub_(1e-3 * parameter.grad)
        assert F.cross_entropy(network(images), labels) < loss


@pytest.mark.parametrize(("name", "count"), PARAMETERS.items())
def test_has_the_parameters_of_the_paper(name: str, count: int) -> None:
    assert sum(parameter.numel() for parameter in build_network(name).parameters()) == count


def test_the_shortcut_has_no_parameters() -> None:
    block = BasicBlock(2, 6, stride=2)
    x = torch.rand(1, 2, 5, 5)
    shortcut = block.shortcut(x)
    assert shortcut.shape == (1, 6, 3, 3)
    assert torch.equal(shortcut[:, 2:4], x[:, :, ::2, ::2])
    assert shortcut[:, :2].abs().sum() == shortcut[:, 4:].abs().sum() == 0


def test_an_unknown_network_names_the_nearest() -> None:
    with pytest.raises(ConfigurationError, match="resnet56"):
        build_network("resnet50")


@pytest.mark.parity
def test_published_weights_give_the_published_logits() -> None:
    """ResNet-20 of `shared/data` on the reference stream, in float64."""
    weights = SHARED / "data" / "cifar10-resnets" / "resnet20.safetensors"
    reference = SHARED / "reference" / "adaptation"
    if not weights.exists() or not reference.exists():
        pytest.skip("needs the published CIFAR-10 ResNets and reference logits in ../shared")
    network = build_network("resnet20", mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    load_weights(network, weights)
    network.double().eval()
    with np.load(reference / "stream.npz") as stream, np.load(reference / "source.npz") as source:
        batches, labels, expected, accuracy = stream["images"], stream["labels"], source["logits"], source["acc"]
    for number in (0, 12, 23):
        images = torch.from_numpy(batches[number]).permute(0, 3, 1, 2).double() / 255
        with torch.no_grad():
            logits = network(images).numpy()
        np.testing.assert_allclose(logits, expected[number], rtol=0, atol=1e-8)
        assert (logits.argmax(1) == labels[number]).mean() == pytest.approx(accuracy[number])


@pytest.mark.parity
@pytest.mark.parametrize("name", ["resnet20", "resnet56"])
def test_published_weights_fit(name: str) -> None:
    weights = SHARED / "data" / "cifar10-resnets" / f"{name}.safetensors"
    if not weights.exists():
        pytest.skip("needs the published CIFAR-10 ResNets in ../shared")
    network = build_network(name)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    load_weights(network, weights)
    unchanged = [key for key, value in network.state_dict().items() if torch.equal(value, before[key])]
    assert all("normalize" in key or "num_batches" in key for key in unchanged)
    assert isinstance(network.normalize, Normalize)


def test_the_unet_maps_images_of_any_size_to_maps_of_scores_and_learns() -> None:
    torch.manual_seed(0)
    assert build_network("unet", classes=7, channels=1).eval()(torch.rand(2, 1, 33, 19)).shape == (2, 7, 33, 19)
    network = build_network("unet", classes=4)
    images, labels = torch.rand(4, 3, 16, 16), torch.randint(0, 4, (4, 16, 16))
    loss = F.cross_entropy(network(images), labels)
    loss.backward()
    with torch.no_grad():
        for parameter in network.parameters():
            assert parameter.grad is not None
            parameter.sub_(1e-2 * parameter.grad)
    assert F.cross_entropy(network(images), labels) < loss
