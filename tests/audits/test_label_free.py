"""The section on estimates without labels: what it plans, measures and says."""

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from shiftproof import audit, load_data, load_model
from shiftproof.audits.audit_settings import make_settings
from shiftproof.audits.sections import section
from shiftproof.audits.sections.base import Scope
from shiftproof.audits.sections.half_sets import SIZES, SourceReference, SourceSet, TargetSet
from shiftproof.models import BlackBox
from shiftproof.runs import Result
from shiftproof.shifts import ImageShift, corruption
from shiftproof.subjects import Subject

REFERENCE = {"accuracy": 0.9, "confidence": 0.95, "confidence_threshold": 0.5, "entropy_threshold": None,
             "temperature": 1.2}  # fmt: skip
COMMON: dict[str, Any] = {"images": 100, "viewed": 30, "views": 3, "seed": 0}


@dataclass(frozen=True)
class Named(ImageShift):
    """A shift for tables."""

    def draw(self, rng, shape):
        return None

    def transform(self, images, drawn):
        return images


def named(label):
    name, _, severity = label.partition("@")
    return None if label == "clean" else Named(name, float(severity))


def results(truth, wrong=0.0):
    """Rows in which accuracy is 2 c - 1 for a mean confidence c, and a target that is off by `wrong`."""
    reference: Any = {"source": REFERENCE, "copies": []}
    made = [Result(SourceReference(None, **COMMON), reference, None, 1.0)]

    def add(half, label, accuracy, off=0.0, **more):
        known: Any = {"accuracy": accuracy, "statistics": {"confidence": (accuracy + off + 1) / 2, "invariance": 0.8}}
        if half == "source":
            row: Any = {"accuracy": accuracy, "copies": [{**known, "shift": label, "inputs": 100}]}
            made.append(Result(SourceSet(named(label), **COMMON), row, None, 1.0))
            return
        row = {**known, "profile": None, "entropy_difference": 0.02, "sureness": None, **more}
        made.append(Result(TargetSet(named(label), **COMMON), row, None, 1.0))

    add("source", "clean", 0.9)
    for kind in range(6):
        add("source", f"kind{kind}@2", 0.7 - 0.01 * kind)
        add("source", f"kind{kind}@5", 0.2 + 0.02 * kind)
    add("target", "clean", 0.9)
    for label, accuracy in truth.items():
        add("target", label, accuracy, wrong, auroc_invariance=0.6, auroc_confidence=0.8)
    return made


def test_a_model_that_can_be_followed_is_told_so():
    view = section("label_free").view(results({"fog@1": 0.8, "fog@5": 0.4, "contrast@5": 0.3}))
    said = view.verdict[0].text
    assert "off by 0.0 points on average on shifts like these (0.0 to 0.0, over 3 sets)" in said
    assert (
        "On families of shifts left out of the calibration, each of 6 in turn, it is off by 0.0 points on average"
        in said
    )
    assert view.numbers["label_free_error_unseen"] == pytest.approx(0, abs=1e-9)
    assert view.verdict[0].level == "good"
    assert view.numbers["label_free_error"] == pytest.approx(0, abs=1e-9)
    assert view.numbers["label_free_error.calibrated_confidence"] == pytest.approx(0, abs=1e-9)
    assert view.numbers["label_free_rank_correlation"] == pytest.approx(1.0)
    assert view.numbers["ood_auroc_invariance"] == pytest.approx(0.6)
    assert view.numbers["label_free_error.average_confidence"] == pytest.approx(np.mean([0.1, 0.3, 0.35]))
    figure: Any = view.blocks[0]
    json.dumps(figure.plot, allow_nan=False)


def test_a_model_that_cannot_is_told_so_too():
    view = section("label_free").view(results({"fog@1": 0.6, "fog@5": 0.3}, wrong=0.2))
    assert (
        "off by 20.0 points on average on shifts like these (over 2 sets)" in view.verdict[0].text
    )  # one kind of shift: no span
    assert view.verdict[0].level == "bad"
    assert view.actions[0].title == "Label a sample of its inputs"
    assert "Labels of 30 inputs" in view.actions[0].why  # 1.96 sqrt(0.25 / 30) is 18 points


def test_the_worst_optimism_is_told_and_counted_against_the_alarm():
    truth = {f"kind{kind}@{severity}": 0.5 for kind in "abcde" for severity in (1, 5)}
    found = results(truth)
    off = {"kinda@5": 0.4, "kindb@5": 0.02, "kindc@1": -0.25}
    for one in found:
        label: Any = one.task.parameters().get("shift")
        if isinstance(one.task, TargetSet) and label in off:
            row: Any = one.row
            row["statistics"]["confidence"] += off[label] / 2
    view = section("label_free").view(found)
    said = view.verdict[0].text
    assert "off by 6.7 points on average" in said
    assert "The most optimistic is 40.0 points too high (kinda at severity 5, true accuracy 50.0%)" in said
    assert "nine in ten estimates are within 26.5 points" in said
    assert view.numbers["label_free_error_90"] == pytest.approx(np.quantile([0] * 7 + [0.4, 0.02, 0.25], 0.9))
    assert view.numbers["label_free_optimism"] == pytest.approx(0.4)
    assert "drop=0.27" in view.actions[0].code  # nine in ten are within 26.5 points


def test_the_alarm_is_tried_on_the_sets_that_were_tested():
    found = results({"fog@1": 0.85, "fog@5": 0.4, "contrast@3": 0.6, "contrast@5": 0.3})
    sure = {"fog@1": 0.94, "fog@5": 0.5, "contrast@3": 0.945, "contrast@5": 0.6}
    for one in found:
        if isinstance(one.task, TargetSet):
            row: Any = one.row
            row["sureness"] = sure.get(str(one.task.parameters()["shift"]), 0.95)
    (action,) = section("label_free").view(found).actions
    assert action.title == "Monitor it while it serves"
    assert "would rise for 2 of 3 whose accuracy fell by more, and for 0 of 1 whose accuracy did not" in action.why
    (alone,) = section("label_free").view([one for one in found if "fog@1" not in str(one.task.parameters())]).actions
    assert alone.why.endswith("would rise for 2 of 3 whose accuracy fell by more.")


def test_an_alarm_that_would_have_missed_every_fall_is_not_advised():
    found = results({"fog@5": 0.4, "contrast@3": 0.6, "contrast@5": 0.3})
    for one in found:
        if isinstance(one.task, TargetSet):
            row: Any = one.row
            row["sureness"] = 0.95
    (action,) = section("label_free").view(found).actions
    assert action.title == "Label a sample of its inputs"
    assert "On the sets tested here an alarm of accuracy would have risen for 0 of 3 whose accuracy fell" in action.why
    assert "Labels of 390 inputs drawn at random where it serves give its accuracy to within 5 points" in action.why


def test_of_fewer_than_ten_sets_the_largest_error_is_told():
    found = results({"fog@1": 0.8, "contrast@1": 0.7, "contrast@5": 0.3})
    for one in found:
        if isinstance(one.task, TargetSet) and one.task.parameters()["shift"] == "contrast@5":
            row: Any = one.row
            row["statistics"]["confidence"] += 0.1
    view = section("label_free").view(found)
    assert "all 3 estimates are within 20.0 points. The most optimistic is 20.0 points too high" in view.verdict[0].text
    assert view.numbers["label_free_error_90"] == pytest.approx(0.2)


def test_one_estimate_is_told_as_one():
    view = section("label_free").view(results({"contrast@5": 0.3}))
    assert "the one estimate is within" in view.verdict[0].text


def test_families_that_are_hard_to_follow_ask_for_sets_of_ones_own():
    found = results({"fog@1": 0.8, "contrast@5": 0.4})
    for one in found:
        if isinstance(one.task, SourceSet) and str(one.task.parameters()["shift"]).startswith("kind0"):
            row: Any = one.row
            row["copies"][0]["statistics"]["confidence"] += 0.35
    view = section("label_free").view(found)
    assert view.numbers["label_free_error_unseen"] > 0.05
    assert [action.title for action in view.actions][-1] == "Calibrate the estimate on conditions of your own"


def test_severities_of_one_kind_do_not_count_apart():
    def reach(truth):
        found = results(truth)
        for one in found:
            label = str(one.task.parameters().get("shift"))
            if isinstance(one.task, TargetSet) and label.startswith("bad"):
                row: Any = one.row
                row["statistics"]["confidence"] += 0.1
        return section("label_free").view(found).tiles[0].interval

    few = reach({"bad@1": 0.5, "good@1": 0.5, "fine@1": 0.5})
    many = reach({f"{kind}@{level}": 0.5 for kind in ("bad", "good", "fine") for level in (1, 2, 3, 4, 5)})
    assert few.split(" over")[0] == many.split(" over")[0]  # fifteen sets of three kinds are three kinds


def test_lines_are_never_drawn_through_tested_shifts():
    for names in (["common"], ["bar"], ["holdout", "common", "bar"]):
        scope = Scope(make_settings(shifts=names), images=1000, side=32)
        cells = list(section("label_free").plan(scope))
        kinds = {
            half: {cell.shift and cell.shift.name for cell in cells if type(cell) is kind}
            for half, kind in (("source", SourceSet), ("target", TargetSet))
        }
        assert kinds["source"] & kinds["target"] == {None}


def test_few_images_are_not_enough():
    scope = Scope(make_settings(), images=99, side=32)
    assert not list(section("label_free").plan(scope))
    full = Scope(make_settings(budget="full"), images=100_000, side=32)
    cells: list[Any] = list(section("label_free").plan(full))
    assert {cell.images for cell in cells} == {SIZES["full"].images}


def test_a_black_box_is_measured_without_its_statistics():
    model = load_model("demo")
    data = load_data("demo").take(100)
    subject = Subject.of(BlackBox(lambda x: model(x).detach().numpy()), data, device="cpu", batch_size=64)
    row: Any = TargetSet(corruption("fog", 5), images=50, viewed=5, views=1, seed=0).measure(subject)
    assert "drift" not in row["statistics"]
    assert 0 < row["accuracy"] < 1
    json.dumps(row, allow_nan=False)


def test_an_audit_has_the_section(tmp_path):
    result = audit("demo", "demo", out=tmp_path, sections=["label_free"], images=100, shifts=["contrast"])
    assert not result.failed
    assert result.numbers["label_free_error"] < 0.2
    assert all(math.isfinite(value) for value in result.numbers.values())
    assert "Label-free accuracy estimation" in result.report.read_text()
