"""What is a suite and what is not, and the other published sets of shifted images as they are unpacked."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import shiftproof
from shiftproof.data import load_data
from shiftproof.data.images.published_suites import find_suite
from shiftproof.errors import DataError
from shiftproof.models import imagenet

WNIDS = imagenet.wordnet_ids()


def write(root: Path, paths: Iterable[str]) -> Path:
    """Write an image to each path, no two alike."""
    for number, path in enumerate(paths):
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (number % 256, number // 256, 7)).save(file)
    return root


def parts(*corruptions: str, levels: Iterable[object] = (1, 2, 3, 4, 5), classes: str = "ab") -> list[str]:
    """Return the paths of a suite."""
    return [f"{name}/{level}/{kind}/0.png" for name in corruptions for level in levels for kind in classes]


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (parts("snow", "fog"), ["fog@1", "fog@2", "fog@3", "fog@4", "fog@5", "snow@1"]),
        (parts("weather/fog", "blur/zoom_blur", "extra/saturate", levels=[3]), ["fog@3", "saturate@3", "zoom_blur@3"]),
        (parts("sparkles", levels=["10.00", "9.00", "2.00", "3.00", "4.00"]), [f"sparkles@{s}" for s in range(1, 6)]),
        (parts("sparkles", levels=["10.00", "3.00"]), ["sparkles@3", "sparkles@10"]),
        (parts("fog", "my_own", levels=[2]), ["fog@2", "my_own@2"]),
        ([*parts("fog", levels=[1, 2]), "fog/3/a/0.png"], ["fog@1", "fog@2", "fog@3"]),  # unpacked in part
    ],
)
def test_suites(paths: list[str], expected: list[str], tmp_path: Path) -> None:
    found = find_suite(write(tmp_path, paths))
    assert found is not None
    assert list(found.parts)[: len(expected)] == expected
    assert found.unclear == ()


@pytest.mark.parametrize(
    "paths",
    [
        ["fog/a.png", "snow/b.png", "frost/c.png"],  # classes of weather
        ["1/a.png", "2/b.png", "3/c.png"],
        ["fog/1/a.png", "fog/2/b.png", "snow/1/c.png"],  # classes with numbered sequences
        ["fog/1/x/a.png", "fog/2/y/b.png", "snow/1/z/c.png"],  # of which each has folders of its own
        ["fog/1/x/a.png", "fog/2/x/b.png"],  # one class is none
        ["fog/day/x/a.png", "fog/day/y/b.png"],
        ["fog/1/x/a.png", "fog/1/y/a.png", "fog/c.png"],
        ["blur/a.png", "noise/b.png"],
        ["noise/sharp/a.png", "noise/dull/a.png", "blur/sharp/b.png"],
        parts("smudge", "scratch"),  # nobody's published corruption
        parts("train", "val", levels=["a", "b"]),
    ],
)
def test_class_folders_are_no_suites(paths: list[str], tmp_path: Path) -> None:
    assert find_suite(write(tmp_path, paths)) is None


def test_a_strength_is_not_taken_for_a_severity(tmp_path: Path) -> None:
    found = find_suite(write(tmp_path, parts("sparkles", levels=["2.00", "3.00", "4.00", "6.00", "9.00"])))
    assert found is not None
    at = {text: found.find(text) for text in ("sparkles@3.00", "sparkles/3.00", "sparkles@3", "sparkles@5.00", "fog@3")}
    assert [part and part.severity for part in at.values()] == [2.0, 2.0, 3.0, None, None]


def test_a_folder_that_may_be_either_is_refused_with_the_ways_out(tmp_path: Path) -> None:
    write(tmp_path, [*parts("fog"), "sunny/a.png"])
    for call in (load_data, lambda data: shiftproof.audit("demo", data, out=tmp_path / "run")):
        with pytest.raises(DataError, match="may be a suite of corrupted images, or images by class") as caught:
            call(tmp_path)
        assert caught.value.facts["got"] == "fog/1 as in a suite, and images in sunny"
        assert "--split" in caught.value.facts["fix"]
    assert len(load_data(tmp_path, split="fog@2")) == 2
    table = tmp_path / "labels.csv"
    table.write_text("file,label\nfog/1/a/0.png,fog\nsunny/a.png,sunny\n")
    assert load_data(tmp_path, labels=table).classes == ("fog", "sunny")


def test_a_part_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    write(tmp_path, [*parts("fog", levels=[1]), *parts("weather/fog", levels=[1])])
    with pytest.raises(DataError, match="fog@1 occurs twice"):
        find_suite(tmp_path)


def test_arrays(tmp_path: Path) -> None:
    np.save(tmp_path / "labels.npy", np.zeros(10, int))
    np.save(tmp_path / "images.npy", np.zeros((50, 4, 4, 3), np.uint8))
    assert find_suite(tmp_path) is None  # a set, not a suite
    np.save(tmp_path / "fog@2.npy", np.zeros((10, 4, 4, 3), np.uint8))  # of write-corrupted --shifts fog@2
    np.save(tmp_path / "snow.npy", np.zeros((50, 4, 4, 3), np.uint8))
    np.save(tmp_path / "features.npy", np.zeros((50, 3), np.uint8))
    found = find_suite(tmp_path)
    assert found is not None
    assert [*found.parts][:6] == ["fog@2", "images@1", "images@2", "images@3", "images@4", "images@5"]
    assert found.ignored == ("features.npy",)
    assert len(found.load("fog@2")) == len(found.load("snow@5")) == 10
    np.save(tmp_path / "snow.npy", np.zeros((51, 4, 4, 3), np.uint8))
    with pytest.raises(DataError, match="is not a file of a published suite"):
        load_data(tmp_path, split="snow@5")


class Reads(nn.Module):
    """A thousand outputs, of which that of the number in an image's pixels is high, and that beside it the highest."""

    def __init__(self, beside: int) -> None:
        super().__init__()
        self.beside = beside

    def forward(self, images: Tensor) -> Tensor:
        """Return logits."""
        numbers = ((images[:, 1, 0, 0] * 256 + images[:, 2, 0, 0]) * 255).round().long()
        first = nn.functional.one_hot((numbers + self.beside) % 1000, 1000)
        return 9.0 * first + 5.0 * nn.functional.one_hot(numbers % 1000, 1000)


def by_class(root: Path, classes: Iterable[tuple[str, int]]) -> Path:
    """Write an image for each class that says its number."""
    for name, number in classes:
        path = root / name / "a.png"
        path.parent.mkdir(parents=True)
        Image.new("RGB", (16, 16), (0, number // 256, number % 256)).save(path)
    return root


def test_imagenet_v2_has_folders_by_number(tmp_path: Path) -> None:
    """Its folders are 0 to 999: 10 comes after 9, not after 1."""
    place = by_class(tmp_path / "imagenetv2-matched-frequency-format-val", ((str(n), n) for n in range(0, 1000, 9)))
    labels = load_data(place).labels
    assert labels is not None
    assert sorted(labels.tolist()) == list(range(0, 1000, 9))
    found = shiftproof.audit(Reads(0), place, out=tmp_path / "run", sections=["clean"])
    assert found.numbers["clean_accuracy"] == 1.0


@pytest.mark.parametrize("name", ["imagenet-r", "imagenet-a"])
def test_two_hundred_classes_are_evaluated_alone(name: str, tmp_path: Path) -> None:
    """ImageNet-R and ImageNet-A have folders for 200 WordNet ids, and only these outputs count."""
    chosen = [number for number in range(1000) if number % 50 < 10]
    place = by_class(tmp_path / name, ((WNIDS[number], number) for number in chosen))
    (place / "README.txt").write_text("200 classes")
    model = Reads(20)  # what it says first is none of them, and what it says next is right
    every = shiftproof.audit(model, place, out=tmp_path / "every", sections=["clean"])
    assert every.numbers["clean_accuracy"] == 0.0
    assert "only_classes leaves the others out" in every.masthead.method["data"]
    only = shiftproof.load_model(model, only_classes=place)
    held = shiftproof.audit(only, place, out=tmp_path / "held", sections=["clean"])
    assert held.numbers["clean_accuracy"] == 1.0


@pytest.mark.parametrize("split", ["v6", "cifar10.1_v6"])
def test_cifar_10_1(split: str, tmp_path: Path) -> None:
    images: Any = np.random.default_rng(0).integers(0, 256, (12, 32, 32, 3), dtype=np.uint8)
    for version, count in (("v4", 7), ("v6", 12)):
        np.save(tmp_path / f"cifar10.1_{version}_data.npy", images[:count])
        np.save(tmp_path / f"cifar10.1_{version}_labels.npy", np.arange(count) % 10)
    for data in (load_data(tmp_path / "cifar10.1_v6_data.npy"), load_data(tmp_path, split=split)):
        assert data.labels is not None
        assert data.labels.tolist() == (np.arange(12) % 10).tolist()
        assert torch.equal(next(data.batches(12)).inputs[3].permute(1, 2, 0) * 255, torch.tensor(images[3]).float())
    with pytest.raises(DataError, match="several sets") as caught:
        load_data(tmp_path)
    assert "v4, v6" in caught.value.facts["got"]
    (tmp_path / "cifar10.1_v4_data.npy").unlink()
    assert len(load_data(tmp_path)) == 12
