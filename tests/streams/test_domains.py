"""Streams over one's own folders and over downloaded suites, as they are."""

import csv
import json
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from shiftproof.cli.showing_comparisons import show_stream_comparison
from shiftproof.comparisons.along_streams import compare_on_stream
from shiftproof.data import load_data
from shiftproof.data.images.joining import JoinedSet
from shiftproof.data.images.maskset import MaskSet
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.shifts import parse
from shiftproof.streams.domains import Domains
from shiftproof.streams.making import as_stream
from tests.label_maps import ColourNet, load_masks, write_tree


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Write class folders of noisy and of foggy demo images, an unlabelled folder, and a suite of arrays."""
    root = tmp_path_factory.mktemp("domains")
    data = load_data("demo").take(30)
    batch = next(data.batches(30))
    assert batch.labels is not None
    suite, flat = root / "suite", root / "flat"
    suite.mkdir()
    flat.mkdir()
    np.save(suite / "labels.npy", batch.labels.numpy())
    for name in ("gaussian_noise", "fog"):
        pixels = (parse(f"{name}@5")(batch.inputs, batch.keys) * 255).round().byte().permute(0, 2, 3, 1).numpy()
        np.save(suite / f"{name}.npy", np.concatenate([pixels] * 5))
        for number, (image, label) in enumerate(zip(pixels, batch.labels.tolist(), strict=True)):
            Image.fromarray(image).save(flat / f"{name}-{number}.png")
            if name == "fog" and data.classes[label] == "cat":
                continue  # a folder may lack a class
            folder = root / name / data.classes[label]
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(folder / f"{number}.png")
    np.save(suite / "snow.npy", np.load(suite / "fog.npy"))
    return root


def answered(data: MaskSet) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the label maps of a set, and those that the model answers."""
    return data.labels, ColourNet()(next(data.batches(len(data))).inputs).argmax(1)


def overlap(labels: torch.Tensor, predicted: torch.Tensor) -> float:
    """Return the mean IoU of an image over its classes."""
    known = labels != 255
    shares = [
        float((known & (labels == each) & (predicted == each)).sum())
        / float((known & ((labels == each) | (predicted == each))).sum())
        for each in labels[known].unique()
    ]
    return float(np.mean(shares))


def joined(text: str, **options: Any) -> JoinedSet:
    data = load_data(text, **options)
    assert isinstance(data, JoinedSet)
    return data


def test_folders_are_joined_by_class_name(place):
    data = joined(f"folders:{place / 'fog'},{place / 'gaussian_noise'}")
    fog, noise = (load_data(place / name) for name in ("fog", "gaussian_noise"))
    assert len(fog.classes) == len(noise.classes) - 1
    assert data.classes == noise.classes
    assert data.labels is not None
    assert fog.labels is not None
    assert [data.classes[label] for label in data.labels[: len(fog)]] == [fog.classes[label] for label in fog.labels]
    both = torch.cat([batch.inputs for each in (fog, noise) for batch in each.batches(7)])
    assert torch.equal(torch.cat([batch.inputs for batch in data.batches(13)]), both)
    assert data.subset([0, len(fog), 1]).domain.tolist() == [0, 1, 0]
    assert data.names[len(fog)].startswith(str(place / "gaussian_noise"))


def test_a_stream_goes_from_folder_to_folder_and_round_again(place):
    folders = [str(place / name) for name in ("fog", "gaussian_noise")]
    stream = as_stream(f"folders:{','.join(folders)}", images=70)
    assert isinstance(stream, Domains)
    fog = len(load_data(folders[0]))
    shifts = [stream.read(k, k + 1).shift for k in range(fog + 30)]
    assert shifts == [folders[0]] * fog + [folders[1]] * 30
    assert stream.read(fog + 30, 70).shift == folders[0]
    whole = torch.cat([batch.keys for batch in stream])[: fog + 30]
    assert len(set(whole.tolist())) == fog + 30
    assert stream.shift_names == tuple(folders)
    assert stream.notes == ()
    short = as_stream(f"folders:{','.join(folders)}", images=fog)
    assert short.shift_names == (folders[0],)
    assert short.notes == (f"The stream reaches 1 of 2 sets: all of them take {fog + 30} images.",)


def test_a_suite_is_a_stream_whose_order_the_seed_draws(place):
    suite = f"suite:{place / 'suite'}"
    orders = {as_stream(suite, seed=seed).shift_names for seed in range(12)}
    assert len(orders) > 3
    assert {name for order in orders for name in order} == {"fog@5", "gaussian_noise@5", "snow@5"}
    assert joined(suite, split="3").domains == ("fog@3", "gaussian_noise@3", "snow@3")
    assert joined(suite, split="fog@1,snow@2").domains == ("fog@1", "snow@2")


def test_methods_adapt_along_labelled_folders_and_a_suite(place, tmp_path, capsys):
    stream = f"folders:{place / 'fog'},{place / 'gaussian_noise'}"
    common: dict[str, Any] = {"methods": ["bn", "rdumb"], "batch_size": 15, "device": "cpu"}
    given: dict[str, Any] = {**common, "options": {"reset": 2, "prior": 4}, "out": tmp_path / "a"}
    found = compare_on_stream("demo", stream=stream, **given)
    assert found.traces["rdumb"].resets > 0
    assert found.predictions is not None
    with found.predictions.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == sum(found.traces["bn"].images)
    assert sum(row["bn"] == row["label"] for row in rows) == sum(found.traces["bn"].right)
    assert all(row["image"].startswith(row["shift"]) for row in rows)
    assert all(f"/{row['label']}/" in row["image"] for row in rows)
    assert compare_on_stream("demo", stream=stream, **given).traces == found.traces
    suite = compare_on_stream("demo", stream=f"suite:{place / 'suite'}", out=tmp_path / "b", **common)
    assert set(suite.shifts) == {"fog@5", "gaussian_noise@5", "snow@5"}
    assert json.loads((tmp_path / "b" / "stream.json").read_text())["shifts"] == list(suite.shifts)
    show_stream_comparison(suite, {})
    assert "shifts   " in capsys.readouterr().out


def test_unlabelled_folders_give_answers_and_agreement(place, tmp_path, capsys):
    stream = f"folders:{place / 'flat'}"
    found = compare_on_stream("demo", stream=stream, methods=["bn"], batch_size=20, out=tmp_path, device="cpu")
    source, bn = found.to_rows()
    assert source["accuracy"] is None
    assert source["agreement"] == 1
    same = sum(one == other for one, other in zip(*(each.predicted for each in found.traces.values()), strict=True))
    assert bn["agreement"] == pytest.approx(same / len(found.traces["bn"].predicted))
    show_stream_comparison(found, {})
    assert "agreement with source, %" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("stream", "given", "words"),
    [
        ("folders:flat,fog", {}, "some have none"),
        ("folders:fog,fog", {}, "each set once"),
        ("folders:no/where", {}, "There is no data"),
        ("suite:fog", {}, "not a suite"),
        ("folders:fog", {"speed": 3}, "speed= cannot be used"),
        ("folders:fog", {"shifts": ["fog"]}, "shifts= cannot be used"),
        ("folders:fog", {"data": "photos"}, "data= cannot be combined"),
        ("fodlers:fog", {}, "no stream named"),
    ],
)
def test_refusals(stream, given, words, place, tmp_path, monkeypatch):
    monkeypatch.chdir(place)
    with pytest.raises((ConfigurationError, DataError), match=words):
        compare_on_stream("demo", stream=stream, out=tmp_path, methods=["bn"], **given)


def test_folders_of_images_and_label_maps_are_a_stream_too(tmp_path):
    day, night = write_tree(tmp_path / "day"), write_tree(tmp_path / "night", count=4)
    stream = f"folders:{day},{night}"
    data = joined(stream)
    assert isinstance(data, MaskSet)
    assert torch.equal(data.labels[6:], load_masks(night).labels)
    assert data.subset([7, 2]).domain.tolist() == [1, 0]
    some = load_masks(stream, ignore_label=3)
    assert some.known_labels.tolist() == [0, 1, 2]
    options: dict[str, Any] = {"methods": ["bn"], "batch_size": 4, "device": "cpu"}
    found = compare_on_stream(ColourNet(), stream=stream, out=tmp_path / "run", **options)
    assert (found.measure, found.shifts, found.predictions) == ("mIoU", (str(day), str(night)), None)
    each = [overlap(*one) for folder in (day, night) for one in zip(*answered(load_masks(folder)), strict=True)]
    assert found.traces["source"].accuracy == pytest.approx(np.mean(each))
    with pytest.raises(DataError, match="some have a label for each image"):
        joined(f"folders:{day},demo", size=20)
