"""A small class of the same interface stands in for `datasets.Dataset`; the real one is used where it is installed."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image as Pillow

from shiftproof.data import load_images
from shiftproof.data.contents import content_keys
from shiftproof.errors import ConfigurationError, DataError

PIXELS = np.random.default_rng(0).integers(0, 256, (5, 8, 6, 3), dtype=np.uint8)
LABELS = [0, 2, 1, 1, 0]
EXPECTED = torch.from_numpy(PIXELS).permute(0, 3, 1, 2).float() / 255


class Image:
    def __init__(self, decode: bool = True) -> None:
        self.decode = decode


class ClassLabel:
    names = ("ant", "bee", "cat")


class Value:
    pass


class Dataset:
    """Columns with features; images are stored encoded, and handed out so where decoding is off."""

    def __init__(self, columns: dict[str, list[Any]], features: dict[str, Any]) -> None:
        self.columns = columns
        self.features = features

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, str):
            return self.columns[place]
        row = {name: column[place] for name, column in self.columns.items()}
        assert not any(isinstance(feature, Image) and feature.decode for feature in self.features.values())
        return row

    def select_columns(self, names: list[str]) -> Dataset:
        return Dataset({name: self.columns[name] for name in names}, {name: self.features[name] for name in names})

    def cast_column(self, name: str, feature: Any) -> Dataset:
        return Dataset(self.columns, {**self.features, name: feature})


class Formatted(Dataset):
    """A set whose user made its rows what a training loop takes: nothing of them may be read."""

    def __init__(self, kind: str | None, columns: list[str]) -> None:
        super().__init__(make().columns, make().features)
        self.format = {"type": kind, "columns": columns}

    def __getitem__(self, place: Any) -> Any:
        raise AssertionError(place)

    def with_format(self, kind: None) -> Dataset:
        return make()


def encoded(pixels: Any = PIXELS) -> list[dict[str, Any]]:
    entries = []
    for image in pixels:
        file = io.BytesIO()
        Pillow.fromarray(image).save(file, "PNG")
        entries.append({"bytes": file.getvalue(), "path": None})
    return entries


def make(label: str = "label", feature: Any = None) -> Dataset:
    features = {"id": Value(), "img": Image(), label: feature or ClassLabel()}
    return Dataset({"id": list(range(5)), "img": encoded(), label: LABELS}, features)


def test_images_and_labels() -> None:
    data = load_images(make("fine"))
    assert torch.equal(next(data.batches(9)).inputs, EXPECTED)
    assert data.labels is not None
    assert data.labels.tolist() == LABELS
    assert data.classes == ("ant", "bee", "cat")
    assert data.keys.tolist() == content_keys(EXPECTED).tolist()
    assert data.shape == (3, 8, 6)


def test_class_names_in_another_order_are_matched_by_name() -> None:
    turned = load_images(make("fine"), classes=["cat", "bee", "ant"])
    assert turned.labels is not None
    assert (turned.labels.tolist(), turned.numbering) == ([2, 0, 1, 1, 2], "given")
    translated = load_images(make("fine"), classes=["Ameise", "Biene", "Katze"])
    assert translated.labels is not None
    assert translated.labels.tolist() == LABELS
    with pytest.raises(DataError, match="no class named 'cat'"):
        load_images(make("fine"), classes=["bee", "ant", "kitten"])


@pytest.mark.parametrize(
    ("kind", "columns"), [("custom", ["id", "img", "label"]), ("torch", ["id", "img", "label"]), (None, ["label"])]
)
def test_rows_are_read_as_they_are_stored(kind: str | None, columns: list[str]) -> None:
    data = load_images(Formatted(kind, columns))
    assert torch.equal(next(data.batches(9)).inputs, EXPECTED)
    assert data.labels is not None
    assert data.labels.tolist() == LABELS
    assert ("transform was left out" in " ".join(data.notes)) == (kind == "custom")


def test_labels_without_names_and_no_labels() -> None:
    assert load_images(make(feature=Value())).classes == ("0", "1", "2")
    assert load_images(make("other", Value())).labels is None


def test_images_in_files(tmp_path: Path) -> None:
    Pillow.fromarray(PIXELS[0]).save(tmp_path / "a.png")
    data = load_images(Dataset({"image": [{"bytes": None, "path": str(tmp_path / "a.png")}]}, {"image": Image()}))
    assert torch.equal(next(data.batches(9)).inputs, EXPECTED[:1])


def test_splits() -> None:
    splits = {"train": make(), "test": make()}
    assert load_images(splits, split="test").name == "dataset test"
    assert load_images({"test": make()}).name == "dataset test"
    with pytest.raises(DataError, match=r"several splits(?s:.*)train, test"):
        load_images(splits)
    with pytest.raises(DataError, match="no split 'val'"):
        load_images(splits, split="val")


def test_bad_rows() -> None:
    dataset = make()
    dataset.columns["img"][3] = {"bytes": b"hello", "path": None}
    with pytest.raises(DataError, match="row 3"):
        list(load_images(dataset).batches(2))
    data = load_images(dataset, on_bad_file="skip")
    assert [len(batch) for batch in data.batches(2)] == [2, 1, 1]
    assert [bad.file for bad in data.bad_files] == ["row 3"]
    dataset.columns["img"][0] = {"bytes": b"hello", "path": None}
    with pytest.raises(DataError, match="row 0"):
        load_images(dataset)


def test_sizes() -> None:
    dataset = make()
    dataset.columns["img"][4] = encoded([PIXELS[0, :4]])[0]
    with pytest.raises(DataError, match="row 0 is 6 x 8, row 4 is 6 x 4"):
        list(load_images(dataset).batches(9))
    assert next(load_images(dataset, size=4).batches(9)).inputs.shape == (5, 3, 4, 4)
    assert load_images(dataset, size=4).source.size == 4


def test_the_fingerprint_covers_pixels_and_labels() -> None:
    other, relabelled = make(), make()
    other.columns["img"][4] = encoded([PIXELS[0]])[0]
    relabelled.columns["label"] = [0, 2, 1, 1, 1]
    assert load_images(make()).fingerprint == load_images(make()).fingerprint
    assert len({load_images(dataset).fingerprint for dataset in (make(), other, relabelled)}) == 3


def test_what_does_not_fit() -> None:
    with pytest.raises(DataError, match="no column of images"):
        load_images(Dataset({"id": [1]}, {"id": Value()}))
    with pytest.raises(DataError, match="Images are needed"):
        load_images(Dataset({"text": ["fine"]}, {"text": Value()}))
    with pytest.raises(DataError, match="is empty"):
        load_images(Dataset({"image": []}, {"image": Image()}))
    with pytest.raises(ConfigurationError, match="labels= cannot be used with"):
        load_images(make(), labels=LABELS)


def test_without_the_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dataset_dict.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match=r"shiftproof\[huggingface\]"):
        load_images(tmp_path)


def test_the_real_package(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="needs the package datasets")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["ant", "bee", "cat"])})
    images = [Pillow.fromarray(image) for image in PIXELS]
    dataset = datasets.Dataset.from_dict({"image": images, "label": LABELS}, features=features)
    datasets.DatasetDict({"test": dataset}).save_to_disk(str(tmp_path / "saved"))
    for data in (load_images(dataset), load_images(tmp_path / "saved")):
        assert torch.equal(next(data.batches(9)).inputs, EXPECTED)
        assert data.labels is not None
        assert data.labels.tolist() == LABELS
        assert data.classes == ("ant", "bee", "cat")
    assert load_images(dataset).fingerprint == load_images(tmp_path / "saved").fingerprint


def test_class_names_spelt_otherwise_are_not_taken_for_other_names() -> None:
    with pytest.raises(DataError, match="no class named 'ant'"):
        load_images(make("fine"), classes=["Cat", "Bee", "Ant"])
    assert "Ameise" in load_images(make("fine"), classes=["Ameise", "Biene", "Katze"]).notes[-1]


def test_labels_that_are_kept_back_are_none() -> None:
    dataset = make("fine")
    dataset.columns["fine"] = [-1] * len(dataset)
    assert load_images(dataset).labels is None
    dataset.columns["fine"] = [1, *[-1] * (len(dataset) - 1)]
    with pytest.raises(DataError, match="Some inputs have no label"):
        load_images(dataset)
