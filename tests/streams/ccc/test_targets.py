"""Targets by name and by number."""

import pytest

from shiftproof.errors import ConfigurationError
from shiftproof.streams.ccc.targets import SHARES, accuracy_at, read_target


def test_names_give_the_published_targets_for_the_published_model():
    found = [accuracy_at(name, clean=0.7613, classes=1000) for name in ("easy", "medium", "hard")]
    assert found == pytest.approx([0.34, 0.17, 0.02], abs=0.005)


@pytest.mark.parametrize("classes", [2, 10, 1000])
def test_targets_lie_between_chance_and_clean_in_order(classes):
    hard, medium, easy = (accuracy_at(name, clean=0.9, classes=classes) for name in ("hard", "medium", "easy"))
    assert 1 / classes < hard < medium < easy < 0.9
    assert accuracy_at("easy", clean=0.0, classes=classes) == 1 / classes


def test_numbers_are_themselves_also_as_text():
    assert read_target("0.34") == read_target(0.34) == 0.34
    assert accuracy_at("0.34", clean=0.9, classes=10) == 0.34
    assert all(read_target(name) == name for name in SHARES)


@pytest.mark.parametrize("target", [0.0, 1.0, -1, 34, "34", "nan", "simple", ""])
def test_anything_else_is_refused(target):
    with pytest.raises(ConfigurationError, match="target must be an accuracy"):
        read_target(target)
