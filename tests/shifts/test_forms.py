"""The text of a shift is the whole shift: whatever its fields, `parse` makes the same one of its label."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from shiftproof import shifts
from shiftproof.errors import ConfigurationError
from shiftproof.models.identity import digest
from shiftproof.registry import resolve
from shiftproof.shifts import catalogue, parametric
from shiftproof.shifts.catalogue import OTHERS, as_shift
from shiftproof.shifts.corruptions.corruption import Corruption
from shiftproof.shifts.operations import operation
from shiftproof.shifts.text import registry as text_registry

SEVERITIES = st.floats(0, 5)
FAMILIES = [name for family in catalogue.TABLED for name in shifts.names(family)]


@given(st.sampled_from(FAMILIES), SEVERITIES, st.sampled_from([None, "cifar", "imagenet"]))
def test_every_corruption_at_every_severity_and_preset(name: str, severity: float, preset: str | None) -> None:
    shift = shifts.corruption(name, severity, preset)
    assert shifts.parse(shift.label) == shift


@given(st.sampled_from(sorted(operation.KINDS)), st.floats(0, 1), st.sampled_from(["black", "reflect"]), SEVERITIES)
def test_every_operation(name: str, share: float, fill: Any, severity: float) -> None:
    kind = operation.KINDS[name]
    level = None if kind.takes is None else max(kind.low, -9.0) + share * (min(kind.high, 9.0) - max(kind.low, -9.0))
    shift = operation.Operation(name, severity, round(level) if kind.whole and level is not None else level, fill)
    assert shifts.parse(shift.label) == shift


@pytest.mark.parametrize("name", parametric.FORMS)
def test_every_shift_with_parameters_of_its_own(name: str) -> None:
    """Each parameter in turn at another value that its type and range allow."""
    kind = resolve(parametric.FORMS, name, "shift")
    needed = {"eps": 7.25, "center": 3.5, "alpha": 1.125, "i": 1, "j": 2}
    given = {each.name: needed[each.name] for each in fields(kind) if each.init and each.name in needed}
    base = kind(**given)
    assert shifts.parse(base.label) == base
    changed = 0
    for each in fields(kind):
        if each.init:
            for value in _others(get_type_hints(kind)[each.name], getattr(base, each.name)):
                try:
                    other = dataclasses.replace(base, **{each.name: value})
                except ConfigurationError:
                    continue  # out of its range
                assert shifts.parse(other.label) == other != base
                changed += 1
                break
    assert changed or not any(each.init for each in fields(kind))


def _others(kind: Any, value: Any) -> list[Any]:
    if get_origin(kind) is Literal:
        return [each for each in get_args(kind) if each != value]
    if isinstance(value, bool):
        return [not value]
    if not isinstance(value, int | float):
        return ["uniform", "release"]
    return [other for other in (value + 1, value / 2, value * 1.0625, value + 0.25) if other != value]


@given(st.sampled_from([name for name in text_registry.SHIFTS if name not in text_registry.NEED_MODELS]), SEVERITIES)
def test_every_text_shift(name: str, severity: float) -> None:
    shift = text_registry.text_shift(name, severity)
    assert shifts.parse(shift.label) == shift


@given(st.lists(st.sampled_from(["fog@3", "contrast@2.125[preset=cifar]", "rotate=15", "augmix[depth=2]"]), max_size=4))
def test_every_chain_but_one_of_a_single_step(texts: list[str]) -> None:
    chain = shifts.ImageChain(steps=[shifts.as_image_shift(text) for text in texts])
    if len(texts) != 1:  # which draws otherwise than its step, and has the same label
        assert shifts.parse(chain.label) == chain
    else:
        assert digest(shifts.parse(chain.label)) != digest(chain)


@dataclass(frozen=True)
class Rain(shifts.ImageShift):
    """A shift with a field of every kind."""

    density: float = 0.5
    drops: int = 3
    wet: bool = False
    angle: float | None = None
    mode: Literal["fine", "coarse"] = "fine"
    where: str = "sky"
    kernel: Any = None

    def draw(self, rng: Any, shape: Any) -> None:
        """Nothing is random."""

    def transform(self, images: torch.Tensor, drawn: None) -> torch.Tensor:
        """Darken."""
        return images * (1 - self.density * self.severity / 5)


@pytest.fixture
def rain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OTHERS.__dict__, "others", {"rain": (f"{__name__}:Rain", "weather")})


@pytest.mark.usefixtures("rain")
class TestPlugins:
    @pytest.mark.parametrize(
        "changed",
        [
            {"density": 0.1 + 0.2},
            {"drops": 7},
            {"wet": True},
            {"angle": 1.5},
            {"mode": "coarse"},
            {"where": "left"},
            {"density": 0.9, "drops": -1, "wet": True, "angle": -0.25},
        ],
    )
    def test_fields_are_written_and_read_with_their_types(self, changed: dict[str, Any]) -> None:
        shift = shifts.corruption("rain", 2.5, **changed)
        read = shifts.parse(shift.label)
        assert read == shift == Rain("rain", 2.5, **changed)
        assert digest(read) == digest(shift) != digest(shifts.corruption("rain", 2.5))
        assert shift.label != shifts.corruption("rain", 2.5).label
        assert shifts.parse(f"{shift.label} + fog@1").steps[0] == shift  # type: ignore[attr-defined]

    def test_text_becomes_a_number_that_can_be_used(self) -> None:
        shift = shifts.parse("rain@3[density=0.3,wet=true]")
        assert (shift.density, shift.wet) == (0.3, True)  # type: ignore[attr-defined]
        images = torch.full((1, 3, 8, 8), 200 / 255)
        assert shift(images, [0]).max() < images.max()

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("rain@3[density=much]", "The option 'density' of 'rain'(?s:.*)a number"),
            ("rain@3[wet=maybe]", "(?s)The option 'wet'.*True or False"),
            ("rain@3[mode=rough]", "(?s)no mode named 'rough'.*fine or coarse"),
            ("rain@3[densty=1]", "(?s)no option of 'rain' named 'densty'.*density"),
            ("rain@3[preset=cifar]", "no option of 'rain' named 'preset'"),
            ("rain", "no severity"),
        ],
    )
    def test_what_cannot_be_read_is_told(self, text: str, said: str) -> None:
        with pytest.raises(ConfigurationError, match=said):
            shifts.parse(text)

    def test_a_tensor_in_a_field_counts_and_has_no_text(self) -> None:
        one, other = (Rain("rain", 1, kernel=torch.full((2,), value)) for value in (1.0, 2.0))
        assert digest(one) != digest(other)
        assert digest(one) == digest(Rain("rain", 1, kernel=torch.ones(2)))
        assert len({digest(Rain("rain", 1, kernel=np.full(2, value))) for value in (1, 2)}) == 2
        assert one.content_digest() == digest(one)


def test_all_fields_tell_shifts_apart() -> None:
    every = [
        shifts.corruption("contrast", 3),
        shifts.corruption("contrast", 3, "cifar"),
        shifts.corruption("contrast", 3, "imagenet"),
        shifts.corruption("contrast", 3 + 1e-9),
        shifts.parse("contrast=3"),
        shifts.ImageChain(steps=[shifts.corruption("contrast", 3)]),
        shifts.ImageChain(steps=[shifts.ImageChain(steps=[shifts.corruption("contrast", 3)])]),
    ]
    assert len({digest(shift) for shift in every}) == len(every)
    assert digest(every[0]) == digest(shifts.parse("contrast@3"))


def test_the_files_a_shift_reads_are_part_of_it(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"one")
    shift = Corruption("frost", 3, options=(("textures", str(tmp_path)),))
    before = digest(shift)
    assert digest(shift) == before
    (tmp_path / "a.png").write_bytes(b"two")
    assert digest(shift) != before


@pytest.mark.parametrize("other", [3, None, shifts.Shift, ["fog@3"]])
def test_what_is_no_shift_is_refused_in_words(other: Any) -> None:
    with pytest.raises(ConfigurationError, match="Invalid shift"):
        as_shift(other)
