"""Weak slices: planted ones are found and named in the simplest words, and chance is not."""

import re

import numpy as np
import pytest

from shiftproof.errors import DataError
from shiftproof.slices import attributes, find_weak_slices
from shiftproof.slices.binning import attribute_of

CLASSES = ["cat", "dog", "ship"]


def scene(seed=0, count=3000):
    """Return labels, a brightness and a camera of images, and who is right nine times in ten."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, count)
    columns = {"brightness": rng.random(count), "camera": rng.choice(["a", "b", "c", "d"], count)}
    return rng, labels, columns, rng.random(count) < 0.9


def test_dark_cats_are_found_and_told_in_a_sentence():
    rng, labels, columns, right = scene()
    dark_cats = (labels == 0) & (columns["brightness"] < 0.2)
    right[dark_cats] = rng.random(dark_cats.sum()) < 0.5
    found = find_weak_slices(right, columns, labels=labels, classes=CLASSES)
    first = found.slices[0]
    assert first.words == ("dark (brightness up to 0.191)", "class cat")
    assert re.match(
        r"dark \(brightness up to 0.191\), class cat: accuracy \d\d% \(\d\d to \d\d%\) on \d+ images, [89]\d% on",
        str(first),
    )
    assert f"{first.images} images" in str(first)
    assert first.low < first.accuracy < first.high
    assert first.effect_low < first.effect < first.effect_high
    assert (found.members[0] & dark_cats).sum() > 0.9 * dark_cats.sum()


def test_a_hard_class_is_told_once_and_not_again_with_every_column():
    rng, labels, columns, right = scene()
    right[labels == 1] = rng.random((labels == 1).sum()) < 0.6
    found = find_weak_slices(right, columns, labels=labels, classes=CLASSES)
    assert [each.words for each in found.slices] == [("class dog",)]


def test_the_same_images_by_another_column_are_told_once_and_in_simple_words():
    rng, labels, columns, right = scene()
    bad = columns["camera"] == "b"
    right[bad] = rng.random(bad.sum()) < 0.6
    site = np.where(bad, "north", "south")
    site[np.nonzero(bad)[0][:3]] = "south"
    found = find_weak_slices(right, {**columns, "site": site, "copy": columns["camera"]}, labels=labels)
    assert len(found) == 1
    assert {"site north", "copy b"} <= set(found.slices[0].also)


@pytest.mark.parametrize("order", [("site", "camera"), ("camera", "site")])
def test_of_nearly_the_same_images_the_worst_are_told_whichever_column_comes_first(order):
    rng, labels, columns, right = scene()
    bad = columns["camera"] == "b"
    right[bad] = rng.random(bad.sum()) < 0.6
    site = np.where(bad, "north", "south")
    site[np.nonzero(bad)[0][:60]], site[np.nonzero(~bad)[0][:60]] = "south", "north"
    found = find_weak_slices(right, {name: {**columns, "site": site}[name] for name in order}, labels=labels)
    assert [(each.name, each.also) for each in found.slices] == [("camera b", ("site north",))]


def test_nearly_the_same_images_are_told_by_what_was_measured_last():
    rng, labels, columns, right = scene()
    bad = columns["brightness"] < 0.2
    right[bad] = rng.random(bad.sum()) < 0.6
    camera = np.where(bad, "b", "a")
    camera[np.nonzero(bad)[0][:40]] = "a"
    found = find_weak_slices(right, {"brightness": columns["brightness"], "camera": camera}, labels=labels)
    assert [each.name for each in found.slices] == ["camera b"]
    assert found.slices[0].also == ("dark (brightness up to 0.191)",)


def test_a_column_with_just_the_images_of_an_earlier_one_is_named_in_pairs_too():
    rng, labels, columns, right = scene()
    bad = (columns["camera"] == "b") & (labels == 0)
    right[bad] = rng.random(bad.sum()) < 0.4
    found = find_weak_slices(right, {**columns, "copy": columns["camera"]}, labels=labels, classes=CLASSES)
    called = {each.name: each.also for each in found.slices}
    assert called["camera b, class cat"] == ("copy b, class cat",)
    assert called["camera b"] == ("copy b",)


def test_shifts_are_looked_at_one_by_one():
    rng, labels, columns, right = scene()
    fog = right.copy()
    fog[labels == 2] = rng.random((labels == 2).sum()) < 0.5
    found = find_weak_slices({"clean": right, "fog@3": fog}, columns, labels=labels, classes=CLASSES)
    assert [each.name for each in found.slices] == ["class ship, under fog@3"]
    assert found.accuracies["fog@3"] < found.accuracies["clean"]


def test_chance_names_a_slice_in_a_twentieth_of_runs_at_most():
    named = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        columns = {str(number): rng.random(600) for number in range(6)}
        found = find_weak_slices(rng.random(600) < 0.85, columns, labels=rng.integers(0, 8, 600))
        named += bool(len(found))
    assert named <= 5


def test_slices_are_named_in_the_share_that_the_power_note_says():
    """A slice of the smallest size at the accuracy that is told to be found with 80% is found about as often."""
    _, _, columns, right = scene()
    size, accuracy = find_weak_slices(right, columns).power[0]
    found = 0
    for seed in range(100):
        rng, _, _, right = scene(seed)
        camera = np.where(np.arange(len(right)) < size, "z", columns["camera"])
        right[:size] = rng.random(size) < accuracy
        named = find_weak_slices(right, {**columns, "camera": camera})
        found += any("camera z" in each.words for each in named.slices)
    assert 65 <= found <= 97


def test_the_power_is_told_where_nothing_is_found():
    _, labels, columns, right = scene()
    found = find_weak_slices(right, columns, labels=labels)
    assert not found.slices
    assert "a slice is found of 30 images if its accuracy is under about" in found.power_note
    few = find_weak_slices(right[:10], {"camera": columns["camera"][:10]})
    assert few.tested == 0
    assert "too few" in few.power_note


@pytest.mark.parametrize("missing", [None, float("nan"), "", "NaN"])
def test_missing_values_are_a_bin_of_their_own(missing):
    values = [missing if number % 4 == 0 else float(number) for number in range(40)]
    made = attribute_of("iso", values)
    assert made.words[-1] == "iso missing"
    assert (made.bins == len(made.words) - 1).sum() == 10
    texts = attribute_of("camera", [missing, "a", "b"])
    assert "camera missing" in texts.words


def test_ties_and_constants_make_no_empty_bins():
    tied = attribute_of("saturation", [0.0] * 90 + list(np.linspace(0.1, 1, 10)))
    assert set(tied.bins.tolist()) == set(range(len(set(tied.bins.tolist()))))
    assert attributes({"same": [1.0] * 5, "also": ["x"] * 5}, 5) == []


def test_a_column_of_another_length_is_refused():
    with pytest.raises(DataError, match="camera"):
        find_weak_slices([True, False], {"camera": ["a"]})
    with pytest.raises(DataError, match="labels"):
        find_weak_slices([True, False], {}, labels=[1])


def under_many_shifts(seed, *, weak, shifts=16, count=2000):
    """Return answers under many shifts, of which the first `weak` hurt camera b, and columns.

    Images are as hard under one shift as under the next, so that errors under all of them go together.
    """
    rng, labels, columns, _ = scene(seed, count)
    columns |= {name: rng.random(count) for name in ("contrast", "sharpness", "entropy")}
    hard, bad = rng.random(count), columns["camera"] == "b"
    answers = {}
    for number in range(shifts):
        accuracy = rng.uniform(0.5, 0.9) - 0.15 * bad * (number < weak)
        answers[f"shift {number}"] = np.where(rng.random(count) < 0.7, hard, rng.random(count)) < accuracy
    return answers, columns, labels


@pytest.mark.slow
@pytest.mark.parametrize("weak", [0, 2, 8])
def test_the_false_discovery_rate_holds_over_many_shifts(weak):
    """Of all slices that are named under sixteen shifts, one in twenty is false on average, at most."""
    shares, missed = [], 0
    for seed in range(120):
        answers, columns, labels = under_many_shifts(seed, weak=weak)
        found = find_weak_slices(answers, columns, labels=labels)
        true = {f"camera b, under shift {number}" for number in range(weak)}
        named = [name for each in found.slices for name in (each.name, *each.also)]
        shares.append(sum(each not in true for each in named) / max(1, len(named)))
        missed += bool(weak) and not any(each in true for each in named)
    error = np.std(shares) / np.sqrt(len(shares))
    assert np.mean(shares) <= 0.05 + 2 * error
    assert missed <= 6  # what is there is found
