"""Calibration: what is measured, what is interpolated, what is refused."""

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch

from shiftproof.data import load_data
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.models import BlackBox, fingerprint, load_model
from shiftproof.runs import Store
from shiftproof.streams import Ccc, StreamCalibration, calibrate
from shiftproof.streams.ccc.schedule import MissingPairError, Schedule, straight
from shiftproof.streams.ccc.stream_calibration import FILE, shift_at

OPTIONS: dict[str, Any] = {"images": 40, "speed": 2, "target": 0.5, "calibration_images": 60, "steady": None}
NAMES = ["contrast", "gaussian_noise", "brightness"]


def contrast_of(images):
    """Answer the first of two classes where an image has much contrast."""
    spread = images.std((1, 2, 3))
    return torch.stack([spread, torch.full_like(spread, 0.12)], dim=1)


@pytest.fixture(scope="module")
def data():
    demo = load_data("demo").take(60)
    images = next(demo.batches(60)).inputs
    return load_data((images, torch.zeros(60, dtype=torch.int64) + (torch.arange(60) >= 58)))


@pytest.fixture
def model():
    return BlackBox(contrast_of)


def test_it_finds_paths_at_the_target_and_measures_only_near_them(model, data, tmp_path):
    found = calibrate(model, data, out=tmp_path, shifts=NAMES, **OPTIONS)
    assert found.left_out.keys() <= {"gaussian_noise", "brightness"}
    assert set(found.noises) | set(found.left_out) == set(NAMES)
    assert len(found.noises) >= 2
    assert found.images == 60
    assert len(found.measured) < 441
    for path in found.paths.values():
        assert path[0][1] == 0
        assert path[-1][0] == 0


def test_counts_are_those_of_the_model_on_framed_images(model, data, tmp_path):
    from shiftproof import shifts
    from shiftproof.shifts.augment.framing import FlipCrop

    found = calibrate(model, data, out=tmp_path, shifts=NAMES, **OPTIONS)
    batch = next(data.batches(60))
    framed = FlipCrop(smallest=found.crop)(batch.inputs, batch.keys, seed=0)
    for label in ("whole", "clean", *list(found.measured)[2::17]):
        images = {"whole": batch.inputs, "clean": framed}.get(label)
        if images is None:
            images = shifts.parse(label)(framed, batch.keys, seed=0)
        assert found.measured[label] == (int((contrast_of(images).argmax(1) == batch.labels).sum()), 60)
    assert found.clean == found.measured["whole"].right / 60
    assert found.classes == 2


def test_it_resumes_and_a_longer_run_measures_only_what_is_missing(model, data, tmp_path):
    heard = []
    on_progress = lambda done, total, result: heard.extend([result] if result else [])  # noqa: E731
    first = calibrate(model, data, out=tmp_path, shifts=NAMES, on_progress=on_progress, **OPTIONS)
    count = len(heard)
    assert count == len(first.measured)  # one look each: there are no more images
    again = calibrate(model, data, out=tmp_path, shifts=NAMES, on_progress=on_progress, **OPTIONS)
    assert again == first
    assert len(heard) == count
    longer = calibrate(model, data, out=tmp_path, shifts=NAMES, on_progress=on_progress, **{**OPTIONS, "images": 300})
    assert longer.paths.items() >= first.paths.items()
    assert longer.measured.items() >= first.measured.items()
    assert len(heard) == len(longer.measured)


@pytest.mark.slow
def test_processes_give_the_same_calibration(tmp_path):
    options = {**OPTIONS, "calibration_images": 20, "target": 0.6, "shifts": ["contrast", "fog"]}
    inline = calibrate("demo", "demo", out=tmp_path / "one", **options)
    spread = calibrate("demo", "demo", out=tmp_path / "two", executor="processes:2", **options)
    assert inline == spread


def test_it_survives_a_file(model, data, tmp_path):
    found = calibrate(model, data, out=tmp_path, shifts=NAMES, **OPTIONS)
    assert StreamCalibration.load(str(tmp_path / FILE)) == found
    assert json.loads((tmp_path / FILE).read_text())["notes"] == list(found.notes)


def test_another_target_is_refused_and_another_model_is_told(model, data, tmp_path):
    found = calibrate(model, data, out=tmp_path, shifts=NAMES, **OPTIONS)
    found.check(target=0.5)
    with pytest.raises(DataError, match="another target"):
        found.check(target=0.4)
    assert found.notes_for(fingerprint(model)) == ()
    (said,) = replace(found, name="mine.py:build").notes_for(fingerprint(load_model("demo")))
    assert "that of the model 'mine.py:build'" in said
    assert found.model in found.notes_for("another")[0]


def test_a_stream_takes_length_speed_and_seed_from_its_calibration(model, data, tmp_path):
    found = calibrate(model, data, out=tmp_path, shifts=NAMES, **{**OPTIONS, "seed": 7})
    stream = Ccc(data, calibration=StreamCalibration.load(tmp_path))  # the folder will do
    assert (len(stream), stream.speed, stream.seed) == (OPTIONS["images"], OPTIONS["speed"], 7)
    assert len(Ccc(data, calibration=found, length=10)) == 10
    older = replace(found, length=None, speed=None, stream_seed=None)
    assert Ccc(data, calibration=older, length=10, seed=7).speed == 1000


def test_a_target_nobody_reaches_gets_the_nearest_path_and_says_so(model, data, tmp_path):
    found = calibrate(model, data, out=tmp_path, **{**OPTIONS, "target": 0.99, "shifts": ["brightness", "contrast"]})
    assert any("No path reaches the target of 99%" in note for note in found.notes)
    low = calibrate(model, data, out=tmp_path, **{**OPTIONS, "target": 0.01, "shifts": ["brightness", "saturate"]})
    assert set(low.noises) == {"brightness", "saturate"}
    assert any("No path reaches the target of 1%" in note for note in low.notes)


def test_rough_pairs_are_avoided_where_there_is_another_way(model, data, tmp_path):
    strict = calibrate(model, data, out=tmp_path, shifts=NAMES, **{**OPTIONS, "steady": 0.0})
    assert strict.off_target
    assert set(strict.off_target) <= set(strict.paths)
    assert any("avoided" in note for note in strict.notes)
    Ccc(data, calibration=strict, length=40, speed=2)


def test_what_was_interpolated_and_how_sure_it_is_are_said(model, data, tmp_path):
    coarse = calibrate(model, data, out=tmp_path, shifts=NAMES, precision=0.5, **OPTIONS)
    fine = calibrate(model, data, out=tmp_path, shifts=NAMES, precision=0.001, **OPTIONS)
    assert coarse.interpolated > fine.interpolated == 0
    assert f"{coarse.interpolated} were" in coarse.notes[-1]
    assert f"at most {100 * max(coarse.errors.values()):.1f} points" in coarse.notes[-1]


def test_a_named_target_is_a_share_of_the_way_from_chance_to_clean(model, data, tmp_path):
    found = calibrate(model, data, out=tmp_path, shifts=NAMES, **{**OPTIONS, "target": "easy"})
    assert found.target == pytest.approx(0.5 + 0.45 * (found.clean - 0.5))
    found.check(target="easy")
    with pytest.raises(DataError, match="another target"):
        found.check(target="medium")


@pytest.mark.parametrize("variant", ["exact", "release"])
def test_the_published_searches_are_there(model, data, tmp_path, variant):
    found = calibrate(model, data, out=tmp_path, shifts=NAMES, variant=variant, **OPTIONS)
    assert found.variant == variant
    assert StreamCalibration.load(tmp_path / FILE) == found


def test_the_released_generator_has_its_own_corruptions_and_avoids_none(model, data, tmp_path):
    given = {**OPTIONS, "target": "hard", "steady": 0.0}
    found = calibrate(model, data, out=tmp_path / "release", variant="release", **given)
    assert found.noises == ("gaussian_noise", "shot_noise", "impulse_noise", "contrast")
    assert not found.left_out
    assert not found.off_target
    named = calibrate(model, data, out=tmp_path / "named", variant="release", shifts=NAMES, **given)
    assert set(named.noises) == set(NAMES)
    ours = calibrate(model, data, out=tmp_path / "steady", shifts=NAMES, **given)
    assert ours.left_out


def test_images_without_labels_are_refused(model, tmp_path):
    with pytest.raises(DataError, match="no labels"):
        calibrate(model, torch.rand(20, 3, 32, 32), out=tmp_path, **OPTIONS)


@pytest.mark.parametrize(
    "options",
    [{"target": 0.0}, {"target": 1.5}, {"images": 0}, {"speed": 0}, {"calibration_images": 0}, {"precision": 0.0}],
)
def test_impossible_options_are_refused(model, data, tmp_path, options):
    with pytest.raises(ConfigurationError):
        calibrate(model, data, out=tmp_path, **{**OPTIONS, **options})


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"noises": ["fog"], "paths": {"fog": []}, "off_target": {}}'])
def test_a_file_that_is_no_calibration_is_refused(tmp_path, content):
    path = tmp_path / "calibration.json"
    path.write_text(content)
    with pytest.raises(DataError, match="is not a calibration"):
        StreamCalibration.load(path)
    with pytest.raises(DataError, match="Cannot read"):
        StreamCalibration.load(tmp_path / "none.json")


def test_a_stream_longer_than_its_calibration_is_refused(model, data, tmp_path):
    found = calibrate(model, data, out=tmp_path, shifts=NAMES, **OPTIONS)
    one = next(iter(found.paths))
    short = replace(found, paths={one: found.paths[one]})
    with pytest.raises(ConfigurationError, match="does not reach as far"):
        Ccc(data, calibration=short, length=100_000, speed=2)
    with pytest.raises(ConfigurationError, match="calibration sets"):
        Ccc(data, calibration=found, length=10, shifts=["fog"])


def test_a_course_goes_from_pair_to_pair_without_a_break():
    paths = {(one, other): straight(0.5) for one in "abcd" for other in "abcd" if one != other}
    schedule = Schedule("abcd", paths, seed=1)
    segments = schedule.segments(100)
    assert len(segments) == 20
    assert all(before[1] == after[0] for before, after in pairwise(segments))
    assert all(one != other for one, other in segments)
    assert {noise for leg in segments for noise in leg} == set("abcd")
    late = Schedule("abcd", paths, seed=1)
    assert late.at(57) == schedule.at(57)
    assert schedule.at(5)[1] == (0.5, 0.0)


def test_a_course_avoids_rough_pairs_and_takes_the_least_rough_where_it_must():
    paths = {(one, other): straight(0.5) for one in "abc" for other in "abc" if one != other}
    off_target = {("a", "b"): 0.1, ("b", "c"): 0.1, ("c", "a"): 0.1}
    assert set(Schedule("abc", paths, 1, off_target).segments(200)) == {("a", "c"), ("c", "b"), ("b", "a")}
    dead_end = {("a", "b"): 0.1, ("a", "c"): 0.2}
    assert set(Schedule("abc", paths, 1, dead_end).segments(200)) <= {("b", "c"), ("c", "b"), ("a", "c"), ("a", "b")}
    assert "a" not in {noise for leg in Schedule("abc", paths, 1, dead_end).segments(200)[1:] for noise in leg}
    off_target |= {("a", "c"): 0.05}
    assert ("a", "c") in Schedule("abc", paths, 1, off_target).segments(200)
    assert ("a", "b") not in Schedule("abc", paths, 1, off_target).segments(200)


def test_a_course_looks_beyond_two_smooth_ways_on_and_not_beyond_all():
    order = [second for _, second in Schedule("abcd", {}, seed=2).choices(0, "a")]
    onward = [(one, other) for one in order[:2] for other in "abcd" if one != other]
    paths = {pair: straight(0.5) for pair in [*(("a", second) for second in order), *onward]}
    dead_ends = dict.fromkeys(onward, 0.1)
    assert Schedule("abcd", paths, 2, dead_ends).segments(5) == [("a", order[0])]  # the third has no paths, nor need it


def test_a_missing_pair_is_named():
    schedule = Schedule("ab", {("a", "b"): straight(0.5)}, seed=0)
    with pytest.raises(MissingPairError) as caught:
        schedule.segments(100)
    assert caught.value.pair == ("b", "a")


def test_labels_leave_out_what_is_not_there():
    assert shift_at(("fog", "snow"), (0, 5)).label == "snow@1.25"
    assert shift_at(("fog", "snow"), (8, 0)).label == "fog@2"
    assert shift_at(("fog", "snow"), (8, 5)).label == "fog@2 + snow@1.25"


def test_the_store_holds_every_measured_shift(model, data, tmp_path):
    found = calibrate(model, data, out=tmp_path, shifts=NAMES, **OPTIONS)
    with Store(tmp_path) as store:
        assert len(store.done()) == len(found.measured)
