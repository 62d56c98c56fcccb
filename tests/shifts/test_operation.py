"""Operations at a level: names, text forms, published sets, and batches with different operations."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from shiftproof.errors import ConfigurationError
from shiftproof.shifts import parse
from shiftproof.shifts.levels import to_levels
from shiftproof.shifts.operations.operation import (
    KINDS,
    Operation,
    apply_each_,
    operation,
    operation_set,
    operation_sets,
)
from tests.shifts.batches import assert_same_bits_in_any_batch, random_images

LEVELS: dict[str, float | None] = {
    "autocontrast": 2.5,
    "brightness": 1.3,
    "color": 0.4,
    "contrast": 0.6421052631578947,
    "sharpness": 2.2,
    "solarize": 100,
    "posterize": 3,
    "equalize": None,
    "invert": None,
    "grayscale": None,
    "red_shift": 30,
    "green_shift": -40,
    "blue_shift": 9,
    "rotate": 17.5,
    "translate_x": 0.13,
    "translate_y": -0.2,
    "shear_x": 0.2,
    "shear_y": -0.1,
    "scale": 1.2,
    "flip": None,
}


def test_the_table_covers_every_operation() -> None:
    assert set(LEVELS) == set(KINDS)


@pytest.mark.parametrize("name", LEVELS)
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 8, 8), (3, 21, 40)])
def test_same_bits_in_any_batch(name: str, shape: tuple[int, int, int]) -> None:
    assert_same_bits_in_any_batch(operation(name, LEVELS[name]), random_images(9, *shape))


@pytest.mark.parametrize("name", LEVELS)
def test_text_form_reads_back(name: str) -> None:
    shift = operation(name, LEVELS[name])
    assert parse(shift.label) == shift
    assert str(shift) == shift.label


def test_text_forms() -> None:
    assert operation("contrast", 0.8).label == "contrast=0.8"
    assert operation("red_shift", 30.0).label == "red_shift=30"
    assert operation("grayscale").label == "grayscale"
    assert operation("rotate", -15, fill="reflect").label == "rotate=-15[fill=reflect]"
    assert parse(" rotate=-15[fill=reflect] ") == operation("rotate", -15, fill="reflect")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rotate", "needs a level"),
        ("contrast=", "Cannot read"),
        ("contrast=high", "Cannot read"),
        ("contrast=nan", "no such level"),
        ("grayscale=3", "takes no level"),
        ("posterize=9", "no such level"),
        ("posterize=3.5", "no such level"),
        ("red_shift=0.5", "no such level"),
        ("contrst=1", "did you mean  contrast"),
        ("rotate=3[fill=red]", "no fill named 'red'"),
        ("rotate@3", "no corruption named 'rotate'"),
    ],
)
def test_what_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        parse(text)


def test_published_sets_have_their_sizes() -> None:
    sizes = {name: len(operation_set(name)) for name in operation_sets()}
    assert sizes == {"mnist": 211, "cifar": 190, "camvid": 190, "faces": 191, "geometric": 120}
    assert all(len(set(operation_set(name))) == size for name, size in sizes.items())


def test_published_levels() -> None:
    def levels(space: str, name: str) -> list[float | None]:
        return [each.level for each in operation_set(space) if each.name == name]

    assert levels("mnist", "autocontrast") == np.linspace(0, 0.3, 20).tolist()
    assert levels("cifar", "brightness") == np.linspace(0.8, 1.2, 20).tolist()
    assert levels("mnist", "solarize") == np.linspace(0, 20, 20).astype(int).tolist()
    assert levels("camvid", "green_shift") == np.linspace(-120, 120, 30).astype(int).tolist()
    assert levels("faces", "grayscale") == [None]
    assert {each.name for each in operation_set("mnist")} - {each.name for each in operation_set("cifar")} == {
        "solarize",
        "grayscale",
    }


def test_unknown_set() -> None:
    with pytest.raises(ConfigurationError, match="did you mean  cifar"):
        operation_set("cifar10")


def test_severity_zero_is_the_identity() -> None:
    images = random_images(3, 3, 16, 16)
    assert torch.equal(Operation("invert", severity=0.0)(images, [0, 1, 2]), images)


def test_values_between_levels_are_truncated() -> None:
    images = torch.full((1, 1, 8, 8), 100.7 / 255)
    assert torch.equal(to_levels(images), torch.full((1, 1, 8, 8), 100.0))
    every = torch.arange(256).float() / 255
    assert torch.equal(to_levels(every), torch.arange(256).float())


def test_a_batch_of_different_operations_equals_one_at_a_time() -> None:
    names = ("identity", *KINDS)
    images = random_images(60, 3, 19, 24)
    generator = torch.Generator().manual_seed(2)
    which = torch.randint(0, len(names), (60,), generator=generator)
    level = torch.tensor([LEVELS.get(names[each]) or 0.0 for each in which], dtype=torch.float64)
    together = apply_each_(names, to_levels(images), which, level)
    assert len(which.unique()) > 15
    for image, each, result in zip(images, which.tolist(), together, strict=True):
        name = names[each]
        alone = image[None] if name == "identity" else operation(name, LEVELS[name])(image[None], [0])
        assert torch.equal(result, to_levels(alone)[0]), name
