"""Audits beside each other: the same is equal, a worse copy is worse, and what cannot be paired is refused."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import shiftproof
from shiftproof.audits.audit_record import AuditRecord
from shiftproof.audits.sections import section
from shiftproof.cli.showing_comparisons import show_comparison
from shiftproof.comparisons import compare, side_by_side
from shiftproof.comparisons.audit_comparison import Difference
from shiftproof.comparisons.audit_views import verdict, words
from shiftproof.errors import ConfigurationError, DataError, RunError
from shiftproof.measures.intervals import difference_interval
from shiftproof.runs import Store

OPTIONS: dict[str, Any] = {
    "images": 200,
    "shifts": ["fog", "contrast"],
    "severities": [4],
    "sections": ["clean", "corruptions"],
}


def noisy_copy(strength):
    """Return the demo model with noise added to its weights."""
    model = shiftproof.load_model("demo")
    assert isinstance(model, nn.Module)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.add_(torch.randn(weight.shape, generator=generator), alpha=strength * float(weight.std()))
    return model


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    audited: dict[str, tuple[Any, dict[str, Any]]] = {
        "first": ("demo", OPTIONS),
        "again": ("demo", OPTIONS),
        "noisy": (noisy_copy(0.2), OPTIONS),
    }
    audited["fewer"] = "demo", {**OPTIONS, "shifts": ["fog"], "sections": ["corruptions"]}
    for name, (model, options) in audited.items():
        shiftproof.audit(model, "demo", out=folder / name, **options)
    return folder


@pytest.fixture(scope="module")
def compared(runs):
    return compare(runs / "first", runs / "again", runs / "noisy", out=runs / "compared")


def test_two_audits_of_the_same_thing_are_equal(compared):
    assert {one.verdict for one in compared.differences["again"]} == {"equal"}
    assert {one.name for one in compared.differences["again"]} >= {
        "clean_accuracy",
        "accuracy.fog",
        "corruption_accuracy",
    }
    for one in compared.differences["again"]:
        if one.same:  # 200 images that agree say little of others
            assert one.low < -0.01 < 0.01 < one.high


def test_intervals_of_a_family_hold_together(compared, runs):
    found = {one.name: one for one in compared.differences["noisy"]}
    values = []
    for name in ("first", "noisy"):
        with Store(runs / name) as store:
            values.append(section("corruptions").per_image(AuditRecord.of(store).results["corruptions"]))
    one, other = (each["accuracy.fog"].values for each in values)
    assert (found["accuracy.fog"].low, found["accuracy.fog"].high) == difference_interval(one, other, among=2)
    one, other = (each["corruption_accuracy"].values for each in values)
    assert (found["corruption_accuracy"].low, found["corruption_accuracy"].high) == difference_interval(one, other)


def test_a_copy_with_noise_in_its_weights_is_worse_beyond_chance(compared):
    found = {one.name: one for one in compared.differences["noisy"]}
    for name in ("clean_accuracy", "corruption_accuracy"):
        assert found[name].verdict == "worse"
        assert found[name].low <= found[name].value <= found[name].high < 0
    assert not compared.with_verdict("noisy", "better")


def test_what_images_add_comes_to_the_numbers_of_the_audit(runs):
    with Store(runs / "noisy") as store:
        record = AuditRecord.of(store)
    for name in ("clean", "corruptions"):
        view, per_image = section(name).view(record.results[name]), section(name).per_image(record.results[name])
        assert per_image
        for number, values in per_image.items():
            assert np.mean(values.values) == pytest.approx(view.numbers[number]), number
            assert values.low <= values.values.min() <= values.values.max() <= values.high, number


def test_every_section_with_images_tells_what_they_add(tmp_path):
    """The same for sections that need more than predictions."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)).eval()
    images = np.random.default_rng(0).integers(0, 256, (20, 8, 8, 3), dtype=np.uint8)
    options: dict[str, Any] = {"shifts": ["contrast"], "severities": [5], "methods": ["bn"]}
    sections = ["spectrum", "certified", "adaptation"]
    shiftproof.audit(model, (images, [0, 1] * 10), out=tmp_path, sections=sections, **options)
    with Store(tmp_path) as store:
        record = AuditRecord.of(store)
    for name, number in (("spectrum", "spectrum.low"), ("certified", "acr"), ("adaptation", "gain.bn")):
        found = section(name).per_image(record.results[name])[number]
        assert found.low <= found.values.min() <= found.values.max() <= found.high
        assert np.mean(found.values) == pytest.approx(section(name).view(record.results[name]).numbers[number])


def test_files_say_the_same_and_the_report_needs_no_network(compared, capsys):
    content = json.loads((compared.folder / "comparison.json").read_text())
    assert content["runs"] == ["first", "again", "noisy"]
    assert content["differences"]["noisy"] == [one.to_row() for one in compared.differences["noisy"]]
    page = compared.report.read_text()
    assert "noisy is worse than first" in page
    assert "again is equal to first" in page
    assert "http-equiv" in page
    show_comparison(compared, {})
    assert "noisy is worse than first" in capsys.readouterr().out


def test_several_runs_stand_in_one_table(compared, capsys):
    assert len(compared.labels) > 2
    made = dict(side_by_side.rows(compared))
    for label in compared.labels[1:]:
        place = compared.labels.index(label)
        for one in compared.differences[label]:
            sign = {"better": " +", "worse": " -"}.get(one.verdict, "")
            assert made[one.name][place] == f"{one.other:.3f}{sign}"
            assert made[one.name][0] == f"{one.one:.3f}"
    assert "All runs side by side" in compared.report.read_text()
    show_comparison(compared, {})
    shown = capsys.readouterr().out
    assert shown.count("clean_accuracy") == 1  # one table, not one per run
    assert side_by_side.NOTE in shown


def test_audits_are_compared_on_what_they_share(runs):
    found = compare(runs / "first", runs / "fewer", out=runs / "partly")
    assert {one.verdict for one in found.differences["fewer"]} == {"equal"}
    names = {one.name for one in found.differences["fewer"]}
    assert "accuracy.fog" in names
    assert "accuracy.contrast" not in names
    assert any("left out" in note for note in found.notes)


def test_folders_of_one_name_are_told_apart(runs, tmp_path):
    (tmp_path / "first").symlink_to(runs / "again")
    found = compare(runs / "first", tmp_path / "first", out=tmp_path / "out")
    assert len(set(found.labels)) == 2


def test_audits_of_other_images_are_refused(runs, tmp_path):
    shiftproof.audit("demo", "demo", out=tmp_path / "other", **{**OPTIONS, "images": 40, "sections": ["clean"]})
    with pytest.raises(DataError, match="different images of the same data"):
        compare(runs / "first", tmp_path / "other", out=tmp_path / "out")
    pixels = np.random.default_rng(0).integers(0, 256, (8, 32, 32, 3), dtype=np.uint8)
    shiftproof.audit("demo", (pixels, [0, 1] * 4), out=tmp_path / "data", **{**OPTIONS, "sections": ["clean"]})
    with pytest.raises(DataError, match="different data"):
        compare(runs / "first", tmp_path / "data", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_too_few_or_no_audits_are_refused(runs, tmp_path):
    with pytest.raises(ConfigurationError, match="two audits"):
        compare(runs / "first")
    with pytest.raises(RunError, match="no run in"):
        compare(runs / "first", tmp_path)
    shiftproof.audit("demo", "demo", out=tmp_path / "clean", **{**OPTIONS, "sections": ["clean"]})
    with pytest.raises(ConfigurationError, match="nothing in common"):
        compare(runs / "fewer", tmp_path / "clean", out=tmp_path / "out")


@pytest.mark.parametrize(
    ("better", "interval", "said"),
    [
        ("higher", (0.01, 0.1), "better"),
        ("lower", (0.01, 0.1), "worse"),
        (None, (0.01, 0.1), "changed"),
        ("higher", (-0.01, 0.1), "unclear"),
        ("higher", (None, None), "no interval"),
        ("lower", (5.8e-18, 0.111), "unclear"),  # a residue of rounding is no difference
        ("higher", (-0.111, -5.8e-18), "unclear"),
        ("higher", (-0.02, 0.02, True), "equal"),
    ],
)
def test_verdicts_follow_from_the_interval_and_the_better_way(better, interval, said):
    assert Difference("x", "s", better, 0.5, 0.55, *interval).verdict == said


def test_a_model_is_not_worse_because_its_clean_accuracy_rose(tmp_path):
    """It loses more to corruption then, of more: as in an audit of two, where no accuracy fell."""
    images = np.zeros((80, 8, 8, 3), dtype=np.uint8)
    images[:, 0, 0] = np.arange(80)[:, None] * 3
    labels = np.arange(80) % 2

    class Table(nn.Module):
        """Knows some images by their first pixel, and nothing once an image has changed."""

        def __init__(self, known):
            super().__init__()
            self.known = torch.tensor([place % 2 if place in known else 0 for place in range(256)])

        def forward(self, images):
            levels = (images[:, 0, 0, 0] * 255 / 3).round().long().clamp(0, 255)
            changed = images.flatten(2).mean((1, 2)) > 0.05
            return nn.functional.one_hot(torch.where(changed, 0, self.known[levels]), 2).float()

    for name, known in (("one", range(20)), ("other", range(80))):
        options: dict[str, Any] = {"shifts": ["brightness"], "severities": [5], "sections": ["clean", "corruptions"]}
        shiftproof.audit(Table(known), (images, labels), out=tmp_path / name, **options)
    found = compare(tmp_path / "one", tmp_path / "other", out=tmp_path / "compared")
    numbers = {one.name: one for one in found.differences["other"]}
    assert numbers["clean_accuracy"].verdict == "better"
    assert numbers["corruption_accuracy"].verdict == "equal"
    assert (numbers["corruption_loss"].low or 0) > 0  # more is lost, beyond chance
    assert numbers["corruption_loss"].verdict == "changed"
    assert not found.with_verdict("other", "worse")
    assert "other is better than one" in found.report.read_text()


def test_what_changed_without_a_better_way_is_told(compared):
    changed = Difference("corruption_loss", "corruptions", None, 0.1, 0.2, 0.05, 0.15)
    told = verdict(replace(compared, differences={"noisy": (changed,)}), "noisy").text
    assert told.endswith("beyond chance. Changed: corruption loss +10.0 points (+5.0 to +15.0 points).")
    assert "worse from first to noisy" in told


def test_names_of_numbers_as_words():
    assert words("accuracy.jpeg_compression") == "accuracy under JPEG compression"
    assert words("mce") == "mCE"
