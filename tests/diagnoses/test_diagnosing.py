"""`diagnose`: from a model, a labelled source and new images to what these behave like."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import shiftproof
from shiftproof import load_data, shifts
from shiftproof.diagnoses.diagnosing import Diagnosis, Points
from shiftproof.diagnoses.diagnosis_views import sentences
from shiftproof.diagnoses.signatures import signatures
from shiftproof.errors import DataError

KINDS = ["gaussian_noise", "fog", "contrast", "defocus_blur"]


@pytest.fixture(scope="module")
def source_run(tmp_path_factory):
    """Return the folder of a run, so that what is known of the source is measured once."""
    return tmp_path_factory.mktemp("runs") / "run"


def images_under(shift, count=150, classes=None):
    """Return images of the demo under a shift, and their labels."""
    data = load_data("demo")
    assert data.labels is not None
    if classes is not None:
        data = data.subset(torch.isin(data.labels, torch.tensor(classes)).nonzero()[:, 0])
    data = data.take(count)
    assert data.labels is not None
    (batch,) = data.batches(count)
    made = batch.inputs if shift is None else shifts.parse(shift)(batch.inputs, batch.keys, seed=5)
    return (made * 255).round().byte().permute(0, 2, 3, 1).numpy(), data.labels.numpy()


def diagnosed(data, out, **given) -> Diagnosis:
    return shiftproof.diagnose("demo", data, kinds=KINDS, out=out, **{"images": 150, "pairs": False, **given})


def test_a_shift_is_named_sized_and_priced(source_run):
    found = diagnosed(images_under("fog@4"), source_run)
    (part,) = found.likeness.shifts
    assert part.kind == "fog"
    assert len(found.files) == 150
    assert "files=" not in repr(found)
    assert part.low <= 4 <= part.high
    assert found.likeness.exact
    assert found.lost is not None
    assert found.explained.value == pytest.approx(found.lost.value, abs=0.1)
    told = json.loads((found.folder / "diagnosis.json").read_text())
    assert told["told"][0].startswith("The new images behave like fog ")
    page = found.report.read_text()
    assert "not prove the cause" in page
    assert f"compare-methods --model demo --data demo-source --shifts &#39;{found.shift}&#39;" in page
    assert found.likeness.runners_up
    unnoticed = replace(found, explained=Points(0.002, -0.004, 0.008))
    assert "costs nothing measurable: 0.2 points (-0.4 to 0.8)." in sentences(unnoticed)[1].text


def test_clean_images_are_nothing_and_labels_are_optional(source_run):
    found = diagnosed(images_under(None)[0], source_run)
    assert found.likeness.nothing
    assert found.lost is None
    assert found.likeness.shifts == ()
    assert "no shift can be told from chance" in found.report.read_text()


def test_a_class_mix_is_no_corruption(source_run):
    found = diagnosed(images_under(None, classes=[3, 5, 7])[0], source_run)
    assert found.likeness.nothing
    assert found.likeness.mix_changed
    assert sum(found.likeness.mix[place] for place in (3, 5, 7)) > 0.8
    assert "class mix changed" in found.report.read_text()


def test_what_nothing_explains_is_called_unknown(source_run):
    images, labels = images_under(None)
    found = diagnosed((255 - images, labels), source_run)
    assert found.likeness.unknown
    assert "no known shift explains it" in found.report.read_text()


def test_a_kind_that_is_not_known_is_told_to_be_near_and_not_the_same(source_run):
    found = diagnosed(images_under("motion_blur@4", count=300), source_run, images=300)
    assert not found.likeness.exact
    assert not found.likeness.nothing
    told = json.loads((found.folder / "diagnosis.json").read_text())
    assert "It may be of an unknown kind" in told["told"][0]
    low, high = told["left_out"]
    assert 0 <= low < high <= 1


def test_faults_of_the_data_are_told_by_the_names_of_files(source_run, tmp_path):
    for number, image in enumerate(images_under(None, count=12)[0]):
        Image.fromarray(image if number else 0 * image).save(tmp_path / f"{number}-new.png")
    found = diagnosed(tmp_path, source_run)
    assert "1 image shows one colour: 0-new.png." in found.report.read_text()


def test_two_shifts_are_found_together(tmp_path):
    found = shiftproof.diagnose(
        "demo", images_under("fog@3 + gaussian_noise@2"), kinds=["fog", "gaussian_noise"], images=150, out=tmp_path
    )
    assert {part.kind for part in found.likeness.shifts} == {"fog", "gaussian_noise"}
    assert found.likeness.unexplained < 0.2


def test_the_command_says_behaves_like(source_run, tmp_path):
    images, labels = images_under("contrast@3")
    np.savez(tmp_path / "new.npz", images=images, labels=labels)
    command = [sys.executable, "-m", "shiftproof", "diagnose", "--data", "new.npz", "--kinds", ",".join(KINDS)]
    command += ["--no-pairs", "--images", "150", "--out", str(source_run)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert "behave like contrast" in done.stdout
    assert "report.html" in done.stdout


def test_sources_that_cannot_tell_are_refused(tmp_path):
    images, labels = images_under(None, count=20)
    with pytest.raises(DataError, match="too small, or has no labels"):
        shiftproof.diagnose("demo", (images, labels), source=images, images=20, out=tmp_path / "a")
    with pytest.raises(DataError, match="Too few"):
        shiftproof.diagnose("demo", (images[:4], labels[:4]), kinds=["fog"], pairs=False, images=20, out=tmp_path / "b")


class Tokens(nn.Module):
    """A network with layer norms over channels that come last."""

    def __init__(self):
        super().__init__()
        self.embed, self.norm, self.head = nn.Linear(3, 5), nn.LayerNorm(5), nn.Linear(5, 4)

    def forward(self, images):
        return self.head(self.norm(self.embed(images.flatten(2).movedim(1, 2))).mean(1))


def test_signatures_are_moments_of_what_enters_norms():
    images = torch.rand(6, 3, 8, 8)
    network = nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(192, 4)).eval()
    found, scores = signatures(network, images)
    assert found.shape == (6, 6)
    assert np.allclose(found[:, :3], images.mean((2, 3)), atol=1e-6)
    assert np.allclose(found[:, 3:], images.square().mean((2, 3)), atol=1e-6)
    assert torch.allclose(scores, network(images))
    tokens, _ = signatures(Tokens().eval(), images)
    assert tokens.shape == (6, 10)
    black_box, _ = signatures(lambda given: given.mean((2, 3)), images)
    assert black_box.shape == (6, 2 * (3 + 7))
