from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shiftproof.data import load_data
from shiftproof.data.label_tables import read_table
from shiftproof.data.labels import LARGEST_INDEX, check_labels, number_classes
from shiftproof.errors import ConfigurationError, DataError


def test_names_are_numbered_in_sorted_order() -> None:
    naming = number_classes(["cat", "ant", "bee", "cat"])
    assert naming.numbers == {"ant": 0, "bee": 1, "cat": 2}
    assert naming.classes == ("ant", "bee", "cat")
    assert naming.notes == ()


def test_whole_numbers_are_the_numbers() -> None:
    naming = number_classes(["10", "2", "003"])
    assert naming.numbers == {"10": 10, "2": 2, "003": 3}
    assert naming.classes == tuple(map(str, range(11)))
    assert naming.numbering == "numerals"


def test_whole_numbers_in_torchvisions_order() -> None:
    naming = number_classes(["10", "2", "0"], "sorted")
    assert naming.numbers == {"0": 0, "10": 1, "2": 2}
    assert naming.notes == ()


@pytest.mark.parametrize(
    ("names", "got"),
    [
        (["1", "2", "x"], "'x' (c.png) beside '1'"),
        (["3", "5", "7", "unknown"], "'unknown'"),
        (["2", "10", "NaN"], "'NaN'"),
        (["-1", "2"], "'-1' beside '2'"),
        (["3.0", "5.0"], "'3.0'"),
        (["1", str(LARGEST_INDEX + 1)], str(LARGEST_INDEX + 1)),
        (["1", "\u0662"], "'\u0662'"),
    ],
)
def test_numbers_that_are_no_indices_are_refused_and_not_sorted(names: list[str], got: str) -> None:
    with pytest.raises(DataError, match="whole numbers") as caught:
        number_classes(names, places={"x": "c.png"})
    assert got in caught.value.facts["got"]
    assert number_classes(names, "sorted").classes == tuple(sorted(names))  # who insists


def test_large_numbers_alone_are_names() -> None:
    assert number_classes(["20240301", "20240302"]).classes == ("20240301", "20240302")


def test_several_labels_in_one_are_refused_as_multi_label() -> None:
    with pytest.raises(DataError, match="Multi-label") as caught:
        number_classes(["cock", "cock|hen"], places={"cock|hen": "a.png"})
    assert "a.png" in caught.value.facts["got"]
    assert number_classes(["cock|hen", "cock"], ["cock", "cock|hen"]).numbers["cock|hen"] == 1


def test_rows_of_zeros_and_ones_are_one_hot_or_multi_label() -> None:
    with pytest.raises(DataError) as caught:
        check_labels([[1, 0], [0, 1]], 2)
    assert "argmax" in caught.value.facts["fix"]
    for labels in ([[1, 1], [0, 1]], [[0, 0], [0, 1]], [[1.0, 1.0], [0.0, 1.0]]):
        with pytest.raises(DataError, match="Multi-label"):
            check_labels(labels, 2)
    with pytest.raises(DataError, match="do not fit") as caught:
        check_labels([[0.3, 0.7], [0.5, 0.5]], 2)
    assert "fix" not in caught.value.facts


def test_a_given_order(tmp_path: Path) -> None:
    naming = number_classes(["bee", "ant"], ["dog", "bee", "ant"])
    assert naming.numbers["ant"] == 2
    assert naming.classes == ("dog", "bee", "ant")
    (tmp_path / "names.txt").write_text("dog\nbee\n\nant\n")
    assert number_classes(["bee", "ant"], tmp_path / "names.txt") == naming


def test_a_class_that_is_not_in_the_given_order() -> None:
    with pytest.raises(DataError, match="no class named 'beee'") as caught:
        number_classes(["beee"], ["ant", "bee"])
    assert caught.value.facts["did you mean"] == "bee"


def test_two_names_for_one_number() -> None:
    with pytest.raises(DataError, match="one number"):
        number_classes(["7", "07"])


def test_an_order_that_is_none() -> None:
    with pytest.raises(ConfigurationError, match="no file of class names"):
        number_classes(["a"], "alphabetical")


class TestTable:
    def write(self, folder: Path, text: str) -> Path:
        (folder / "labels.csv").write_text(text, "utf-8")
        return folder / "labels.csv"

    def test_reads_files_and_labels(self, tmp_path: Path) -> None:
        table = read_table(self.write(tmp_path, '\ufeffLabel,who, File\ncat,me,a.png\n"bird, small",me,b/c.png\n'))
        assert table.labels == {"a.png": "cat", "b/c.png": "bird, small"}

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "an empty file"),
            ("name,class\na.png,cat\n", "name,class"),
            ("file|label\na.png|cat\n", r"file\|label"),
            ("file,label\n", "has no rows"),
            ("file,label\na.png,cat\na.png,dog\n", "Line 3 .* twice"),
            ("file,label\na.png,cat\n./a.png,dog\n", "Line 3 .* twice"),
            ("file,label\na.png\n", "(?s)Line 2 .* lacks.*remove the rows without a label"),
            ("file,label\n,cat\n", "Line 2 .* lacks"),
            ("file,label\na.png, \n", "Line 2 .* lacks"),
            ("file,label\n\na.png,dog, small\n", "(?s)Line 3 .* more fields.*quotes"),
            ("file,label\n\n\n,cat\n", "Line 4 .* lacks"),
        ],
    )
    def test_refuses_other_tables(self, text: str, message: str, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=message):
            read_table(self.write(tmp_path, text))

    def test_a_column_of_splits_is_told_unless_it_is_what_was_asked_for(self, tmp_path: Path) -> None:
        path = self.write(tmp_path, "File,Label,Set\na.png,cat,train\nb.png,dog,val\n")
        (note,) = read_table(path).notes
        assert note.startswith("The column Set of labels.csv (train, val) was not used")
        assert read_table(path, label_column="set") == ({"a.png": "train", "b.png": "val"}, ())
        assert read_table(self.write(tmp_path, "file,label,set\na.png,cat,val\nb.png,dog,val\n")).notes == ()

    def test_refuses_what_is_no_text(self, tmp_path: Path) -> None:
        (tmp_path / "labels.csv").write_bytes(b"file,label\n\xff\xfe,cat\n")
        with pytest.raises(DataError, match="Cannot read the table"):
            read_table(tmp_path / "labels.csv")

    def test_a_missing_table(self) -> None:
        with pytest.raises(DataError, match="no table of labels"):
            read_table("nowhere.csv")


@pytest.mark.parametrize(
    "labels",
    [
        ["dog", "cat ", "dog"],
        ("dog", "cat", "dog"),
        np.array(["dog", "cat", "dog"], object),
        np.array(["dog", "cat", "dog"]),
    ],
    ids=["list", "tuple", "objects", "texts"],
)
def test_names_beside_images_and_texts_are_names_in_any_container(labels: Any) -> None:
    for inputs in (np.zeros((3, 8, 8, 3), np.uint8), ["a text", "another", "a third"]):
        data = load_data((inputs, labels))
        assert data.labels is not None
        assert (data.classes, data.labels.tolist()) == (("cat", "dog"), [1, 0, 1])


@pytest.mark.parametrize("missing", [None, float("nan"), "", " "])
def test_a_missing_label_is_no_class(missing: Any) -> None:
    for inputs in (np.zeros((3, 8, 8, 3), np.uint8), ["a text", "another", "a third"]):
        with pytest.raises(DataError, match=r"no label(?s:.*)row 1"):
            load_data((inputs, ["dog", missing, "cat"]))


def test_lists_of_labels_of_different_lengths_are_refused_as_multi_label() -> None:
    for inputs in (np.zeros((2, 8, 8, 3), np.uint8), ["a text", "another"]):
        with pytest.raises(DataError, match="Multi-label"):
            load_data((inputs, [[0], [0, 1]]))
