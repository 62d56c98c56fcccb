"""Labels and predictions as FiftyOne's format for image classification has them, by what it documents."""

import json

import pytest

from shiftproof.errors import DataError
from shiftproof.slices import ImageTable, read_csv, read_fiftyone, write_fiftyone, write_table
from tests.slices.test_result_files import HOSTILE, table


def test_there_is_a_file_of_the_labels_and_one_of_every_condition(tmp_path):
    files = write_fiftyone(table(), tmp_path)
    assert list(files) == ["ground_truth", "clean", "fog_3", "fog_1"]
    assert all(path == tmp_path / f"{field}.json" for field, path in files.items())
    truth, fog = (json.loads(files[field].read_text()) for field in ("ground_truth", "fog_3"))
    assert truth.keys() == fog.keys() == {"classes", "labels"}
    assert set(truth["labels"].values()) == {"=cat", "dog"}  # as they are: JSON has no formulas
    assert truth["labels"].keys() == fog["labels"].keys() == {name.removesuffix(".png") for name in HOSTILE}
    for answer in fog["labels"].values():
        assert answer.keys() == {"label", "confidence", "attributes"}
        assert answer["attributes"]["right"] is False


def test_predictions_come_back_with_the_names_of_their_files(tmp_path):
    made = table()
    files = write_fiftyone(made, tmp_path)
    back = read_fiftyone(files["fog_1"], files=HOSTILE)
    rows = [row for row, severity in enumerate(made["severity"]) if severity == 1.0]
    assert back["file"] == HOSTILE
    assert back["label"] == [made["prediction"][row] for row in rows]
    for name in ("confidence", "right", "margin", "breaks_at"):
        assert back[name] == [made[name][row] for row in rows]


def test_from_csv_to_fiftyone_and_back_to_csv(tmp_path):
    (path, *_) = write_table(table(), tmp_path)
    written = write_fiftyone(read_csv(path), tmp_path / "fiftyone")
    back = read_fiftyone(written["ground_truth"], files=HOSTILE)
    (again, *_) = write_table(back, tmp_path / "again")
    assert read_csv(again) == back == {"file": HOSTILE, "label": table()["label"][: len(HOSTILE)]}


def test_what_fiftyone_exports_is_read(tmp_path):
    exported = {"classes": ["cat", "dog"], "labels": {"a": 1, "b/c": {"label": "cat", "confidence": 0.5}, "d": None}}
    (tmp_path / "labels.json").write_text(json.dumps(exported))
    assert read_fiftyone(tmp_path / "labels.json") == {
        "file": ["a", "b/c", "d"],
        "label": ["dog", "cat", None],
        "confidence": [None, 0.5, None],
    }


def test_fields_are_names_and_no_two_conditions_share_one(tmp_path):
    some: ImageTable = {
        "file": ["a.png"] * 4,
        "prediction": ["x"] * 4,
        "confidence": [0.5] * 4,
        "shift": ["fog", "fog 2", "fog", "ground_truth"],
        "severity": [2.5, 5.0, 2.0, 0.0],
        "method": ["source", "source", "tent", "source"],
    }
    assert list(write_fiftyone(some, tmp_path)) == ["fog_2_5", "fog_2_5_2", "fog_2_tent", "ground_truth_2"]


def test_images_that_fiftyone_cannot_tell_apart_are_refused(tmp_path):
    some = {**table(), "file": ["a.png", "a.jpg"]}
    with pytest.raises(DataError, match="without suffix"):
        write_fiftyone(some, tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"labels": 3}'])
def test_what_is_no_file_of_labels_is_refused(tmp_path, text):
    (tmp_path / "labels.json").write_text(text)
    with pytest.raises(DataError, match="Cannot read"):
        read_fiftyone(tmp_path / "labels.json")
    with pytest.raises(DataError, match="Cannot read"):
        read_fiftyone(tmp_path / "none.json")
