"""What the sections say of results: hand-made rows in, verdicts, numbers and tables out."""

import pytest

from shiftproof.audits.audit_settings import make_settings
from shiftproof.audits.sections import SECTIONS, section
from shiftproof.audits.sections.base import Scope
from shiftproof.audits.sections.clean import CleanSlice
from shiftproof.audits.sections.corrupted_images import CorruptedSlice
from shiftproof.audits.sections.corruptions import _verdict as corruptions_verdict
from shiftproof.measures import mce
from shiftproof.measures.accuracy import Accuracy
from shiftproof.runs import Result
from shiftproof.shifts import names, parse


def row(right, images=100):
    return {"images": images, "right": right, "confidence": 0.9, "hits": ""}


def results(clean, cells):
    found = [Result(CleanSlice(0, 100), {**row(clean), "classes": {"a": [clean, 100]}}, None, 1.0)]
    for label, right in cells.items():
        found.append(Result(CorruptedSlice(parse(label), 0, 100, 0), row(right), None, 1.0))
    return found


def test_a_fragile_model_is_told_what_breaks_it_and_by_how_much():
    view = section("corruptions").view(results(90, {"fog@1": 80, "fog@5": 20, "contrast@1": 88, "contrast@5": 86}))
    said = " ".join(sentence.text for sentence in view.verdict)
    assert ". Fog costs most; " in said  # contrast costs 3 points and is not blamed
    assert "90.0% on clean images and 68.5% on average under 2 corruptions" in said
    assert "the lowest is 20.0% (" in said
    assert ") under fog, severity 5." in said
    assert view.verdict[0].level == "watch"
    assert view.numbers["accuracy.fog"] == pytest.approx(0.5)
    assert view.numbers["corruption_accuracy"] == pytest.approx((0.5 + 0.87) / 2)
    assert "mce" not in view.numbers  # of two corruptions there is none


def imagenet_c(**changed):
    """Return the results of the fifteen corruptions at five severities on ImageNet, and of one that is not of them."""
    cells = {f"{name}@{severity}": 90 - 10 * severity for name in names("common") for severity in range(1, 6)}
    found = results(90, cells | {"saturate@1": 3})
    rows = [{**(one.row or {}), "imagenet": True} | changed for one in found[1:]]
    return [found[0], *(Result(one.task, row, None, 1.0) for one, row in zip(found[1:], rows, strict=True))]


def test_mce_is_printed_when_it_is_mce():
    view = section("corruptions").view(imagenet_c())
    assert view.numbers["mce"] == pytest.approx(mce({name: [0.2, 0.3, 0.4, 0.5, 0.6] for name in names("common")}))
    assert "mCE" in view.tiles[0].interval


@pytest.mark.parametrize("drop", ["fog@3", "fog"])
def test_mce_of_less_than_imagenet_c_is_not_printed(drop):
    for found in (
        imagenet_c(imagenet=False),
        [one for one in imagenet_c() if not getattr(getattr(one.task, "shift", None), "label", "").startswith(drop)],
    ):
        view = section("corruptions").view(found)
        assert "mce" not in view.numbers
        assert "mCE" not in view.tiles[0].interval


def test_a_robust_model_is_not_called_broken():
    view = section("corruptions").view(results(90, {"fog@5": 89, "contrast@5": 88}))
    said = " ".join(sentence.text for sentence in view.verdict)
    assert "Breaks" not in said
    assert "No corruption costs more than 2.0 points" in said
    assert {sentence.level for sentence in view.verdict} == {"good"}


@pytest.mark.parametrize("right", [92, 90])
def test_a_corruption_that_costs_nothing_is_not_said_to_cost_less_than_nothing(right):
    view = section("corruptions").view(results(90, {"fog@5": right}))
    assert "No corruption costs any accuracy" in view.verdict[0].text
    assert "-" not in view.verdict[0].text
    assert view.verdict[0].level == view.tiles[0].level == ("plain" if right > 90 else "good")


def test_slices_of_one_cell_add_up():
    found = results(90, {"fog@5": 40})
    found.append(Result(CorruptedSlice(parse("fog@5"), 100, 200, 0), row(60), None, 1.0))
    assert section("corruptions").view(found).numbers["accuracy.fog"] == pytest.approx(0.5)


def test_an_overconfident_model_is_told_so():
    view = section("clean").view(results(60, {}))
    assert any("overconfident by 30.0 points" in sentence.text for sentence in view.verdict)
    assert view.numbers["clean_accuracy"] == pytest.approx(0.6)


def test_ten_images_do_not_show_that_a_model_is_overconfident():
    few = {**row(7, 10), "classes": {"a": [7, 10]}}
    view = section("clean").view([Result(CleanSlice(0, 10), few, None, 1.0)])
    assert "overconfident" not in view.verdict[0].text
    assert view.verdict[0].level == "plain"
    assert not view.actions
    assert any("overconfident by 20.0 points" in note for note in view.notes)


@pytest.mark.parametrize("name", SECTIONS)
def test_every_section_has_something_to_say_of_nothing(name):
    view = section(name).view([])
    assert view.title
    assert view.notes


@pytest.mark.parametrize("name", SECTIONS)
def test_plans_cover_every_image_once_per_question(name):
    scope = Scope(make_settings(shifts=["fog"], severities=[1, 5]), images=1234, side=32)
    cells = [cell for cell in section(name).plan(scope) if "start" in cell.parameters()]
    for label, kind in {(cell.parameters().get("shift"), type(cell)) for cell in cells}:
        chosen = [cell for cell in cells if cell.parameters().get("shift") == label and type(cell) is kind]
        slices = sorted((int(str(cell.parameters()["start"])), int(str(cell.parameters()["stop"]))) for cell in chosen)
        covered = [place for start, stop in slices for place in range(start, stop)]
        own = chosen[0].section == name  # of another section's tasks it may need the first images alone
        assert covered == list(range(1234 if own else len(covered)))


def test_of_cells_that_are_equally_low_that_of_the_costliest_corruption_is_named():
    grid = {
        "brightness": {1.0: Accuracy(9, 10), 5.0: Accuracy(0, 10)},
        "fog": {1.0: Accuracy(3, 10), 5.0: Accuracy(0, 10)},
    }
    (said,) = corruptions_verdict(Accuracy(10, 10), grid, ["fog", "brightness"], 0.3, "bad", "images")
    assert "under fog, severity 5" in said.text
