"""Methods of adaptation side by side, and how far statistics move: measured on the demo, resumed, and refused."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

from shiftproof import load_data, load_model, shifts
from shiftproof.adapters import adapt
from shiftproof.audits.audit_settings import make_settings
from shiftproof.audits.sections import section
from shiftproof.audits.sections.base import Scope
from shiftproof.cli.showing_comparisons import _table, show_methods
from shiftproof.comparisons.methods import compare_methods
from shiftproof.errors import ShiftproofError
from shiftproof.measures import ErrorLine, mean_distance
from shiftproof.measures.intervals import difference_interval
from shiftproof.models import collect_statistics, logits, source_statistics
from shiftproof.runs import Result
from shiftproof.subjects import Subject


def test_methods_are_measured_on_the_same_shifted_images(tmp_path):
    found = compare_methods(shifts=["contrast@5", "fog@2"], methods=["bn"], images=64, batch_size=16, out=tmp_path)
    assert found.methods == ("source", "bn")
    model, data = load_model("demo"), load_data("demo").take(64)
    assert isinstance(model, torch.nn.Module)
    adapter = adapt(model, "bn", preset="cifar")
    right = {"source": 0, "bn": 0}
    for batch in data.batches(16):
        assert batch.labels is not None
        images = shifts.parse("contrast@5")(batch.inputs, batch.keys)
        for name, scores in (("source", logits(model, images)), ("bn", adapter(images))):
            right[name] += int(scores.argmax(1).eq(batch.labels).sum())
    for name, hits in right.items():
        assert found.accuracies[name, "contrast@5"].right == hits
    assert found.gain("source") == 0
    gains = [found.accuracies["bn", s].value - found.accuracies["source", s].value for s in ("contrast@5", "fog@2")]
    assert found.gain("bn") == pytest.approx(sum(gains) / 2)
    assert found.costs["source"] == 1
    written = json.loads((tmp_path / "methods.json").read_text())
    assert written["rows"] == found.to_rows()
    assert written["gains"]["bn"] == {"gain": found.gain("bn"), **found.gain_intervals["bn"]._asdict()}


def test_gains_have_intervals_over_images_that_hold_for_all_methods(tmp_path):
    methods = ("bn", "prior", "source")
    found = compare_methods(shifts=["contrast@5", "fog@2"], methods=methods, images=40, batch_size=20, out=tmp_path)
    labels = np.array([row["label"] for row in answers_of(found.predictions)])
    hits = {
        name: (np.array([row[name] for row in answers_of(found.predictions)]) == labels).reshape(2, 40).mean(0)
        for name in ("source", "bn", "prior")
    }
    assert set(found.gain_intervals) == {"bn", "prior"}
    for name, told in found.gain_intervals.items():
        assert told == pytest.approx(difference_interval(hits["source"], hits[name], among=2))
        gain = found.gain(name)
        assert gain is not None
        assert told.low < gain < told.high
    assert not found.costs  # two batches are too few to time


def test_too_few_images_have_no_interval(tmp_path):
    found = compare_methods(shifts=["fog@2"], methods=["bn"], images=8, out=tmp_path)
    assert not found.gain_intervals


def answers_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_without_shifts_methods_adapt_to_the_images_as_they_are(tmp_path):
    data = load_data("demo").take(48)
    found = compare_methods("demo", data, methods=["bn"], batch_size=16, out=tmp_path)
    assert found.shifts == ("as they are",)
    model = load_model("demo")
    assert isinstance(model, torch.nn.Module)
    adapter = adapt(model, "bn")
    own = [int(label) for batch in data.take().batches(16) for label in adapter(batch.inputs).argmax(1)]
    rows = answers_of(found.predictions)
    assert [row["bn"] for row in rows] == [data.classes[label] for label in own]
    assert sum(row["bn"] == row["label"] for row in rows) == found.accuracies["bn", "as they are"].right
    same = sum(row["bn"] == row["source"] for row in rows) / len(rows)
    assert found.agreements["bn", "as they are"] == pytest.approx(same)
    assert found.agreements["source", "as they are"] == 1


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Write a flat folder of unlabelled pictures under strong noise, and return it with their true labels."""
    folder = tmp_path_factory.mktemp("photos")
    data, shift = load_data("demo").take(40), shifts.parse("gaussian_noise@5")
    batch = next(data.batches(40))
    assert batch.labels is not None
    for number, image in enumerate(shift(batch.inputs, batch.keys)):
        Image.fromarray((image * 255).round().byte().permute(1, 2, 0).numpy()).save(folder / f"{number:02}.png")
    return folder, {f"{number:02}.png": data.classes[label] for number, label in enumerate(batch.labels.tolist())}


def test_an_unlabelled_folder_is_adapted_to_with_its_answers_written(photos, tmp_path):
    folder, truth = photos
    found = compare_methods("demo", folder, methods=["bn", "tent"], batch_size=20, out=tmp_path)
    assert not found.accuracies
    assert found.gain("bn") is None
    assert found.total("tent").updates == 2
    rows = answers_of(found.predictions)
    assert {row["image"] for row in rows} == truth.keys()
    assert {row["label"] for row in rows} == {""}
    right = {name: sum(row[name] == truth[row["image"]] for row in rows) for name in ("source", "bn")}
    assert right["bn"] > right["source"]
    assert all(0 < float(row["bn confidence"]) <= 1 for row in rows)
    written = json.loads((tmp_path / "methods.json").read_text())["rows"]
    assert "accuracy" not in written[0]
    assert written[0]["agreement"] == 1


def test_accuracy_is_estimated_before_and_after(photos, tmp_path):
    source = load_data("demo-source").take(12)
    given: dict[str, Any] = {"methods": ["bn"], "source": source, "batch_size": 20, "out": tmp_path}
    found = compare_methods("demo", photos[0], **given)
    before, after = (found.estimates[name, "as they are"] for name in ("source", "bn"))
    assert 0 <= before.low <= before.accuracy <= before.high <= 1
    assert before != after
    assert compare_methods("demo", photos[0], **given).estimates == found.estimates  # resumed
    show_methods(found, {})


def test_many_methods_are_rows_of_the_table_on_a_narrow_terminal():
    methods = [f"method{number}" for number in range(8)]
    rows = {name: [f"{place}.0" for place in range(8)] for name in ("fog@3", "points gained")}

    def shown(width, names):
        console = Console(width=width, record=True, file=io.StringIO())
        cut = {title: cells[: len(names)] for title, cells in rows.items()}
        console.print(_table("Accuracy, %", names, cut, console))
        return [line.split() for line in console.export_text().splitlines()]

    assert shown(120, methods)[2] == ["fog@3", *rows["fog@3"]]
    assert shown(40, methods)[1] == ["method", "fog@3", "points", "gained"]
    assert shown(40, methods)[9] == ["method7", "7.0", "7.0"]
    assert shown(20, methods[:2])[1][0] == "shift"  # methods are not more than what is said of each


def test_options_of_shifts_are_part_of_their_names_in_the_table():
    names = ["veil[depth=0.3]", "veil[depth=0.9]"]
    console = Console(width=45, record=True, file=io.StringIO())
    for methods in (["bn"], [f"method{number}" for number in range(8)]):
        rows = {name: ["50.0"] * len(methods) for name in names}
        console.print(_table("Accuracy, %", methods, rows, console))
        told = console.export_text()
        assert all(name in told for name in names)


def test_a_second_run_measures_only_what_is_new(tmp_path):
    given = {"shifts": ["contrast@5"], "images": 16, "out": tmp_path}
    heard = []
    compare_methods(methods=["bn"], **given)
    found = compare_methods(
        methods=["bn", "lame"], **given, on_progress=lambda done, total, result: heard.append(result)
    )
    assert [result.task.parameters()["method"] for result in heard if result] == ["lame"]
    assert ("bn", "contrast@5") in found.accuracies


def test_options_reach_the_methods_that_have_them(tmp_path):
    given: dict[str, Any] = {"shifts": ["contrast@5"], "methods": ["bn", "lame"], "images": 16, "batch_size": 4}
    sources = compare_methods(**given, out=tmp_path / "a", options={"prior": 1e12})
    assert sources.accuracies["bn", "contrast@5"] == sources.accuracies["source", "contrast@5"]
    assert "lame" not in sources.reasons


def test_the_released_code_of_a_method_is_an_option_of_comparisons(tmp_path):
    given: dict[str, Any] = {"shifts": ["contrast@5"], "methods": ["bn"], "images": 16, "batch_size": 4}
    compare_methods(**given, out=tmp_path / "a", options={"variant": "release"})
    compare_methods(**given, out=tmp_path / "b", options={"variant": "paper"})
    shift, data = shifts.parse("contrast@5"), load_data("demo").take(16, seed=0)
    told = {}
    for variant in ("paper", "release"):
        adapted = adapt(load_model("demo"), "bn", preset="cifar", variant=variant)
        told[variant] = [adapted(shift(each.inputs, each.keys, seed=0)) for each in data.batches(4)]
    confidences = {
        name: [
            float(row["bn confidence"])
            for row in csv.DictReader((tmp_path / name / "predictions.csv").read_text().splitlines())
        ]
        for name in ("a", "b")
    }
    for name, variant in (("a", "release"), ("b", "paper")):
        expected = torch.cat(told[variant]).softmax(1).amax(1)
        assert sorted(confidences[name]) == pytest.approx(sorted(expected.tolist()), abs=1e-3)
    assert confidences["a"] != confidences["b"]


def test_a_model_that_cannot_adapt_is_told_why_and_the_source_is_still_measured(tmp_path):
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 10))
    found = compare_methods(model, shifts=["fog@1"], methods=["bn", "lame"], images=8, out=tmp_path)
    assert "no normalisation layers" in found.reasons["bn"]
    assert set(found.accuracies) == {("source", "fog@1"), ("lame", "fog@1")}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"source": load_data("demo").take(4).subset([0, 0])}, "All source images have the same label"),
        ({"options": {"priro": 1}}, "prior"),
        ({"options": {"variant": "released"}}, "variant"),
        ({"options": {"variant": "release"}, "methods": ["tent"]}, "variant"),
        ({"shifts": ["fgo@3"]}, "fog"),
        ({"shifts": ["fog@3"], "methods": ["tant"]}, "tent"),
        ({"shifts": ["fog@3"], "batch_size": 0}, "batch size"),
    ],
)
def test_refusals(given, words, tmp_path):
    with pytest.raises(ShiftproofError, match=words):
        compare_methods(images=4, out=tmp_path, **given)


@pytest.fixture(scope="module")
def subject():
    return Subject.of(load_model("demo"), load_data("demo").take(24), device="cpu", batch_size=64)


@pytest.fixture(scope="module")
def results(subject):
    settings = make_settings(shifts=["contrast", "brightness"], severities=[1, 5], images=24, methods=["bn"])
    one = section("adaptation")
    cells = [cell for cell in one.plan(Scope(settings, 24, 32)) if cell.kind != "adaptation.prior"]
    return [Result(cell, cell.measure(subject), None, 1.0) for cell in cells]


def test_distances_and_predictions_are_those_of_the_measures(subject, results):
    (row,) = [result.row for result in results if result.task.kind == "adaptation.statistics"]
    batch = next(iter(subject.data.batches(24)))
    source = source_statistics(subject.model)

    def distance(label):
        images = shifts.parse(label)(batch.inputs, batch.keys)
        return mean_distance(source, collect_statistics(subject.model, [images]))

    assert row["distances"]["contrast@5"] == pytest.approx(distance("contrast@5"))
    held = [f"{name}@{severity}" for name in shifts.names("holdout") for severity in (1, 5)]
    errors = []
    for label in held:
        answers = logits(subject.model, shifts.parse(label)(batch.inputs, batch.keys)).argmax(1)
        errors.append(1 - float((answers == batch.labels).double().mean()))
    line = ErrorLine.fit([distance(label) for label in held], errors)
    expected = min(1, max(0, float(line.predict(distance("contrast@5")))))
    assert row["predicted"]["contrast@5"] == pytest.approx(expected)


def test_the_view_tells_what_distances_predict_and_draws_the_map(results):
    view = section("adaptation").view(results)
    titles = [block.title for block in view.blocks]
    assert any("predicts the error to within" in title for title in titles)
    assert any("look most alike" in title for title in titles)
    assert 0 <= view.numbers["distance_prediction_error"] < 1


def test_a_model_without_statistics_says_so():
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 10))
    subject = Subject.of(model, load_data("demo").take(8), device="cpu", batch_size=64)
    settings = make_settings(shifts=["fog"], severities=[5], images=8)
    one = section("adaptation")
    (cell,) = [cell for cell in one.plan(Scope(settings, 8, 32)) if cell.kind == "adaptation.statistics"]
    assert cell.measure(subject)["applies"] is False
