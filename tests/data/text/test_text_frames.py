"""Texts from tables that are no text files.

Stand-ins have what is used of pandas and `datasets`; `make ecosystem` uses the real ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import shiftproof
from shiftproof.data import DataSpec, ImageSet, TextSet
from shiftproof.errors import ConfigurationError, DataError
from tests.data.images.test_forms import Frame
from tests.data.images.test_huggingface import ClassLabel, Dataset, Image, Value

load_data: Any = shiftproof.load_data  # what it gives here is a TextSet with labels
TEXTS = ["a bee", "the cat", "an ant", "two cats"]


class Streamed:
    """Rows that come one after the other, as of a data set that is streamed."""

    features = None

    def cast_column(self, *_: object) -> None:
        raise AssertionError("nothing is to be decoded")

    def __iter__(self) -> Iterator[dict[str, object]]:
        return iter({"sentence": text, "label": place % 2} for place, text in enumerate(TEXTS))


def named(labels: list[int] | None = None) -> Dataset:
    """Return a set whose labels are numbers of names."""
    held: dict[str, list[Any]] = {"id": list("abcd"), "text": TEXTS, "label": labels or [1, 2, 0, 2]}
    return Dataset(held, {"id": Value(), "text": Value(), "label": ClassLabel()})


def test_a_frame_of_texts_is_what_the_list_of_them_is() -> None:
    data = load_data(Frame(Review=TEXTS, stars=[3, 1, 2, 1], Label=["up", "down", "up", "down"]))
    plain = load_data((TEXTS, ["up", "down", "up", "down"]))
    assert type(data) is TextSet
    assert data.texts == TEXTS
    assert data.labels is not None
    assert (data.classes, data.labels.tolist()) == (("down", "up"), [1, 0, 1, 0])
    assert data.keys.tolist() == plain.keys.tolist()
    numbered = load_data(Frame(Review=TEXTS, stars=[3, 1, 2, 1]), text_column="review", label_column="stars")
    assert (numbered.labels.tolist(), numbered.numbering) == ([3, 1, 2, 1], "index")
    assert load_data(Frame(a=TEXTS, b=TEXTS), text_column="a,b").texts == [(text, text) for text in TEXTS]


def test_names_and_numbers_of_class_labels_are_kept() -> None:
    data = load_data(named())
    assert (data.classes, data.numbering) == (("ant", "bee", "cat"), "own")
    assert data.labels.tolist() == [1, 2, 0, 2]
    turned = load_data(named(), classes=["cat", "bee", "ant"])
    assert (turned.labels.tolist(), turned.numbering) == ([1, 0, 2, 0], "given")
    assert load_data({"train": named(), "test": named([0, 0, 0, 0])}, split="test").labels.tolist() == [0] * 4


def test_class_labels_are_found_by_any_name_and_their_names_without_spaces_around() -> None:
    kind: Any = ClassLabel()
    kind.names = (" up", "down ", "across")
    data = load_data(Dataset({"text": TEXTS, "intent": [1, 2, 0, 2]}, {"text": Value(), "intent": kind}))
    assert (data.classes, data.labels.tolist(), data.numbering) == (("up", "down", "across"), [1, 2, 0, 2], "own")
    beside = Dataset({"text": TEXTS, "tongue": [1, 2, 0, 2], "label": [0, 1, 0, 1]}, {"tongue": kind, "label": Value()})
    beside.features = {"text": Value(), **beside.features}
    assert load_data(beside).labels.tolist() == [0, 1, 0, 1]


def test_numbers_of_numpy_and_torch_are_numbers() -> None:
    held: Any = [torch.tensor(each) for each in (1, 2, 0, -1)]
    data = load_data(named(held), on_bad_file="skip")
    assert (data.classes, data.labels.tolist(), data.numbering) == (("ant", "bee", "cat"), [1, 2, 0], "own")
    for kind in (torch.tensor, np.int64, np.float32, float):
        data = load_data(Frame(text=TEXTS, label=[kind(each) for each in (2, 10, 0, 1)]))
        assert data.labels.tolist() == [2, 10, 0, 1]
    data = load_data(Frame(text=TEXTS, label=[np.bool_(True), True, False, np.bool_(False)]))
    assert data.labels.tolist() == [1, 1, 0, 0]


def test_whole_numbers_beside_an_empty_cell_are_whole_numbers() -> None:
    data = load_data(Frame(text=TEXTS, label=[1.0, math.nan, 0.0, 2.0]), on_bad_file="skip")
    assert (data.labels.tolist(), data.numbering) == ([1, 0, 2], "index")
    with pytest.raises(DataError, match="not whole numbers"):
        load_data(Frame(text=TEXTS, label=[0.5, 1.0, 0.0, 1.0]))


@pytest.mark.parametrize("label", [[0, 2], np.array([0, 2]), torch.tensor([1])])
def test_several_labels_of_a_text_are_refused(label, tmp_path) -> None:
    with pytest.raises(DataError, match="Multi-label classification is not supported"):
        load_data(Frame(text=TEXTS, label=[0, 1, 0, label]))
    (tmp_path / "many.jsonl").write_text('{"text": "a bee", "label": [0, 2]}\n')
    with pytest.raises(DataError, match="Multi-label classification is not supported"):
        load_data(tmp_path / "many.jsonl")


@pytest.mark.parametrize("cell", [["a", "bee"], b"a bee", np.array(["a", "bee"])])
def test_what_is_no_text_is_refused(cell) -> None:
    with pytest.raises(DataError, match="no text"):
        load_data(Frame(text=["a cat", cell], label=[0, 1]))


def test_columns_may_be_called_by_numbers() -> None:
    frame: Any = Frame()
    frame.columns, frame.held = [0, 1], {0: TEXTS, 1: [0, 1, 0, 1]}
    data = load_data(frame, text_column="0", label_column="1")
    assert (data.texts, data.labels.tolist()) == (TEXTS, [0, 1, 0, 1])


def test_labels_that_are_kept_back_are_none() -> None:
    assert load_data(named([-1] * 4)).labels is None
    with pytest.raises(DataError, match="no label in row 1"):
        load_data(named([1, -1, 0, 2]))
    assert len(load_data(named([1, -1, 0, 2]), on_bad_file="skip")) == 3


def test_empty_cells_are_no_texts() -> None:
    with pytest.raises(DataError, match="no text in row 1"):
        load_data(Frame(text=["fine", math.nan], label=[1, 0]))
    assert load_data(Frame(text=["fine", None], label=[1, 0]), on_bad_file="skip").texts == ["fine"]


def test_a_stream_is_read_row_by_row() -> None:
    data = load_data(Streamed())
    assert (data.texts, data.labels.tolist()) == (TEXTS, [0, 1, 0, 1])


def test_a_table_with_images_holds_images_unless_texts_are_named() -> None:
    held: dict[str, list[Any]] = {"image": [b""], "text": ["a caption"]}
    captions = Dataset(held, {"image": Image(), "text": Value()})
    with pytest.raises(DataError, match="Cannot read the image"):  # it was taken for one
        load_data(captions)
    assert load_data(captions, text_column="text").texts == ["a caption"]
    assert not isinstance(load_data("demo"), TextSet)
    assert isinstance(load_data("demo"), ImageSet)


def test_a_column_of_other_files_is_none_of_images() -> None:
    files = ["mail/1.txt", "mail/2", "mail/3.eml", "mail/4.txt"]
    assert load_data(Frame(path=files, text=TEXTS, label=[0, 1, 0, 1])).texts == TEXTS
    with pytest.raises(DataError, match=r"Cannot read the image 'no\.png'"):
        load_data(Frame(path=["no.png"], text=["a caption"]))


def test_tables_of_texts_are_written_in_shifted_copies(tmp_path) -> None:
    written = shiftproof.write_corrupted(Frame(text=TEXTS, label=[0, 1, 0, 1]), tmp_path / "out", shifts=["typos@3"])
    assert [path.name for path in written.folder.glob("typos@3.*")] == ["typos@3.jsonl"]


def test_a_chosen_split_of_texts_is_written(tmp_path) -> None:
    data = DataSpec({"train": named(), "test": named()}, split="test")
    shiftproof.write_corrupted(data, tmp_path / "out", shifts=["typos@3"])
    assert (tmp_path / "out" / "typos@3.jsonl").is_file()


def test_a_table_that_cannot_be_read_is_not_taken_for_images(tmp_path) -> None:
    (tmp_path / "texts.parquet").write_bytes(b"no table")
    with pytest.raises(DataError, match=r"texts\.parquet"):
        load_data(tmp_path / "texts.parquet", text_column="text")


def test_what_does_not_go_with_texts_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="split= cannot be used with a table"):
        load_data(Frame(text=TEXTS), split="train")
    with pytest.raises(ConfigurationError, match="size= cannot be used with a table of texts"):
        load_data(Frame(text=TEXTS), size=32)
    with pytest.raises(DataError, match=r"no column 'story' in the table 'table'"):
        load_data(Frame(text=TEXTS), text_column="story")
    with pytest.raises(ConfigurationError, match="split="):
        load_data(named(), split="test")
    with pytest.raises(DataError, match="several splits"):
        load_data({"train": named(), "test": named()})


@pytest.mark.parametrize("held", [[1, 2, 3, 4], [None, "1.txt", "2.txt", "3.txt"]])
def test_a_column_that_holds_no_pictures_is_none_of_images(held) -> None:
    assert load_data(Frame(file=held, text=TEXTS, label=[0, 1, 0, 1])).texts == TEXTS


def test_pairs_of_texts_beside_the_name_of_an_image_are_texts(tmp_path) -> None:
    table = tmp_path / "pairs.csv"
    table.write_text("premise,hypothesis,label,source\na man,a person,yes,17.jpg\na cat,a dog,no,18.jpg\n")
    assert load_data(table).texts == [("a man", "a person"), ("a cat", "a dog")]


def test_the_separator_in_a_field_without_quotes_is_refused(tmp_path) -> None:
    table = tmp_path / "texts.csv"
    table.write_text("text,label\nI like it, really,good\nno,bad\n")
    with pytest.raises(DataError, match=r"Line 2 (?s:.*)quotes"):
        load_data(table)
    table.write_text("text,label\nI like it,good,\nno,bad,\n")
    assert load_data(table).texts == ["I like it", "no"]


def test_files_that_an_editor_or_archiver_left_are_no_texts(tmp_path) -> None:
    files = ("cat/1.txt", "dog/1.txt", "cat/._1.txt", "cat/.DS_Store", ".ipynb_checkpoints/1.ipynb", "__MACOSX/._1.txt")
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"what {name} holds")
    data = load_data(tmp_path)
    assert (data.texts, data.classes) == (["what cat/1.txt holds", "what dog/1.txt holds"], ("cat", "dog"))
