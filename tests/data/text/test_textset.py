"""Texts from tables, folders and lists: what is read, what is found by itself, and what is refused."""

import csv
import json
from typing import Any

import pytest
import torch

import shiftproof
from shiftproof.data import TextSet, load_images
from shiftproof.data.contents import text_keys
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.streams import make_stream
from shiftproof.training.text import train_text_cnn

load_data: Any = shiftproof.load_data  # what it gives here is a TextSet with labels
ROWS = [("a fine film", "pos"), ("dull, and long", "neg"), ('he said "no"', "neg"), ("two\nlines", "pos")]


def table(path, columns=("text", "label"), rows=ROWS, delimiter=","):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=delimiter).writerows([columns, *rows])
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".json", ".CSV"])
def test_tables_of_every_kind_hold_the_same(tmp_path, suffix):
    path = tmp_path / f"reviews{suffix}"
    if suffix.lower() in (".csv", ".tsv"):
        table(path, delimiter="\t" if suffix == ".tsv" else ",")
    else:
        objects = [{"text": text, "label": label} for text, label in ROWS]
        path.write_text(json.dumps(objects) if suffix == ".json" else "\n".join(map(json.dumps, objects)))
    data = load_data(path)
    assert isinstance(data, TextSet)
    assert data.texts == [text for text, _ in ROWS]
    assert data.classes == ("neg", "pos")
    assert data.labels is not None
    assert data.labels.tolist() == [1, 0, 0, 1]
    assert not data.pairs


def test_columns_are_found_in_any_case_and_named_by_the_user(tmp_path):
    path = table(tmp_path / "a.csv", ("Sentiment", "Review", "summary"), [("up", "good", "x"), ("down", "bad", "y")])
    assert load_data(path).texts == ["good", "bad"]
    assert load_data(path, text_column="summary", label_column="Review").classes == ("bad", "good")
    assert load_data(path, text_column="review,summary").texts == [("good", "x"), ("bad", "y")]


def test_pairs_are_found_by_their_usual_names(tmp_path):
    path = table(tmp_path / "a.tsv", ("premise", "hypothesis", "gold_label"), [("a", "b", "neutral")], "\t")
    data = load_data(path)
    assert data.pairs
    assert data.texts == [("a", "b")]


def test_columns_by_number_are_those_of_a_file_without_a_header(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("fine\t1\nbad\t0\n")
    data = load_data(path, text_column="0", label_column="1")
    assert data.texts == ["fine", "bad"]
    assert data.labels.tolist() == [1, 0]


def test_folders_of_text_files(tmp_path):
    for name, text in (("pos/1.txt", "good"), ("pos/2.txt", "great"), ("neg/1.txt", "bad")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    data = load_data(tmp_path)
    assert (data.texts, data.classes, data.labels.tolist()) == (["bad", "good", "great"], ("neg", "pos"), [0, 1, 1])
    (tmp_path / "pos/3.txt").write_bytes(b"caf\xe9")
    with pytest.raises(DataError, match="not UTF-8"):
        load_data(tmp_path)
    skipped = load_data(tmp_path, on_bad_file="skip")
    assert [bad.file for bad in skipped.bad_files] == ["pos/3.txt"]
    assert "pos/3.txt" in skipped.notes[-1]


def test_lists_are_texts_pairs_or_texts_with_labels():
    assert load_data(["good", "bad"]).texts == ["good", "bad"]
    assert load_data((["good", "bad"], [1, 0])).labels.tolist() == [1, 0]
    assert load_data([("a", "b"), ("c", "d")], labels=["yes", "no"]).classes == ("no", "yes")


def test_batches_subsets_and_fingerprints_follow_the_texts():
    data = load_data(([f"text {number}" for number in range(10)], [number % 2 for number in range(10)]))
    batches = list(data.subset([7, 2, 5]).batches(2))
    assert [batch.inputs for batch in batches] == [["text 7", "text 2"], ["text 5"]]
    assert torch.equal(torch.cat([batch.keys for batch in batches]), data.keys[[7, 2, 5]])
    assert data.take(4).labels.bincount().tolist() == [2, 2]
    other = load_data(([*data.texts[:-1], "changed"], data.labels))
    assert other.fingerprint != data.fingerprint
    assert load_data((data.texts, data.labels)).fingerprint == data.fingerprint


def test_texts_refuse_to_be_images():
    with pytest.raises(DataError, match="Images are needed, not texts"):
        load_images(["a text"])
    with pytest.raises(DataError, match="Images are needed, not texts"):
        make_stream("ccc", load_data(["a text", "another"]))
    with pytest.raises(DataError, match="Texts are needed, not images"):
        train_text_cnn(load_data("demo"))


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        (b"text,label\ngood,1\n,0\n", {}, "line 3"),
        (b"text,label\ngood,\n", {}, "no label"),
        (b"text,label\ncaf\xe9,1\n", {}, "line 2"),
        (b"text,label\ngood,1\n", {"label_column": "stars"}, "no column 'stars'"),
        (b"words,label\ngood,1\n", {}, "--text-column"),
        (b"", {}, "empty"),
        (b"text,label\n", {}, "no texts"),
    ],
)
def test_bad_tables_are_told_in_words(tmp_path, content, options, said):
    path = tmp_path / "bad.csv"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        load_data(path, **options)
    assert said in str(caught.value)


def test_empty_texts_can_be_skipped(tmp_path):
    path = table(tmp_path / "a.csv", rows=[("good", "1"), ("  ", "0"), ("bad", "0")])
    data = load_data(path, on_bad_file="skip")
    assert data.texts == ["good", "bad"]
    assert data.keys.tolist() == text_keys(["good", "bad"]).tolist()
    with pytest.raises(DataError, match="empty"):
        load_data(["good", " "])


def test_options_of_images_do_not_go_with_texts(tmp_path):
    path = table(tmp_path / "a.csv")
    with pytest.raises(ConfigurationError):
        load_data(path, size=32)
    with pytest.raises(ConfigurationError):
        load_data("demo", text_column="text")
