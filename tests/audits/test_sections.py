"""What the sections say of results: hand-made rows in, verdicts, numbers and tables out."""

import pytest

from shiftproof.audits.audit_settings import make_settings
from shiftproof.audits.sections import SECTIONS, section
from shiftproof.audits.sections.base import Scope
from shiftproof.audits.sections.clean import CleanSlice
from shiftproof.audits.sections.corruptions import CorruptedSlice
from shiftproof.measures import mce
from shiftproof.runs import Result
from shiftproof.shifts import parse


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
    assert "Breaks first under fog:" in said  # contrast costs 3 points and is not blamed
    assert "from 90.0% clean to 20.0%" in said
    assert "(fog, severity 5)" in said
    assert view.verdict[0].level == "watch"
    assert view.numbers["accuracy.fog"] == pytest.approx(0.5)
    assert view.numbers["corruption_accuracy"] == pytest.approx((0.5 + 0.87) / 2)
    assert view.numbers["mce"] == pytest.approx(mce({"fog": [0.2, 0.8], "contrast": [0.12, 0.14]}))


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


@pytest.mark.parametrize("name", SECTIONS)
def test_every_section_has_something_to_say_of_nothing(name):
    view = section(name).view([])
    assert view.title
    assert view.notes


@pytest.mark.parametrize("name", SECTIONS)
def test_plans_cover_every_image_once_per_question(name):
    scope = Scope(make_settings(shifts=["fog"], severities=[1, 5]), images=1234, side=32)
    cells = [cell for cell in section(name).plan(scope) if "start" in cell.parameters()]
    for label in {cell.parameters().get("shift") for cell in cells}:
        chosen = [cell for cell in cells if cell.parameters().get("shift") == label]
        slices = sorted((int(str(cell.parameters()["start"])), int(str(cell.parameters()["stop"]))) for cell in chosen)
        covered = [place for start, stop in slices for place in range(start, stop)]
        assert covered == list(range(1234))
