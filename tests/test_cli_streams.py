"""`shiftproof calibrate`, `preview-stream`, `write-stream` and `compare-on-stream` from the command line."""

import json

import pytest
from typer.testing import CliRunner

from shiftproof.cli import app
from shiftproof.data import load_data
from shiftproof.errors import ConfigurationError, DataError


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Write forty labelled images to a file."""
    import numpy as np

    data = load_data("demo").take(40)
    batch = next(data.batches(40))
    assert data.labels is not None
    path = tmp_path_factory.mktemp("images") / "images.npz"
    pixels = (batch.inputs * 255).round().byte().permute(0, 2, 3, 1).numpy()
    np.savez(path, images=pixels, labels=data.labels.numpy())
    return path


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


SMALL = ("--target", 0.5, "--images", 40, "--speed", 20, "--shifts", "contrast,gaussian_noise")


def test_calibrate_preview_write_and_adapt(images, tmp_path):
    made = tmp_path / "calibration"
    done = run("calibrate", "-d", images, "-o", made, *SMALL, "--calibration-images", 20, "--device", "cpu")
    assert done.exit_code == 0
    assert "for a target of 50%" in done.stdout
    assert "combinations were measured" in done.stdout
    file = made / "calibration.json"
    assert json.loads(file.read_text())["target"] == 0.5

    common = ("-d", images, "--calibration", file)  # which says the length, the speed and the seed
    done = run("preview-stream", *common, "-o", tmp_path / "stream.png", "--rows", 2)
    assert done.exit_code == 0
    assert (tmp_path / "stream.png").is_file()

    done = run("write-stream", tmp_path / "shards", *common, "--format", "jpg", "--shard-images", 25)
    assert done.exit_code == 0
    assert sorted(path.name for path in (tmp_path / "shards").glob("*.tar")) == ["shard-000000.tar", "shard-000001.tar"]

    adapting = ("compare-on-stream", "--stream", "ccc", *common, "--batch-size", 20, "--device", "cpu")
    done = run(*adapting, "--methods", "tent,guard", "-o", tmp_path / "run")
    assert done.exit_code == 0
    rows = json.loads((tmp_path / "run" / "stream.json").read_text())["rows"]
    assert [row["method"] for row in rows] == ["source", "tent", "guard"]
    assert {row["images"] for row in rows} == {40}
    with pytest.raises(DataError, match="another target"):
        run(*adapting, "--target", 0.2, "--methods", "tent", "-o", tmp_path / "other")


def test_a_calibration_of_another_model_is_taken_and_told(images, tmp_path):
    file = tmp_path / "model.py"
    file.write_text("def build():\n    return lambda images: images.mean((2, 3)).repeat(1, 4)[:, :10]\n")
    made = tmp_path / "calibration"
    assert run("calibrate", "-m", f"{file}:build", "-d", images, "-o", made, *SMALL).exit_code == 0
    options = ("--calibration", made, "--methods", "bn", "--device", "cpu")
    done = run("compare-on-stream", "--stream", "ccc", "-d", images, *options, "-o", tmp_path / "run")
    assert done.exit_code == 0
    assert f"The difficulty of the stream is that of the model '{file}:build'" in done.stdout


def test_a_concatenated_stream_goes_over_all_it_was_asked(images, tmp_path):
    given = (
        "-d",
        images,
        "--batch-size",
        20,
        "--device",
        "cpu",
        "--methods",
        "source",
        "--shifts",
        "contrast,fog,frost",
    )
    done = run("compare-on-stream", "--stream", "concatenated", *given, "-o", tmp_path / "all")
    assert done.exit_code == 0
    content = json.loads((tmp_path / "all" / "stream.json").read_text())
    assert (content["length"], content["speed"]) == (3 * 40, 40)
    assert content["notes"] == []
    done = run("compare-on-stream", "--stream", "concatenated", *given, "--images", 60, "-o", tmp_path / "half")
    assert "Each of 3 corruptions has 20 of the 40 images." in done.stdout
    done = run(
        "compare-on-stream", "--stream", "concatenated", *given, "--images", 60, "--speed", 40, "-o", tmp_path / "cut"
    )
    assert "The stream reaches 2 of 3 corruptions: all of them take 120 images." in done.stdout


def test_streams_that_need_no_calibration_run_as_they_are(images, tmp_path):
    for kind in ("concatenated", "mixed", "correlated", "gradual"):
        options = ("--images", 40, "--shifts", "contrast,fog", "--batch-size", 20, "--device", "cpu")
        done = run(
            "compare-on-stream", "--stream", kind, "-d", images, *options, "--methods", "bn", "-o", tmp_path / kind
        )
        assert done.exit_code == 0, done.output
        assert "against source" in done.stdout


def test_wrong_options_are_told(images, tmp_path):
    with pytest.raises(ConfigurationError, match="no stream named 'cc'"):
        run("preview-stream", "--stream", "cc", "-o", tmp_path / "a.png")
    with pytest.raises(DataError, match="Cannot read the calibration"):
        run("preview-stream", "--calibration", tmp_path / "none.json", "-o", tmp_path / "a.png")
    with pytest.raises(ConfigurationError, match="Only a ccc stream has a calibration"):
        run("preview-stream", "--stream", "mixed", "--calibration", "x.json")
    assert run("write-stream", tmp_path / "x", "--format", "gif").exit_code == 2
    assert run("calibrate", "--variant", "greedy").exit_code == 2
