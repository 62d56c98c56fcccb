"""Verbs on images with label maps: the numbers of plain loops, in mIoU and pixels, also on the command line."""

import json
import tarfile
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import shiftproof
from shiftproof.certificates.certified_maps import ABSTAIN, MapCertificateOptions, SmoothedSegmenter
from shiftproof.cli import app
from shiftproof.comparisons.methods import compare_methods
from shiftproof.errors import ConfigurationError, DataError, RunError
from shiftproof.estimators.map_estimates import map_shifts
from shiftproof.exports.shards import write_stream
from shiftproof.measures.overlap import Overlap, count_overlap
from shiftproof.shifts import as_image_shift
from shiftproof.shifts.moving import move_labels
from shiftproof.streams import make_stream
from tests.label_maps import ColourNet, load_masks, painted, write_tree

MODEL = """
from tests.label_maps import ColourNet

def build():
    return ColourNet()
"""


@pytest.fixture(scope="module")
def images():
    return painted(24)


def truth(images, shift=None, model=None):
    """Return the overlap of a plain loop over all images."""
    data = load_masks(images)
    (batch,) = data.batches(len(data))
    seen, labels = batch.inputs, data.labels
    if shift is not None:
        labels, seen = move_labels(shift, labels, batch.keys), shift(seen, batch.keys)
    with torch.no_grad():
        scores = (model or ColourNet())(seen)
    return Overlap(count_overlap(labels, scores.argmax(1), 4, 255))


def test_certificates_are_those_of_a_plain_loop(images, tmp_path):
    given = tuple(each[:3] for each in images)
    found: Any = shiftproof.certify(
        ColourNet(), given, sigma=0.1, shift=["clean", "flip"], n=80, out=tmp_path, device="cpu"
    )
    options = MapCertificateOptions(sigma=0.1, testing=80)
    segmenter = SmoothedSegmenter(ColourNet(), options)
    for label, shift in (("clean", None), ("flip", as_image_shift("flip"))):
        counts = []
        for batch in load_masks(given).batches(1):
            image, labels = batch.inputs, batch.labels
            assert labels is not None
            if shift is not None:
                image, labels = shift(image, batch.keys), move_labels(shift, labels, batch.keys)
            with torch.no_grad():
                made = segmenter.certify(image[0], batch.keys[0]).classes
            maps = torch.from_numpy(np.where(made == ABSTAIN, 4, made).astype(np.int64))[None]
            counts.append(count_overlap(labels, maps, 5, 255))
        expected = Overlap(np.concatenate(counts), np.array([True] * 4 + [False]))
        assert found.parts[label].pixel_accuracy == pytest.approx(expected.pixel_accuracy)
        assert found.parts[label].miou == pytest.approx(expected.value)
    assert found.radius == pytest.approx(0.1 * 0.6745, abs=1e-4)
    content = json.loads((tmp_path / "certified-maps.json").read_text())
    assert [row["shift"] for row in content["rows"]] == ["clean", "flip"]


def test_certificates_resume_and_are_not_overwritten(images, tmp_path):
    given = tuple(each[:2] for each in images)
    options: dict[str, Any] = {"sigma": 0.1, "out": tmp_path, "device": "cpu"}
    first: Any = shiftproof.certify(ColourNet(), given, **options)
    told: list[int] = []
    again: Any = shiftproof.certify(ColourNet(), given, on_progress=lambda done, *_: told.append(done), **options)
    assert again.to_rows() == first.to_rows()
    assert told == [2]
    with pytest.raises(RunError, match="with other settings"):
        shiftproof.certify(ColourNet(), given, **{**options, "sigma": 0.2})
    radius: Any = shiftproof.certify(
        ColourNet(), given, sigma=0.1, rule="radius", radius=0.05, device="cpu", joint=True
    )
    assert radius.radius == pytest.approx(0.05)
    assert radius.options.alpha == pytest.approx(0.001 / 2)
    with pytest.raises(ConfigurationError, match="Too few noisy copies"):
        shiftproof.certify(ColourNet(), given, sigma=0.1, n=10, device="cpu")
    with pytest.raises(ConfigurationError, match="Not available for segmentation: wrong"):
        shiftproof.certify(ColourNet(), given, sigma=0.1, wrong=True, device="cpu")


def test_estimates_are_of_miou_with_the_error_on_unseen_families(images):
    found = shiftproof.estimate(ColourNet(), images[0], source=painted(24, seed=5), device="cpu")
    assert found.measure == "mIoU"
    assert found.low <= truth(images).value <= found.high
    assert {(one.measure, one.method) for one in (found, *found.others)} == {
        (measure, method) for measure in ("mIoU", "pixel accuracy") for method in ("expected_overlap", "line")
    }
    errors = [one.error for one in (found, *found.others) if one.measure == "mIoU"]
    assert found.error == min(error for error in errors if error is not None)
    assert str(found).startswith("mIoU ")


def test_a_line_brings_estimates_of_a_shifted_set_nearer():
    shift = as_image_shift("saturate@3")
    data = load_masks(painted(24, seed=5))
    pictures, _ = painted(40, seed=8)
    (batch,) = load_masks(painted(40, seed=8)).batches(40)
    model = ColourNet()
    with torch.no_grad():  # a segmenter that is far too sure
        model.norm.weight.mul_(20)
        model.norm.bias.mul_(20)
    seen = (shift(batch.inputs, batch.keys) * 255).round().byte().permute(0, 2, 3, 1).numpy()
    found = shiftproof.estimate(model, seen, source=data, device="cpu")
    value = truth((seen, painted(40, seed=8)[1]), model=model).value
    assert abs(found.accuracy - value) <= (found.error or 0) + 0.05
    assert found.low <= value <= found.high
    assert len({type(each) for each in map_shifts(data)}) > 3
    assert pictures.shape == seen.shape


def test_estimates_need_label_maps_of_the_source(images):
    with pytest.raises(DataError, match="Not available for segmentation"):
        shiftproof.estimate(ColourNet(), images, source="demo-source", device="cpu")
    with pytest.raises(ConfigurationError, match="Not available for segmentation: neighborhood, method"):
        shiftproof.estimate(
            ColourNet(), images[0], source=images, method="combined", neighborhood="randaugment", device="cpu"
        )


def test_methods_are_compared_by_miou(images, tmp_path):
    options: dict[str, Any] = {"methods": ["bn", "lame"], "device": "cpu"}
    found = compare_methods(ColourNet(), images, shifts=["fog@3", "flip"], out=tmp_path, **options)
    assert found.measure == "mIoU"
    assert not found.predictions.exists()
    assert "lame" in found.reasons
    for label in ("fog@3", "flip"):
        expected = truth(images, as_image_shift(label))
        assert found.overlaps["source", label].value == pytest.approx(expected.value)
    assert {"miou"} <= found.to_rows()[0].keys()
    gains = [found.overlaps["bn", label].value - found.overlaps["source", label].value for label in ("fog@3", "flip")]
    assert found.gain("bn") == pytest.approx(np.mean(gains))
    with pytest.raises(ConfigurationError, match="Not available for segmentation: source"):
        compare_methods(ColourNet(), images, source=images, out=tmp_path / "no", **options)


def test_shards_of_a_stream_hold_label_maps(images, tmp_path):
    options: dict[str, Any] = {"shifts": ["elastic_transform"], "length": 4, "batch_size": 2}
    stream = make_stream("concatenated", load_masks(images).take(4), **options)
    write_stream(stream, out=tmp_path)
    (shard,) = tmp_path.glob("*.tar")
    batch = stream.read(0, 4)
    assert batch.labels is not None
    with tarfile.open(shard) as tar:
        assert not [name for name in tar.getnames() if name.endswith(".cls")]
        for row in range(4):
            file = tar.extractfile(f"{row:09d}.seg.png")
            assert file is not None
            assert np.array_equal(np.array(Image.open(file)), batch.labels[row].numpy())


def test_commands_take_label_maps(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "net.py").write_text(MODEL)
    write_tree(tmp_path / "tree", count=6)
    common = ["--model", "net.py:build", "--data", "tree", "--device", "cpu"]
    said = {
        "certify": ([*common, "--sigma", "0.1", "--images", "2"], ["of labelled pixels", "certified mIoU"]),
        "spectrum": (
            [*common, "--step", "8", "--alphas", "1", "--corruptions", "fog"],
            ["mIoU ", "under the worst wave"],
        ),
        "compare-methods": ([*common, "--shifts", "fog@3", "--methods", "bn"], ["mIoU, %", "points gained"]),
        "compare-on-stream": (
            [*common, "--stream", "gradual", "--methods", "bn", "--images", "16", "--speed", "4"],
            ["mIoU, %", "against source"],
        ),
        "estimate": (
            ["--model", "net.py:build", "--data", "tree/images", "--source", "tree", "--device", "cpu"],
            ["estimated mIoU", "pixel accuracy, line"],
        ),
    }
    for command, (options, parts) in said.items():
        result = CliRunner().invoke(app, [command, *options])
        assert result.exit_code == 0, result.output
        for part in parts:
            assert part in " ".join(result.output.split()), result.output
