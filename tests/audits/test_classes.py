"""Folders of class names in every verb: the demo's images as a user has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import shiftproof
from shiftproof.comparisons.methods import compare_methods
from shiftproof.data import load_data
from shiftproof.errors import DataError
from shiftproof.estimators import Estimator
from shiftproof.models import class_names, load_model
from shiftproof.models.class_names import CIFAR10
from shiftproof.reports.view import Table


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write 60 images of cat, dog and ship under their names, their numbers, and names the demo does not know."""
    root = tmp_path_factory.mktemp("folders")
    (batch,) = load_data("demo").take(200, seed=0).batches(200)
    assert batch.labels is not None
    pixels = (batch.inputs * 255).round().byte().permute(0, 2, 3, 1).numpy()
    for place, label in enumerate(batch.labels.tolist()):
        if label in (3, 5, 8):
            for kind, name in {"names": CIFAR10[label], "numbers": str(label), "others": f"other {label}"}.items():
                (root / kind / name).mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels[place]).save(root / kind / name / f"{place}.png")
    return root


def test_audit_matches_a_subset_by_name(folders, tmp_path):
    found = {
        kind: shiftproof.audit("demo", folders / kind, out=tmp_path / kind, sections=["clean"])
        for kind in ("names", "numbers")
    }
    accuracies = {kind: made.numbers["clean_accuracy"] for kind, made in found.items()}
    assert accuracies["names"] == accuracies["numbers"] > 0.85
    assert "10 classes, matched by name (cat, dog, ship)" in found["names"].report.read_text("utf-8")


def test_audit_in_processes_matches_too(folders, tmp_path):
    made = shiftproof.audit("demo", folders / "names", out=tmp_path, sections=["clean"], executor="processes:1")
    assert made.numbers["clean_accuracy"] > 0.85


def test_a_list_of_classes_gives_the_order(folders, tmp_path):
    names = [f"other {label}" if label in (3, 5, 8) else name for label, name in enumerate(CIFAR10)]
    (tmp_path / "names.txt").write_text("\n".join(names))
    made = shiftproof.audit(
        "demo",
        shiftproof.DataSpec(folders / "others", classes=tmp_path / "names.txt"),
        out=tmp_path / "out",
        sections=["clean"],
    )
    assert made.numbers["clean_accuracy"] > 0.85


@pytest.mark.parametrize(
    "verb",
    [
        lambda data, out: shiftproof.audit("demo", data, out=out),
        lambda data, out: shiftproof.certify("demo", data, sigma=0.1, out=out),
        lambda data, out: shiftproof.search("demo", data, budget=1, out=out),
        lambda data, out: shiftproof.train("demo", data, epochs=1, out=out),
        lambda data, out: shiftproof.train("demo", "demo", validation=data, images=20, epochs=1, out=out),
        lambda data, out: shiftproof.estimate("demo", "demo", source=data),
        lambda data, out: compare_methods("demo", data, shifts=["fog@3"], out=out),
    ],
)
def test_every_verb_refuses_names_that_the_model_does_not_know(verb, folders, tmp_path):
    with pytest.raises(DataError, match="not those of the model") as caught:
        verb(folders / "others", tmp_path)
    assert "other 3" in caught.value.facts["got"]
    assert "airplane" in caught.value.facts["expected"]


def test_certify_search_and_estimators_match_by_name(folders, tmp_path):
    certified = shiftproof.certify("demo", folders / "names", sigma=0.03, n=200, images=12)
    assert set(certified.labels or ()) == {3, 5, 8}
    assert certified.accuracy(at=0.0).value > 0.5
    assert shiftproof.search("demo", folders / "names", images=30, searcher="random", budget=1).clean > 0.8
    fitted = Estimator.fit(load_model("demo"), load_data(folders / "names"), shifts=["fog@5"], n=1)
    assert fitted.calibration.source.accuracy > 0.85


def test_training_keeps_the_names_and_validation_is_matched_to_them(folders, tmp_path):
    made = shiftproof.train("demo", folders / "names", validation=folders / "numbers", epochs=1, lr=1e-6, out=tmp_path)
    assert made.accuracy is not None
    assert made.accuracy > 0.85  # labels 3, 5 and 8 were trained, not 0, 1 and 2
    assert json.loads((tmp_path / "model.json").read_text())["classes"] == list(CIFAR10)
    assert class_names(load_model(tmp_path)) == CIFAR10


def test_a_trained_folder_is_audited_by_the_names_it_was_trained_on(folders, tmp_path):
    shiftproof.train("convnet", folders / "names", epochs=1, out=tmp_path / "model")
    assert class_names(load_model(tmp_path / "model")) == ("cat", "dog", "ship")
    some = tmp_path / "some"
    some.mkdir()
    for name in ("dog", "ship"):
        (some / name).symlink_to(folders / "names" / name, target_is_directory=True)
    made = shiftproof.audit(str(tmp_path / "model"), some, out=tmp_path / "out", sections=["clean"])
    assert "3 classes, matched by name (dog, ship)" in made.report.read_text("utf-8")
    with pytest.raises(DataError, match="not those of the model"):
        shiftproof.audit(str(tmp_path / "model"), folders / "others", out=tmp_path / "out2", sections=["clean"])


def test_classes_that_only_count_have_the_models_names(tmp_path):
    data = load_data("demo").take(60, seed=0)
    (batch,) = data.batches(60)
    assert batch.labels is not None
    pixels = (batch.inputs * 255).round().byte().permute(0, 2, 3, 1).numpy()
    options: dict[str, Any] = {"sections": ["clean", "corruptions"], "shifts": ["contrast"], "severities": [5]}
    made = shiftproof.audit("demo", (pixels, batch.labels.numpy()), out=tmp_path, **options)
    table = next(block for block in made.views[0].blocks if isinstance(block, Table))
    assert {row[0] for row in table.rows} == set(CIFAR10)
    assert "predicted as" in made.report.read_text("utf-8")
