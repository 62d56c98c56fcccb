"""Estimates from stored outputs alone, and the command for them."""

import gc
import json
import pickle
import weakref
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

import shiftproof
from shiftproof.cli import app
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.estimators import Calibration, estimate_outputs
from shiftproof.estimators.from_outputs import NO_COPIES, calibrate_outputs, stored
from shiftproof.estimators.mixing import Mixing


def draw(count, mix, seed, spread=1.0):
    rng = np.random.default_rng(seed)
    labels = rng.choice(len(mix), count, p=np.array(mix) / sum(mix))
    return np.eye(len(mix))[labels] * 3 + spread * rng.normal(size=(count, len(mix))) * 1.5, labels


def softmax(values):
    raised = np.exp(values - values.max(1, keepdims=True))
    return raised / raised.sum(1, keepdims=True)


def test_a_calibration_holds_no_set_that_it_was_asked_of():
    logits, labels = draw(600, [1, 1, 1], 0)
    mixing = Mixing.of(replace(stored(logits), labels=labels), labels)
    size, found = len(pickle.dumps(mixing)), stored(draw(400, [8, 1, 1], 1)[0])
    places = mixing.place(found)
    assert mixing.place(found) is places
    assert len(pickle.dumps(mixing)) < size + places.nbytes
    held = weakref.ref(found)
    del found
    gc.collect()
    assert held() is None
    others = stored(draw(400, [1, 1, 1], 2)[0])
    np.testing.assert_array_equal(mixing.place(others), pickle.loads(pickle.dumps(mixing)).place(others))


@pytest.fixture
def files(tmp_path):
    logits, labels = draw(600, [1, 1, 1], 0)
    np.savez(tmp_path / "source.npz", logits=logits, labels=labels)
    target, truth = draw(400, [8, 1, 1], 1)
    np.savez(tmp_path / "target.npz", probabilities=softmax(target))
    return tmp_path / "source.npz", tmp_path / "target.npz", float((target.argmax(1) == truth).mean())


def test_another_class_mix_is_estimated_and_told(files):
    source, target, truth = files
    found = shiftproof.estimate(outputs=[source, target])
    assert found.method == "cbpe"
    assert found.accuracy == pytest.approx(truth, abs=0.04)
    assert "Class mix changed: more class 0 " in found.notes[0]
    assert NO_COPIES in found.warnings
    assert found.low <= truth <= found.high
    assert found.high - found.low < 0.1  # the sampling of inputs alone
    assert found.error is None
    methods = {found.method, *(one.method for one in found.others)}
    assert methods == {"cbpe", "cot", "cott", "atc_confidence", "atc_entropy", "average_confidence",
                       "difference_of_confidences"}  # fmt: skip


def test_a_calibration_lends_its_copies(files):
    source, target, _ = files
    learnt = calibrate_outputs(source, normalized=True)
    again = Calibration.from_row(json.loads(json.dumps(learnt.to_row())))
    assert again == learnt
    assert estimate_outputs(source, target, calibration=again) == estimate_outputs(source, target)


def test_the_command_takes_two_files(files):
    source, target, _ = files
    done = CliRunner().invoke(app, ["estimate", "--outputs", f"{source},{target}"], catch_exceptions=False)
    assert done.exit_code == 0
    assert "Class mix changed" in done.output
    assert "Estimates per class" in done.output


def test_probabilities_and_logits_say_the_same():
    logits, _ = draw(50, [1, 1, 1], 2)
    np.testing.assert_allclose(softmax(stored(softmax(logits)).logits), softmax(logits), atol=1e-6)


def test_bad_outputs_are_told(files, tmp_path):
    source, target, _ = files
    with pytest.raises(DataError, match="have no labels"):
        estimate_outputs(target, target)
    with pytest.raises(DataError, match="different numbers of classes"):
        estimate_outputs(source, np.zeros((5, 7)))
    with pytest.raises(DataError, match="Labels and outputs do not match"):
        stored((np.zeros((3, 2)), np.array([0, 1, 5])))
    with pytest.raises(DataError, match="Cannot read the model outputs"):
        stored(tmp_path / "nowhere.npz")
    np.savez(tmp_path / "other.npz", weights=np.zeros(3))
    with pytest.raises(DataError, match="no model outputs"):
        stored(tmp_path / "other.npz")
    with pytest.raises(DataError, match="Invalid model outputs"):
        stored(np.array([[np.nan, 1.0]]))
    with pytest.raises(ConfigurationError, match="two files"):
        shiftproof.estimate(outputs=[source])
    with pytest.raises(ConfigurationError, match="cannot be used here"):
        estimate_outputs(source, target, method="invariance")


def test_classes_that_are_hardly_in_the_source_are_not_matched_with_its_mix(tmp_path):
    one, other = (np.eye(60)[labels] * 6 for labels in (np.arange(0, 60, 2), np.arange(1, 60, 2)))
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "source.npz", logits=one + rng.normal(size=one.shape), labels=np.arange(0, 60, 2))
    np.savez(tmp_path / "target.npz", logits=other + rng.normal(size=other.shape))
    found = shiftproof.estimate(outputs=[tmp_path / "source.npz", tmp_path / "target.npz"])
    assert not {"cot", "cott"} & {found.method, *(each.method for each in found.others)}
    assert found.accuracy > 0.8
