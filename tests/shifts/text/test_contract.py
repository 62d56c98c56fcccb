"""What every text shift must hold, driven by one table."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from shiftproof import corrupt, shifts
from shiftproof.errors import ConfigurationError, DataError, ShiftproofError
from shiftproof.shifts.text import TextShift
from tests.shifts.text.sentences import KEYS, TEXTS, parse

NAMES = [name for family in ("everyday", "edits") for name in shifts.names(family)]
PLAIN = [name for name in NAMES if name not in ("ssmba", "back_translation")]  # these need models: see test_models
EVERY = pytest.mark.parametrize("name", PLAIN)
LABELS = [*(f"{name}@5" for name in PLAIN), "typos@2 + letter_case@3"]


@pytest.mark.parametrize("label", LABELS)
def test_changes_texts_the_same_way_in_any_batch_and_order(label):
    shift = parse(label)
    whole = shift(TEXTS, KEYS, seed=5)
    assert whole != TEXTS
    assert shift(TEXTS[::-1], KEYS[::-1], seed=5)[::-1] == whole
    assert [shift([text], [key], seed=5)[0] for text, key in zip(TEXTS, KEYS, strict=True)] == whole
    assert shift(TEXTS, torch.tensor(KEYS), seed=5) == whole


@EVERY
def test_other_seeds_and_keys_draw_otherwise(name):
    shift = parse(f"{name}@3")
    one = shift(TEXTS, KEYS, seed=0)
    if name != "dropped_punctuation":
        assert shift(TEXTS, KEYS, seed=1) != one
        assert shift(TEXTS, [key + 1 for key in KEYS], seed=0) != one


@EVERY
def test_severity_0_is_the_identity_and_labels_read_back(name):
    assert parse(f"{name}@0")(TEXTS, KEYS) == TEXTS
    shift = parse(f"{name}@2.5")
    assert isinstance(shift, TextShift)
    assert (shift.severity, shift.label) == (2.5, f"{name}@2.5")
    assert parse(shift.label) == shift
    assert shifts.facts(name)["family"] in ("everyday", "edits")


@EVERY
def test_strength_grows_with_severity(name):
    strengths = [parse(f"{name}@{level}").strength for level in (0, 0.5, 1, 2, 3.5, 5)]
    assert strengths == sorted(set(strengths))
    assert strengths[0] == 0


@EVERY
@given(text=st.text(min_size=1, max_size=60), key=st.integers(0, 2**62), severity=st.floats(0, 5))
def test_no_text_comes_back_empty(name, text, key, severity):
    (made,) = parse(f"{name}@{severity:g}")([text], [key])
    assert bool(made.strip()) == bool(text.strip())


@EVERY
def test_both_texts_of_a_pair_change_and_pairs_stay_pairs(name):
    pairs = list(zip(TEXTS, TEXTS[::-1], strict=True))
    made = parse(f"{name}@5")(pairs, KEYS)
    assert all(isinstance(pair, tuple) and len(pair) == 2 for pair in made)
    assert any(new[0] != old[0] for new, old in zip(made, pairs, strict=True))
    assert any(new[1] != old[1] for new, old in zip(made, pairs, strict=True))


def test_corrupt_gives_back_the_kind_that_came():
    assert isinstance(corrupt("a wonderful little film", "typos@5"), str)
    assert isinstance(corrupt(("a premise with words", "a hypothesis"), "typos@5"), tuple)
    several = corrupt(TEXTS, "typos@5")
    assert several == [corrupt(text, "typos@5") for text in TEXTS]
    assert corrupt(TEXTS, "typos@5", seed=1) != several


def test_images_and_texts_are_not_taken_for_each_other():
    with pytest.raises(DataError, match="acts on texts"):
        parse("typos@3")(torch.zeros(1, 3, 8, 8), [0])
    with pytest.raises(DataError):
        parse("fog@3")(["a text"], [0])
    with pytest.raises(ConfigurationError, match="images or on texts"):
        parse("typos@3 + fog@3")
    with pytest.raises(DataError, match="needs a key"):
        parse("typos@3")(["a", "b"], [0])


@pytest.mark.parametrize("text", ["typos", "typos@6", "typo@3", "eda@2[words=3]", "ssmba@2", "back_translation@2"])
def test_unreadable_shifts_are_told_in_words(text):
    with pytest.raises(ShiftproofError):
        parse(text)
