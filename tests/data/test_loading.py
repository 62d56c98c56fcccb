from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shiftproof.data import FORMS, load_data
from shiftproof.errors import ConfigurationError, DataError, ShiftproofError

IMAGES = np.zeros((2, 8, 8, 3), np.uint8)


def test_a_set_passes_through() -> None:
    data = load_data(IMAGES)
    assert load_data(data) is data
    with pytest.raises(ConfigurationError, match="size= cannot be used with an ImageSet"):
        load_data(data, size=4)


def test_a_missing_path_is_named() -> None:
    for path in ("nowhere/photos", "photos.npz"):
        with pytest.raises(DataError, match=f"no data at '{path}'"):
            load_data(path)


def test_an_unknown_name_answers_with_the_nearest() -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_data("demo-sauce")
    assert caught.value.facts["did you mean"].startswith("demo-source")


@pytest.mark.parametrize(("name", "fix"), [("photos.tar.gz", "unpack it"), ("photo.png", "the folder it is in")])
def test_one_file_is_no_set(name: str, fix: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(DataError, match="is not a supported data set") as caught:
        load_data(tmp_path / name)
    assert fix in caught.value.facts["fix"]


@pytest.mark.parametrize("source", [None, 7, {"images": IMAGES}, (IMAGES, None, None)])
def test_other_things_are_no_set(source: Any) -> None:
    with pytest.raises(DataError, match="Unsupported data"):
        load_data(source)


@pytest.mark.parametrize("options", [{"labels": "labels.csv"}, {"split": "test"}])
def test_the_demo_has_its_own_labels(options: Any) -> None:
    with pytest.raises(ConfigurationError, match="cannot be used with the demo"):
        load_data("demo", **options)


def test_labels_of_arrays_are_arrays() -> None:
    with pytest.raises(ConfigurationError, match="must be an array"):
        load_data(IMAGES, labels="labels.npy")


def test_every_form_has_a_line() -> None:
    assert {"demo", "demo-source", "folder/", "images.npz"} <= FORMS.keys()
    assert all(FORMS.values())


@pytest.mark.parametrize("spec", ["petss", "photos/petss", "pets.npz"])
def test_what_is_called_nearly_so_is_proposed(spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pets").mkdir()
    (tmp_path / "photos" / "pets").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ShiftproofError, match=r"did you mean\s+(photos/)?pets") as error:
        load_data(spec)
    assert ("photos" in error.value.facts["did you mean"]) is ("photos" in spec)
