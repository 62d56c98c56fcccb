"""The section `worst_case`: what it plans, measures and says."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from shiftproof.audits.audit_settings import make_settings
from shiftproof.audits.sections import section
from shiftproof.audits.sections.base import Scope
from shiftproof.audits.sections.worst_case import SIZES, EvolvedTuples, RandomTuples
from shiftproof.audits.sections.worst_case_figures import SIMILARITY, Found, density, rare_accuracy
from shiftproof.models import BlackBox
from shiftproof.reports.view import Figure, Gallery, Table
from shiftproof.runs import Result
from shiftproof.searchers import make_space, search
from shiftproof.searchers.uniform import draw_tuples
from shiftproof.subjects import Subject
from tests.searchers.models import Greenness, pictures

COMMON = make_space("cifar"), 5, 40


def subject(model):
    return Subject.of(model, pictures(40), device="cpu", batch_size=16)


def random_cell(first, last):
    return RandomTuples(*COMMON, first, last, seed=0)


def evolution_cell(run=0, budget=20):
    return EvolvedTuples(*COMMON, budget, run, seed=0)


def measured(cells, model):
    return [Result(cell, cell.measure(subject(model)), None, 1.0) for cell in cells]


@pytest.mark.parametrize("budget", SIZES)
def test_the_plan_has_as_many_tuples_and_images_as_the_budget_says(budget):
    for images in (30, 100_000):
        cells: list[Any] = list(section("worst_case").plan(Scope(make_settings(budget=budget), images, 32)))
        drawn = [number for cell in cells if isinstance(cell, RandomTuples) for number in range(cell.first, cell.last)]
        assert drawn == list(range(SIZES[budget].random))
        assert sum(isinstance(cell, EvolvedTuples) for cell in cells) == SIZES[budget].runs
        assert {cell.images for cell in cells} == {min(images, SIZES[budget].images)}


def test_random_tuples_are_those_of_a_random_search():
    rows = [result.row for result in measured([random_cell(0, 6), random_cell(6, 9)], Greenness())]
    found = [value for row in rows for value in row["trials"]["fitness"]]
    data = pictures(40)
    whole = search(Greenness(), data, searcher="random", budget=9)
    assert found == whole.trace.fitness().tolist()
    assert rows[0]["clean"] == whole.clean


def test_a_black_box_is_searched_like_a_network():
    cells = [random_cell(0, 4), evolution_cell()]
    box = BlackBox(Greenness().forward, name="box")
    assert [result.row for result in measured(cells, box)] == [result.row for result in measured(cells, Greenness())]


def test_what_is_said_follows_from_what_was_measured():
    results = measured([random_cell(0, 10), random_cell(10, 20), evolution_cell(0), evolution_cell(1)], Greenness())
    view = section("worst_case").view(results)
    trials = [
        (fitness, similarity)
        for result in results
        for fitness, similarity in zip(*(result.row["trials"][name] for name in ("fitness", "similarity")), strict=True)
    ]
    kept = min(fitness for fitness, similarity in trials if similarity >= SIMILARITY)
    assert view.numbers["worst_case_accuracy"] == kept
    assert view.numbers["worst_case_unconstrained_accuracy"] == min(trials)[0]
    assert view.numbers["worst_case_loss"] == pytest.approx(results[0].row["clean"] - kept)
    assert "worst_case_random_quantile" not in view.numbers  # 20 tuples do not show what one in a thousand does
    assert any("20 random tuples are too few" in note for note in view.notes)
    assert f"{100 * kept:.1f}%" in view.verdict[0].text
    assert view.tiles[0].value == f"{100 * kept:.1f}%"
    density, progress, worst, gallery = view.blocks
    assert isinstance(density, Figure)
    assert sum(int(row[2] or 0) for row in density.table.rows) == 20
    assert isinstance(progress, Figure)
    assert [curve["name"] for curve in progress.plot["data"]] == ["random", "evolution, run 1", "evolution, run 2"]
    assert isinstance(worst, Table)
    assert worst.rows[0][1] == min(trials)[0]
    assert isinstance(gallery, Gallery)
    assert {picture.caption for picture in gallery.pictures} == {"before", "after"}


def test_a_model_that_nothing_hurts_is_told_so():
    class First(torch.nn.Module):
        def forward(self, images):
            return torch.tensor([[1.0, 0.0]]).expand(len(images), 2)

    view = section("worst_case").view(measured([random_cell(0, 5), evolution_cell()], First()))
    assert view.verdict[0].level == "good"
    assert "No chain of 5 colour edits that was tried costs any accuracy" in view.verdict[0].text


def test_a_worst_case_is_never_better_than_clean():
    results = measured([random_cell(0, 5), evolution_cell()], Greenness())
    raised = [replace(result, row={**(result.row or {}), "clean": 0.01}) for result in results]
    view = section("worst_case").view(raised)
    assert view.numbers["worst_case_accuracy"] == view.numbers["worst_case_unconstrained_accuracy"] == 0.01
    assert view.numbers["worst_case_loss"] == 0
    assert "costs any accuracy: 1.0%" in view.verdict[0].text


def test_a_thousand_random_tuples_show_the_rarest():
    random = [Found("grayscale", place / 1000, 1.0) for place in range(1000)]
    assert rare_accuracy(random) == pytest.approx(0.000999)
    assert rare_accuracy(random[1:]) is None
    marks = [[curve["name"] for curve in density(some, random[0], 1.0).plot["data"]] for some in (random, random[1:])]
    assert marks[0][1:] == ["lowest 0.1%", *marks[1][1:]] == ["lowest 0.1%", "worst found", "clean"]


def test_what_runs_beside_random_search_does_not_matter():
    only = section("worst_case").view(measured([random_cell(0, 5)], Greenness()))
    assert only.numbers["worst_case_accuracy"] <= 1
    alone = section("worst_case").view(measured([evolution_cell()], Greenness()))
    assert "worst_case_random_quantile" not in alone.numbers


def test_space_and_tuples_are_the_searchers_own():
    space = make_space("cifar")
    (result,) = measured([random_cell(0, 3)], Greenness())
    assert result.row["trials"]["words"] == [space.words(genes) for genes in draw_tuples(space, 5, range(3))]


@pytest.mark.parametrize("norm", [torch.nn.BatchNorm2d(3), torch.nn.GroupNorm(1, 3)])
def test_networks_with_batch_norm_are_advised_to_train_on_several_chains_a_batch(norm):
    model = Greenness()
    model.norm = norm
    (action,) = section("worst_case").view(measured([random_cell(0, 10), evolution_cell()], model)).actions
    wanted = "--option per_batch=8 " if isinstance(norm, torch.nn.BatchNorm2d) else ""
    assert f"--recipe esda {wanted}--out" in action.code
