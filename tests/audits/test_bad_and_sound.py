"""A table of bad models and data, each of which is refused or told, and of sound ones, of which nothing is said."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from shiftproof.audits.caveats import caveats, check_subject
from shiftproof.audits.sections.clean import CleanSlice
from shiftproof.data import load_data
from shiftproof.errors import ShiftproofError
from shiftproof.models import BlackBox, Normalize, channels_last, load_model
from shiftproof.models.class_names import CIFAR10
from shiftproof.runs import Result
from shiftproof.subjects import Subject

IMAGES = 80
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def said_of(model: Any, data: Any, **options: Any) -> set[str]:
    """Return what an audit says before its sections: the kinds of its caveats, or `refused`."""
    try:
        subject = Subject.of(model, data, images=IMAGES, device="cpu", texts=True, **options)
        noted = [caveat.to_row() for caveat in check_subject(subject)]
        task = CleanSlice(0, len(subject.data))
        return {caveat.kind for caveat in caveats(noted, [Result(task, task.measure(subject), None, 1.0)])}
    except ShiftproofError:
        return {"refused"}


@cache
def demo_arrays() -> tuple[Tensor, Tensor]:
    (batch,) = load_data("demo").take(200).batches(200)
    assert batch.labels is not None
    return batch.inputs, batch.labels


def images(keep: Callable[[Tensor], Tensor] | None = None) -> tuple[Tensor, Tensor]:
    """Return images and labels of the demo, those whose labels are kept."""
    pixels, labels = demo_arrays()
    chosen = torch.ones_like(labels, dtype=torch.bool) if keep is None else keep(labels)
    return pixels[chosen], labels[chosen]


def relabelled(change: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    pixels, labels = images()
    return pixels, change(labels)


def demo() -> Any:
    return load_model("demo")


def on_scores(change: Callable[[Tensor], Any]) -> Any:
    network = demo()
    return BlackBox(lambda pixels: change(network(pixels).detach()))


def on_images(change: Callable[[Tensor], Tensor]) -> Any:
    network = demo()
    return BlackBox(lambda pixels: network(change(pixels)).detach())


class TrainingOn(nn.Module):
    """The demo with dropout or batch normalisation in training mode."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.network, self.layer = demo(), layer

    def forward(self, pixels: Tensor) -> Tensor:
        scores: Tensor = self.layer.train()(self.network(pixels))
        return scores


class Counting(nn.Module):
    """The demo, whose weights change whenever it is called."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.network = demo()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, pixels: Tensor) -> Tensor:
        self.calls += 1
        scores: Tensor = self.network(pixels)
        return scores


def colours(order: str = "rgb", scale: float = 1.0) -> tuple[Any, tuple[Tensor, Tensor]]:
    """Return a model that knows an image by its strongest colour, and images; it wants channels and values its way."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % 3
    pixels = (
        torch.rand(60, 3, 8, 8, generator=generator) * 0.6 + 0.4 * nn.functional.one_hot(labels, 3)[..., None, None]
    )

    def model(batch: Tensor) -> Tensor:
        batch = batch.flip(1) if order == "bgr" else batch
        return (batch.mean((2, 3)) - 0.5 * scale) * 8 / scale

    return BlackBox(model), (pixels.clamp(0, 1), labels)


def shifted_by_one(model: Any, data: tuple[Tensor, Tensor]) -> tuple[Any, tuple[Tensor, Tensor]]:
    """Return a model, and images of its three classes, each labelled as the next."""
    return model, (data[0], (data[1] + 1) % 3)


def faint() -> tuple[Any, tuple[Tensor, Tensor]]:
    """Return a model that takes faint images for the most frequent class and guesses otherwise, and images."""
    generator = torch.Generator().manual_seed(0)
    pixels, labels = torch.rand(60, 3, 8, 8, generator=generator), (torch.arange(60) % 10 == 0).long()

    def model(batch: Tensor) -> Tensor:
        found = (batch[:, 0, 0, 0] > 0.5) & (batch.flatten(1).std(1) > 0.15)
        return torch.stack([~found, found], 1).float() * 4

    return BlackBox(model), (pixels, labels)


def folder(root: Path, *names: str, twice: bool = False) -> Path:
    """Write a few of the demo's images of each class under other names of the classes, or the same ones under all."""
    pixels, labels = images()
    for place, name in enumerate(names):
        (root / name).mkdir(parents=True)
        own = pixels[labels == (0 if twice else place)][:8]
        for number, image in enumerate(own):
            array = (image.permute(1, 2, 0) * 255).round().to(torch.uint8).numpy()
            Image.fromarray(array).save(root / name / f"{number}.png")
    return root


def twice(share: float) -> tuple[Tensor, Tensor]:
    """Return images of which a share is there once more, as another class."""
    pixels, labels = images()
    count = int(share * len(labels))
    return torch.cat([pixels, pixels[:count]]), torch.cat([labels, (labels[:count] + 1) % 10])


def unnormalised(*turned: int) -> Any:
    """Return a network that was made for images that are normalised beforehand, with channels turned."""
    network = demo()
    layer = Normalize(MEAN, STD)
    mean, std = layer.mean.float(), layer.std.float()
    return BlackBox(lambda pixels: network((pixels * std + mean).flip(turned)).detach())


SWAP = torch.tensor([0, 1, 2, 5, 4, 3, 6, 7, 8, 9])

BAD: Mapping[str, tuple[str, Callable[[Path], Any]]] = {
    "random logits": ("random", lambda _: (on_scores(torch.randn_like), images())),
    "noise that looks like scores": (
        "chance",
        lambda _: (
            BlackBox(lambda pixels: (pixels.sum((1, 2, 3))[:, None] * 997 * torch.arange(1, 11)).sin()),
            images(),
        ),
    ),
    "constant": ("one_answer", lambda _: (on_scores(lambda scores: scores * 0 + torch.arange(10.0)), images())),
    "probabilities": ("probabilities", lambda _: (on_scores(lambda scores: scores.softmax(1)), images())),
    "dropout on": ("training", lambda _: (TrainingOn(nn.Dropout(0.5)), images())),
    "batch normalisation on": ("batch", lambda _: (TrainingOn(nn.BatchNorm1d(10)), images())),
    "scores of the batch": ("batch", lambda _: (on_scores(lambda scores: scores - scores.mean(0)), images())),
    "weights that change": ("weights", lambda _: (Counting(), images())),
    "blue, green, red": ("preparation", lambda _: colours("bgr")),
    "values of 0 to 255": ("preparation", lambda _: (on_images(lambda pixels: pixels / 255), images())),
    "normalisation left out": ("preparation", lambda _: (unnormalised(), images())),
    "normalised twice": (
        "preparation",
        lambda _: (on_images(Normalize(MEAN, STD)), images()),
    ),
    "order and normalisation": (
        "preparation",
        lambda _: (unnormalised(1), images()),
    ),
    "distances": ("distances", lambda _: (on_scores(lambda scores: -scores), images())),
    "labels from 1": ("refused", lambda _: (demo(), relabelled(lambda labels: labels + 1))),
    "labels shifted by one": ("swapped", lambda _: (demo(), relabelled(lambda labels: (labels + 1) % 10))),
    "the only three classes shifted by one": ("swapped", lambda _: shifted_by_one(*colours())),
    "two classes swapped": ("swapped", lambda _: (demo(), relabelled(lambda labels: SWAP[labels]))),
    "labels at random": ("chance", lambda _: (demo(), relabelled(lambda labels: labels[(17 * labels + 3) % 10]))),
    "copies in other classes": ("duplicates", lambda _: (demo(), twice(0.2))),
    "all classes the same": ("duplicates", lambda root: (demo(), folder(root, "cat", "dog", "ship", twice=True))),
    "one class": ("refused", lambda _: (demo(), images(lambda labels: labels == 3))),
    "a coin for two classes": (
        "chance",
        lambda _: (
            BlackBox(lambda pixels: torch.stack([pixels[:, 0, 0, 0] * 255 % 2, torch.ones(len(pixels))], 1)),
            relabelled(lambda labels: labels % 2),
        ),
    ),
    "NaN": ("refused", lambda _: (on_scores(lambda scores: scores * float("nan")), images())),
    "answers without scores": ("refused", lambda _: (on_scores(lambda scores: scores.argmax(1)), images())),
    "one output": ("refused", lambda _: (on_scores(lambda scores: scores[:, :1]), images())),
    "too few outputs": ("refused", lambda _: (on_scores(lambda scores: scores[:, :5]), images())),
    "images normalised already": (
        "refused",
        lambda _: (demo(), (Normalize(MEAN, STD)(images()[0]), images()[1])),
    ),
    "names of other classes": ("refused", lambda root: (demo(), folder(root, "cat", "unicorn"))),
    "numbers that are no indices": ("refused", lambda root: (demo(), folder(root, "0.0", "1.0", "2.0"))),
    "a number below 0": ("refused", lambda root: (demo(), folder(root, "-1", "0", "1"))),
    "a name among numbers": ("refused", lambda root: (demo(), folder(root, "0", "1", "unknown"))),
    "several labels in one": (
        "refused",
        lambda _: (demo(), (images()[0], nn.functional.one_hot(images()[1], 10).numpy() | np.eye(10, dtype=int)[0])),
    ),
}


def noisy(strength: float) -> tuple[Tensor, Tensor]:
    pixels, labels = images()
    noise = torch.randn(pixels.shape, generator=torch.Generator().manual_seed(0))
    return (pixels + strength * noise).clamp(0, 1), labels


def unbalanced() -> tuple[Tensor, Tensor]:
    """Return images of ten classes, most of which are of two."""
    pixels, labels = images()
    chosen = (labels < 2) | (torch.arange(len(labels)) % 4 == 0)
    return pixels[chosen], labels[chosen]


class Nearest:
    """A classifier as scikit-learn has them: the nearest mean of each class."""

    def __init__(self) -> None:
        _, (pixels, labels) = colours()
        rows = pixels.permute(0, 2, 3, 1).flatten(1).numpy()
        self.classes_ = np.arange(3)
        self.means = np.stack([rows[labels.numpy() == one].mean(0) for one in range(3)])

    def decision_function(self, rows: Any) -> Any:
        return -((rows[:, None] - self.means) ** 2).sum(2)


SOUND: Mapping[str, Callable[[Path], Any]] = {
    "the demo": lambda _: ("demo", "demo"),
    "numbered labels": lambda _: (demo(), images()),
    "sorted by class": lambda _: (demo(), tuple(part[images()[1].argsort()] for part in images())),
    "two classes of ten": lambda _: (demo(), images(lambda labels: labels < 2)),
    "three named classes": lambda root: (demo(), folder(root, *CIFAR10[:3])),
    "unbalanced": lambda _: (demo(), unbalanced()),
    "hard but honest": lambda _: (demo(), noisy(0.05)),
    "a black box": lambda _: (on_scores(lambda scores: scores), images()),
    "scores of another scale": lambda _: (on_scores(lambda scores: scores * 1e3 + 1e4), images()),
    "probabilities that are said": lambda _: (
        load_model(on_scores(lambda scores: scores.softmax(1)), probabilities=True),
        images(),
    ),
    "several outputs": lambda _: (on_scores(lambda scores: (scores, scores.mean(1))), images()),
    "an object with logits": lambda _: (on_scores(lambda scores: SimpleNamespace(logits=scores)), images()),
    "reduced precision": lambda _: (demo().to(torch.bfloat16), images()),
    "arrays with channels last": lambda _: (
        channels_last(lambda pixels: (pixels.mean(axis=(1, 2)) - 0.5) * 8),
        colours()[1],
    ),
    "a classifier of rows": lambda _: (Nearest(), colours()[1]),
    "some of its classes alone": lambda _: (
        load_model("demo", only_classes=["cat", "dog", "ship"]),
        images(lambda labels: (labels == 3) | (labels == 5) | (labels == 8)),
    ),
    "grey images": lambda _: (
        BlackBox(lambda pixels: torch.cat([0.5 - pixels.mean((2, 3)), pixels.mean((2, 3)) - 0.5], 1) * 8),
        (torch.rand(40, 1, 8, 8) * 0.5 + 0.5 * (torch.arange(40) % 2).view(-1, 1, 1, 1), torch.arange(40) % 2),
    ),
}


def test_the_tables_are_as_long_as_they_should_be():
    assert len(BAD) >= 25
    assert len(SOUND) >= 15


@pytest.mark.parametrize("name", BAD)
def test_what_is_bad_is_told(name, tmp_path):
    kind, make = BAD[name]
    assert kind in said_of(*make(tmp_path))


def test_distances_are_told_instead_of_another_order_of_outputs():
    assert said_of(on_scores(lambda scores: -scores), images()) == {"chance", "distances"}


def test_an_input_preparation_that_is_right_as_often_as_by_chance_is_not_told():
    assert said_of(*shifted_by_one(*colours())) == {"chance", "swapped"}


def test_an_input_preparation_that_only_yields_the_most_frequent_class_is_not_told_as_the_model_s_own():
    assert said_of(*faint()) == {"chance"}


@pytest.mark.parametrize("name", SOUND)
def test_of_what_is_sound_nothing_is_said(name, tmp_path):
    assert said_of(*SOUND[name](tmp_path)) == set()
