"""`shiftproof estimate` as a user meets it: a process, its output, its files."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from shiftproof import ShiftproofError, load_data
from shiftproof.cli import app
from tests.processes import shiftproof

FEW = ("--images", "60", "--views", "1", "--shifts", "speckle_noise@5,gaussian_blur@5,spatter@5,saturate@5")


@pytest.fixture
def archive(tmp_path):
    def make(name, **arrays):
        pixels = np.random.default_rng(0).integers(0, 256, (60, 32, 32, 3), dtype=np.uint8)
        np.savez(tmp_path / name, images=pixels, **arrays)
        return name

    return make


@pytest.fixture
def source(tmp_path):
    (batch,) = load_data("demo-source").take(60).batches(60)
    pixels = batch.inputs.mul(255).round().byte().permute(0, 2, 3, 1).numpy()
    np.savez(tmp_path / "source.npz", images=pixels, labels=np.asarray(batch.labels))
    return "source.npz"


def test_estimate_prints_an_answer_and_writes_it(tmp_path, source):
    done = shiftproof("estimate", *FEW, "--source", source, "--out", "found", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "estimated accuracy" in done.stdout
    assert "holds for 80% of shifts of unseen families" in done.stdout
    assert "average_confidence" in done.stdout
    found = json.loads((tmp_path / "found" / "estimate.json").read_text())
    assert 0.5 < found["low"] <= found["accuracy"] <= found["high"] <= 1
    methods = {one["method"] for one in (found, *found["others"])}
    assert methods >= {"invariance", "atc_entropy", "bn_distance", "combined"}


def test_unlabelled_images_are_enough_and_labels_of_the_source_are_needed(tmp_path, archive, source):
    done = shiftproof("estimate", *FEW, "--source", source, "--data", archive("plain.npz"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "watch" in done.stdout  # noise is not like anything the model was calibrated on
    done = shiftproof("estimate", "--source", archive("plain.npz"), cwd=tmp_path)
    assert done.returncode == 1
    assert "The source has no labels." in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--method", "invarance"), "did you mean"),
        (("--method", "agreement"), "second model"),
        (("--neighborhood", "randaugmen"), "randaugment"),
        (("--shifts", "fogg@3"), "fog"),
        (("--data", "nowhere/"), "no data at"),
    ],
)
def test_bad_options_are_told(arguments, told):
    with pytest.raises(ShiftproofError, match=told):
        CliRunner().invoke(app, ["estimate", *FEW, *arguments], catch_exceptions=False)


def test_one_class_is_told(tmp_path, archive):
    done = shiftproof("estimate", "--source", archive("one.npz", labels=np.zeros(60, int)), cwd=tmp_path)
    assert done.returncode == 1
    assert "same label" in done.stderr
