"""What an audit keeps of single images: the table, the mistakes, their pictures, and copies of their files."""

import json
import sys

import numpy as np
import pytest
from PIL import Image

import shiftproof
from shiftproof import load_data
from shiftproof.audits.sections.packed_answers import answers_of, packed_answers
from shiftproof.errors import ConfigurationError, RunError
from shiftproof.runs import Store
from shiftproof.slices import read_csv

HOSTILE = ['=cmd|"x".png', "+1.png", "-2.png", "@a.png", "<script>alert(1)</script>.png", "a b'c.png"]


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Return a folder of the demo's images, a few under hostile names."""
    place = tmp_path_factory.mktemp("photos")
    data = load_data("demo").take(40)
    images = np.concatenate([(batch.inputs * 255).byte().permute(0, 2, 3, 1).numpy() for batch in data.batches(40)])
    assert data.labels is not None
    for number, (image, label) in enumerate(zip(images, data.labels.tolist(), strict=True)):
        hostile = HOSTILE[number].replace("/", "_") if number < len(HOSTILE) else f"{number}.png"
        folder = place / data.classes[label]
        folder.mkdir(exist_ok=True)
        Image.fromarray(image).save(folder / hostile)
    return place


@pytest.fixture(scope="module")
def audited(photos, tmp_path_factory):
    out = tmp_path_factory.mktemp("run")
    result = shiftproof.audit(
        "demo",
        photos,
        shifts=["contrast", "gaussian_noise"],
        severities=[1, 5],
        methods=["bn"],
        sections=["clean", "corruptions", "adaptation"],
        export_failures=out / "wrong",
        out=out / "run",
    )
    return result, out


def test_every_image_has_a_row_under_every_condition(audited, photos):
    result, _ = audited
    table = read_csv(result.folder / "images.csv")
    files = {path.relative_to(photos).as_posix() for path in photos.rglob("*.png")}
    assert set(table["file"]) == files
    conditions = set(zip(table["shift"], table["severity"], table["method"], strict=True))
    shifted = {(name, level, "source") for name in ("contrast", "gaussian_noise") for level in (1, 5)}
    adapted = {(name, 5, "bn") for name in ("contrast", "gaussian_noise")}
    assert conditions == {("clean", 0, "source"), *shifted, *adapted}
    assert len(table["file"]) == len(files) * len(conditions)
    assert all(str(file).split("/")[0] == label for file, label in zip(table["file"], table["label"], strict=True))


def test_rows_and_numbers_agree(audited):
    result, _ = audited
    table = read_csv(result.folder / "images.csv")
    for name in ("contrast", "gaussian_noise"):
        right = [
            right
            for right, shift, method in zip(table["right"], table["shift"], table["method"], strict=True)
            if (shift, method) == (name, "source")
        ]
        assert np.mean(np.array(right, bool)) == pytest.approx(result.numbers[f"accuracy.{name}"])
    same = [
        (right is True) == (label == prediction)
        for right, label, prediction in zip(table["right"], table["label"], table["prediction"], strict=True)
    ]
    assert all(same)
    assert all(0 < float(str(value)) <= 1 for value in table["confidence"])


def test_mistakes_are_chosen_by_condition(audited):
    result, _ = audited
    some = result.mistakes("gaussian_noise", 5, "source", most=3)
    assert set(zip(some["shift"], some["severity"], some["method"], strict=True)) == {("gaussian_noise", 5.0, "source")}
    assert len(some["file"]) == 3
    assert some["right"] == [False] * 3
    assert some["confidence"] == sorted(some["confidence"], key=lambda value: -float(str(value)))
    assert not result.mistakes("fog")


def test_a_frame_needs_pandas(audited, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigurationError, match="needs pandas") as raised:
        audited[0].failures()
    assert "read_csv" in raised.value.facts["fix"]


def test_mistakes_are_a_frame(audited):
    pytest.importorskip("pandas")
    result, _ = audited
    found = result.failures("gaussian_noise", most=2)
    assert list(found["shift"].unique()) == ["gaussian_noise"]
    assert not found["right"].any()


def test_files_of_mistakes_are_copied(audited, photos):
    result, out = audited
    copies = [path for path in (out / "wrong").rglob("*") if path.is_file()]
    wrong = result.mistakes(method="source", most=20)
    assert len(copies) == len(wrong["file"])
    contents = {path.read_bytes() for path in photos.rglob("*.png")}
    assert all(copy.read_bytes() in contents for copy in copies)


def test_images_without_files_are_written_as_they_are(tmp_path):
    data = load_data("demo").take(30)
    shiftproof.audit(
        "demo", data, shifts=["contrast"], severities=[5], sections=["corruptions"], out=tmp_path / "run",
        export_failures=tmp_path / "wrong",
    )  # fmt: skip
    copies = list((tmp_path / "wrong" / "contrast_5").rglob("*.png"))
    assert copies
    whole = np.concatenate(
        [(batch.inputs * 255).round().byte().permute(0, 2, 3, 1).numpy() for batch in data.batches(30)]
    )
    known = {image.tobytes() for image in whole}
    assert all(np.asarray(Image.open(copy)).tobytes() in known for copy in copies)


def test_the_report_shows_mistakes_by_file_and_hostile_names_stay_text(audited):
    result, _ = audited
    page = result.report.read_text()
    shown = next(view for view in result.views if view.section == "mistakes")
    captions = [picture.caption for block in shown.blocks for picture in block.pictures]
    assert len(captions) == len({*captions})
    assert any(".png: " in caption for caption in captions)
    assert "<script>alert(1)</script>" not in page
    lines = (result.folder / "images.csv").read_text().splitlines()
    assert not [line for line in lines if ',"=' in line or ',"@' in line]


def test_a_report_made_again_has_the_same_rows(audited):
    result, _ = audited
    before = (result.folder / "images.csv").read_bytes()
    again = shiftproof.audits.gate(result.folder)
    assert (result.folder / "images.csv").read_bytes() == before
    assert again.mistakes("contrast") == result.mistakes("contrast")


def test_answers_stay_out_of_results_json(audited):
    cells = json.loads((audited[0].folder / "results.json").read_text())["cells"]
    assert not [cell for cell in cells if {"predictions", "confidences"} & cell.keys()]


def test_answers_come_back_as_they_were_packed():
    import torch

    row = packed_answers(torch.tensor([3, 70_000]), torch.tensor([0.25, float("nan")]))
    found = answers_of(row)
    assert found is not None
    assert found.predicted.tolist() == [3, 70_000]
    assert found.confidence[0] == 0.25
    assert np.isnan(found.confidence[1])
    assert answers_of({"images": 2}) is None


def test_a_run_that_kept_no_names_says_so(audited, tmp_path):
    from dataclasses import replace

    with Store(audited[0].folder) as store:
        assert "images" in store.about()
    with pytest.raises(RunError, match="did not store"):
        replace(audited[0], answers=None).mistakes()
