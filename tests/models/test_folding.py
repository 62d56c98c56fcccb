"""A folded network answers as its model does, or is not made."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from shiftproof.models import BlackBox, build_network, logits
from shiftproof.models.folding import AGREE, Folded, asked_in_larger_batch, folded
from shiftproof.models.fusing import RectifiedConvolution
from shiftproof.subjects import Subject


def network(*more: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    made = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), *more, nn.Flatten(), nn.LazyLinear(5))
    made.train()(torch.rand(16, 3, 8, 8))  # so that its statistics are some
    return made.eval()


def images(side: int = 8) -> Tensor:
    return torch.rand(6, 3, side, side, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", ["resnet20", "wrn16_4", "resnet56"])
def test_reference_networks_answer_alike(name: str) -> None:
    model = build_network(name).eval()
    fast = folded(model, images(32))
    assert isinstance(fast, Folded)
    own, other = logits(model, images(32)), logits(fast, images(32))
    assert float((own - other).abs().max()) <= AGREE * float(own.max() - own.min())
    assert not any(type(layer).__name__ == "BatchNorm2d" for layer in fast.modules()) or name == "wrn16_4"


def test_the_demo_gives_the_same_predictions_on_all_its_images() -> None:
    subject = Subject.of("demo", "demo", device="cpu")
    assert isinstance(subject.fast_model, Folded)
    for batch in subject.data.batches(200):
        own, other = (logits(model, batch.inputs) for model in (subject.model, subject.fast_model))
        assert (own.argmax(1) == other.argmax(1)).float().mean() >= 0.999
        assert torch.allclose(own, other, atol=1e-4)


@pytest.mark.parametrize("count", [0, 1, 6, 9, 17, 33])
def test_answers_are_the_same_in_a_batch_of_a_usual_size(count: int) -> None:
    fast, some = Folded(network(), "contiguous").eval(), torch.rand(count, 3, 8, 8)
    with torch.no_grad():
        found = asked_in_larger_batch(fast.network, some)
        assert found is not None
        assert found.shape == (count, 5)
        assert torch.allclose(found, fast.network(some), atol=1e-6)
        assert asked_in_larger_batch(lambda given: {"out": fast.network(given)}, some) is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_few_sizes_of_batches_reach_a_gpu() -> None:
    fast, seen = Folded(network().cuda(), "contiguous").eval(), set[int]()
    fast.network.register_forward_pre_hook(lambda _, given: seen.add(len(given[0])))
    for count in range(1, 65):
        some = torch.rand(count, 3, 8, 8, device="cuda")
        assert torch.allclose(fast(some)[:1], fast.network(some[:1]), atol=1e-3)
    assert seen == {*range(1, 9), 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64}


class Residual(nn.Module):
    """Rectifiers behind a convolution, behind a sum on either side, and behind what others read too."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Conv2d(3, 3, 3, 1, 1), nn.BatchNorm2d(3)) for _ in range(5))

    def forward(self, given: Tensor) -> Tensor:
        first, second, third, fourth, fifth = self.layers
        x = torch.relu(first(given))
        x = nn.functional.relu(x + second(x))
        x = torch.relu(third(x) + x)
        y = fourth(x)
        x = torch.relu(y) + y  # what is not rectified is read too
        z = fifth(x)
        z += x
        return torch.relu(z).flatten(1)


def test_rectifiers_are_parts_of_convolutions_where_nothing_else_reads_them() -> None:
    torch.manual_seed(0)
    model = Residual()
    model.train()(torch.rand(16, 3, 8, 8))
    fast = folded(model.eval(), images())
    assert isinstance(fast, Folded)
    assert sum(isinstance(layer, RectifiedConvolution) for layer in fast.modules()) == 4
    own, other = logits(model, images()), logits(fast, images())
    assert float((own - other).abs().max()) <= AGREE * float(own.max() - own.min())


class Branching(nn.Module):
    """A network whose answer depends on the images' values in a way no graph shows."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def forward(self, given: Tensor) -> Tensor:
        scores: Tensor = self.inner(given)
        return scores if given.mean() > 0.5 else -scores


class Shuffling(nn.Module):
    """A network that a trace fixes wrongly: it looks at Python state that changes."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.calls = network(), 0

    def forward(self, given: Tensor) -> Tensor:
        self.calls += 1
        scores: Tensor = self.inner(given)
        return scores if self.calls % 2 else 2 * scores


def hooked() -> nn.Module:
    made = network()
    made[1].register_forward_hook(lambda *_: None)
    return made


def in_training_mode() -> nn.Module:
    made = network()
    made[1].train()
    return made


@pytest.mark.parametrize(
    "make",
    [Branching, Shuffling, hooked, in_training_mode, lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 3)).eval()],
    ids=["branching", "state", "hooked", "training", "without"],
)
def test_what_cannot_be_folded_is_asked_as_it_is(make: Any) -> None:
    model = make()
    if make is not in_training_mode:
        model.eval()
    assert folded(model, images()) is model


def test_a_black_box_is_asked_as_it_is() -> None:
    def model(given: Tensor) -> Tensor:
        return given.flatten(1)[:, :3]

    box = BlackBox(model)
    assert folded(box, images()) is box


def test_the_model_itself_stays_as_it_was() -> None:
    model = network()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    folded(model, images())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
