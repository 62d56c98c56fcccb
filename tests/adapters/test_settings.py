"""By default every method learns from most batches, whatever the classes, the size and the norms, or says why not.

Data of 2 to 1,000 classes at 224 pixels are simulated: a class is a pattern of 8 x 8 patches, images have noise, some
more than others, and little contrast, and a network knows the patterns; it is 80% sure of its answers on average.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from shiftproof.adapters import METHODS, Adapter, adapt, choose_preset, method

SIDE, PATCHES, BATCHES, SIZE = 224, 8, 6, 16
VALUES = 3 * PATCHES**2
LEARNING = sorted(name for name in METHODS if method(name).needs_gradients)
CHEAP: dict[str, dict[str, Any]] = {
    **{key: {"views": 2} for key in ("cotta", "memo")},
    **{key: {"update_every": SIZE} for key in ("rotta", "petta", "note")},
}
"""Fewer views, and an update for each of these batches."""
NORMS: dict[str, Callable[[], nn.Module]] = {
    "batch": lambda: nn.BatchNorm2d(VALUES),
    "group": lambda: nn.GroupNorm(4, VALUES),
    "layer": lambda: nn.LayerNorm([VALUES, 1, 1]),
}


@lru_cache
def network(classes: int, norm: str, sureness: float) -> nn.Sequential:
    """Return a network that knows the patterns of classes; its logits are scaled to a mean confidence on the stream."""
    torch.manual_seed(0)
    head = nn.Linear(VALUES, classes, bias=False)
    head.weight.data = patterns(classes)
    layers = [
        nn.AdaptiveAvgPool2d(PATCHES),  # images of any size
        nn.Flatten(),
        nn.Unflatten(1, (VALUES, 1, 1)),
        NORMS[norm](),
        nn.Flatten(),
    ]
    made = nn.Sequential(*layers, head)
    with torch.no_grad():
        scores = made.train()[2:](small_images(classes).flatten(1))  # with the statistics of the stream
        low, high = -9.0, 9.0
        for _ in range(30):
            middle = (low + high) / 2
            sure = float((scores * 2.0**middle).softmax(1).amax(1).mean())
            low, high = (middle, high) if sure < sureness else (low, middle)
        head.weight.mul_(2.0**low)
    return made.eval()


def patterns(classes: int) -> Tensor:
    return torch.randn(classes, VALUES, generator=torch.Generator().manual_seed(1)).sign()


@lru_cache
def small_images(classes: int) -> Tensor:
    """Return images of random classes, a pixel for each patch; some are clearer than others."""
    generator = torch.Generator().manual_seed(2)
    labels = torch.randint(classes, (BATCHES * SIZE,), generator=generator)
    clear = torch.rand(len(labels), 1, generator=generator)
    seen = clear * patterns(classes)[labels] + torch.randn(len(labels), VALUES, generator=generator)
    return (0.5 + 0.06 * seen).clamp(0, 1).view(-1, 3, PATCHES, PATCHES)


def stream(classes: int, side: int = SIDE) -> Iterator[Tensor]:
    for batch in small_images(classes).split(SIZE):
        yield nn.functional.interpolate(batch, scale_factor=side // PATCHES)


def served(
    name: str, classes: int, norm: str = "batch", sureness: float = 0.8, side: int = SIDE, **options: Any
) -> Adapter:
    model = network(classes, norm, sureness)
    given = {"preset": choose_preset(model, classes), **CHEAP.get(name, {}), **options}
    adapter = adapt(model, name, **given)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for images in stream(classes, side):
            adapter(images)
    return adapter


@pytest.mark.parametrize("classes", [2, 10, 100, 1000])
@pytest.mark.parametrize("name", LEARNING)
def test_every_method_learns_whatever_the_number_of_classes(name: str, classes: int) -> None:
    adapter = served(name, classes)
    assert adapter.updates > BATCHES / 2
    assert adapter.resets == 0
    assert adapter.diagnosis == ()


@pytest.mark.parametrize("norm", ["group", "layer"])
@pytest.mark.parametrize("name", LEARNING)
def test_every_method_learns_whatever_the_normalisation(name: str, norm: str) -> None:
    adapter = served(name, 10, norm, side=64)
    assert adapter.updates > BATCHES / 2
    assert bool(adapter.diagnosis) == bool(adapter.resets)  # asr goes back once, and says so


@pytest.mark.parametrize("classes", [2, 100])
def test_sar_does_not_take_a_sure_model_for_a_collapsed_one(classes: int) -> None:
    adapter = served("sar", classes, sureness=0.97)
    assert (adapter.updates, adapter.resets) == (BATCHES, 0)
    published = served("sar", classes, sureness=0.97, recover_below=0.2)
    assert "keeps next to nothing" in published.diagnosis[0]


def test_sar_goes_back_when_its_loss_has_fallen_to_a_quarter() -> None:
    adapter = served("sar", 10)
    assert not adapter.resets
    adapter.model.get_parameter("5.weight").data.mul_(100)  # sure of everything
    for _ in range(5):
        for images in stream(10):
            adapter(images)
    assert adapter.resets


@pytest.mark.parametrize("name", ["eta", "eata", "rdumb", "guard"])
def test_a_method_whose_threshold_does_not_fit_says_so(name: str) -> None:
    assert "of 6 batches: its filters drop nearly every image" in served(name, 10, similarity=0.05).diagnosis[0]
