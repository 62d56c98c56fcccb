"""Texts of pandas, Arrow, Parquet and Hugging Face are those of a CSV, and the audit of a text network the same."""

from __future__ import annotations

import csv

import pytest

for package in ("datasets", "pandas", "pyarrow"):
    pytest.importorskip(package, reason="the packages of tests/ecosystem/requirements.txt: make ecosystem")

import datasets
import pandas
import pyarrow
import torch

import shiftproof
from shiftproof.data import TextSet, load_data

ROWS = [(f"{word} film number {number}", number % 2) for number in range(30) for word in ("fine", "dull")]
NAMES = ["bad", "good"]
TEXTS, LABELS = [text for text, _ in ROWS], [label for _, label in ROWS]
COLUMNS = {"text": TEXTS, "label": LABELS}


def forms(folder):
    """Yield the same texts in every form, with the options of `load_data`."""
    frame = pandas.DataFrame(COLUMNS)
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=NAMES)})
    held = datasets.Dataset.from_dict(COLUMNS, features=features)
    frame.to_parquet(folder / "plain.parquet")
    frame.assign(path="mail/1.txt").to_parquet(folder / "paths.parquet")
    held.to_parquet(folder / "named.parquet")
    held.save_to_disk(str(folder / "saved"))
    datasets.DatasetDict({"train": held, "test": held}).save_to_disk(str(folder / "splits"))
    yield from (
        (frame, {}),
        (frame.astype({"text": "string"}), {}),
        (frame.astype({"label": "float"}), {}),
        (frame.astype({"label": "bool"}), {}),
        (frame.set_axis([0, 1], axis=1), {"text_column": "0", "label_column": "1"}),
        (pyarrow.Table.from_pandas(frame), {}),
        (folder / "plain.parquet", {}),
        (folder / "paths.parquet", {}),
        (folder / "named.parquet", {}),
        *((held.with_format(kind), {}) for kind in (None, "numpy", "torch", "pandas", "arrow")),
        (held.to_iterable_dataset(), {}),
        (held.to_iterable_dataset().with_format("torch"), {}),
        (held.with_format("torch", columns=["label"]), {}),
        (held.with_transform(lambda rows: {"input_ids": [[len(text)] for text in rows["text"]]}), {}),
        (folder / "saved", {}),
        (folder / "splits", {"split": "test"}),
    )


def test_every_form_holds_the_same_texts(tmp_path):
    with (tmp_path / "plain.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *ROWS])
    plain = load_data(tmp_path / "plain.csv")
    assert isinstance(plain, TextSet)
    assert plain.labels is not None
    for source, options in forms(tmp_path):
        data = load_data(source, **options)
        assert isinstance(data, TextSet)
        assert data.labels is not None
        assert data.texts == plain.texts
        assert torch.equal(data.labels, plain.labels)
        assert data.keys.tolist() == plain.keys.tolist()
        assert data.classes in (("0", "1"), tuple(NAMES))


def test_a_data_set_of_texts_is_audited(tmp_path):
    def model(texts):
        return torch.tensor([[0.0, float("fine" in text)] for text in texts])

    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=NAMES)})
    found = shiftproof.audit(
        model, datasets.Dataset.from_dict(COLUMNS, features=features), out=tmp_path / "run", sections=["clean"]
    )
    answers = [int("fine" in text) for text in TEXTS]
    right = sum(answer == label for answer, label in zip(answers, LABELS, strict=True))
    assert found.numbers["clean_accuracy"] == right / len(ROWS)


def test_a_pipeline_that_begins_with_a_vectorizer_is_audited(tmp_path):
    linear_model = pytest.importorskip("sklearn.linear_model")
    text = pytest.importorskip("sklearn.feature_extraction.text")
    pipeline = pytest.importorskip("sklearn.pipeline")

    def fitted():
        made = pipeline.make_pipeline(text.TfidfVectorizer(), linear_model.LogisticRegression())
        return made.fit(TEXTS, [NAMES[label] for label in LABELS])

    data = (TEXTS, [NAMES[label] for label in LABELS])
    found = shiftproof.audit(fitted(), data, out=tmp_path / "run", sections=["clean"])
    expected = (fitted().predict(TEXTS) == [NAMES[label] for label in LABELS]).mean()
    assert found.numbers["clean_accuracy"] == pytest.approx(expected)
