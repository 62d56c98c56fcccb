"""What shifts of images and of texts have in common: siblings that neither refuse each other's methods nor mix."""

from typing import Any

import pytest
import torch

from shiftproof import shifts
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.searchers import make_space
from shiftproof.shifts import Chain, ImageChain, ImageShift, Shift
from shiftproof.shifts.text import TextChain, TextShift

IMAGES, TEXTS = torch.full((2, 3, 16, 16), 0.5), ["a fine film", "dull, and long"]


def test_shifts_of_images_and_texts_are_siblings():
    assert not issubclass(TextShift, ImageShift)
    assert not issubclass(ImageShift, TextShift)
    assert issubclass(ImageChain, Chain)
    assert issubclass(TextChain, Chain)
    assert not hasattr(TextShift, "transform")
    assert (shifts.parse("fog@3").acts_on, shifts.parse("typos@3").acts_on) == ("images", "texts")


@pytest.mark.parametrize(("text", "inputs"), [("fog@3", IMAGES), ("typos@3", TEXTS)])
def test_both_are_called_alike(text, inputs):
    shift: Shift = shifts.parse(text)
    assert len(shift(inputs, [1, 2])) == 2
    assert isinstance(shift.notes, tuple)
    with pytest.raises(DataError, match=r"2 keys, one per (image|text)"):
        shift(inputs, [1, 2, 3])


@pytest.mark.parametrize(("text", "other"), [("fog@3", TEXTS), ("typos@3", IMAGES)])
def test_the_inputs_of_the_other_kind_are_refused(text, other):
    with pytest.raises(DataError, match=r"Shifts act on tensors|acts on texts"):
        shifts.parse(text)(other, [1, 2])


def test_kinds_do_not_mix():
    with pytest.raises(ConfigurationError, match="images or on texts, not on both"):
        shifts.parse("fog@3 + typos@3")
    kinds: tuple[tuple[Any, str], ...] = ((ImageChain, "typos@3"), (TextChain, "fog@3"))
    for chain, step in kinds:
        with pytest.raises(ConfigurationError, match="A chain is made of shifts of"):
            chain(steps=[shifts.parse(step)])
    with pytest.raises(ConfigurationError, match="acts on texts, and these are images"):
        make_space([("typos@", [1.0, 2.0])])
