"""The section `worst_case`: what it plans, measures and says."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from shiftproof.audits.audit_settings import make_settings
from shiftproof.audits.sections import section
from shiftproof.audits.sections.base import Scope
from shiftproof.audits.sections.clean import CleanSlice
from shiftproof.audits.sections.worst_case import KINDS, SIZES
from shiftproof.audits.sections.worst_case_figures import Found, density, rare_accuracy
from shiftproof.audits.sections.worst_case_search import (
    COMPARED,
    RandomTuples,
    SearchedParts,
    SearchedSpace,
)
from shiftproof.models import BlackBox
from shiftproof.reports.view import Figure, Gallery, Table
from shiftproof.runs import Result
from shiftproof.searchers import make_space, search
from shiftproof.searchers.uniform import draw_tuples
from shiftproof.shifts import parse
from shiftproof.subjects import Subject
from tests.searchers.models import Greenness, pictures

PARTS = SearchedParts(10, 10, 20)


def subject(model):
    return Subject.of(model, pictures(40), device="cpu", batch_size=16)


def random_cell(first, last, images=40):
    return RandomTuples(make_space("cifar"), 5, images, first, last, seed=0)


def searched(kind="colour", runs=2, budget=12):
    found = KINDS[kind]
    return SearchedSpace(make_space(found.space), found.length, found.similarity, PARTS, budget, runs, seed=0)


def measured(cells, model):
    return [Result(cell, cell.measure(subject(model)), None, 1.0) for cell in cells]


@pytest.fixture(scope="module")
def results():
    cells = [CleanSlice(0, PARTS.all), *map(searched, KINDS), random_cell(0, 10, 10), random_cell(10, 20, 10)]
    return measured(cells, Greenness())


@pytest.mark.parametrize("budget", SIZES)
def test_the_plan_has_as_many_chains_and_images_as_the_budget_says(budget):
    size = SIZES[budget]
    for images in (30, 100_000):
        cells: list[Any] = list(section("worst_case").plan(Scope(make_settings(budget=budget), images, 32)))
        drawn = [number for cell in cells if isinstance(cell, RandomTuples) for number in range(cell.first, cell.last)]
        assert drawn == list(range(size.random))
        spaces = [cell for cell in cells if isinstance(cell, SearchedSpace)]
        assert [cell.space.name for cell in spaces] == [kind.space for kind in KINDS.values()]
        assert [cell.budget for cell in spaces] == [round(size.evolution * kind.effort) for kind in KINDS.values()]
        assert {cell.runs for cell in spaces} == {size.runs}
        (parts,) = {cell.parts for cell in cells if isinstance(cell, SearchedSpace)}
        wanted = (10, 10, 10) if images == 30 else (size.searched, size.compared, size.measured)
        assert tuple(parts) == wanted


def test_most_evaluations_are_evolution_s():
    for size in SIZES.values():
        assert size.random < size.evolution * size.runs * len(KINDS)


def test_random_chains_are_those_of_a_random_search():
    rows = [result.row for result in measured([random_cell(0, 6), random_cell(6, 9)], Greenness())]
    found = [value for row in rows for value in row["trials"]["fitness"]]
    data = pictures(40)
    whole = search(Greenness(), data, searcher="random", budget=9)
    assert found == whole.trace.fitness().tolist()
    assert rows[0]["clean"] == whole.clean


def test_a_black_box_is_searched_like_a_network():
    cells = [random_cell(0, 4), searched()]
    box = BlackBox(Greenness().forward, name="box")
    assert [result.row for result in measured(cells, box)] == [result.row for result in measured(cells, Greenness())]


def test_the_worst_chain_is_measured_on_images_that_did_not_choose_it(results):
    data = subject(Greenness()).data
    (batch,) = data.subset(range(20, 40)).batches(20)
    for result in results[1:5]:
        shifted = parse(result.row["label"])(batch.inputs, batch.keys, seed=0)
        right = (Greenness()(shifted).argmax(1) == batch.labels).sum()
        assert (result.row["right"], result.row["images"]) == (right, 20)


def test_chains_that_change_the_content_are_not_chosen(results):
    for result, kind in zip(results[1:5], KINDS.values(), strict=True):
        trials = list(result.row["runs"].values())
        chosen = result.row["chain"]
        counts = [
            counted
            for run in trials
            for words, counted in zip(run["words"], run["admissible"], strict=True)
            if words == chosen
        ]
        assert counts
        assert all(counts)
        assert (trials[0]["similarity"][0] is None) == (kind.similarity is None)
        assert result.row["compared"] <= COMPARED
        assert 1 <= len(result.row["spread"]) <= 2


def test_what_is_said_follows_from_what_was_measured(results):
    view = section("worst_case").view(results)
    rows = {kind: result.row for kind, result in zip(KINDS, results[1:5], strict=True)}
    worst = min(rows, key=lambda kind: rows[kind]["before"])
    accuracy = rows[worst]["right"] / rows[worst]["images"]
    clean = np.unpackbits(np.frombuffer(bytes.fromhex(results[0].row["hits"]), np.uint8))[10:30].mean()
    assert view.numbers["worst_case_accuracy"] == min(accuracy, clean)
    assert view.numbers["worst_case_loss"] == pytest.approx(clean - min(accuracy, clean))
    assert {name for name in view.numbers if "." in name} == {f"worst_case_accuracy.{kind}" for kind in KINDS}
    assert view.numbers["worst_case_each_accuracy"] <= min(clean, 1.0)
    lowest = [run["fitness"] for row in rows.values() for run in row["runs"].values()]
    random = [result.row["trials"]["fitness"] for result in results[5:]]
    assert view.numbers["worst_case_unconstrained_accuracy"] == min(min(some) for some in (*lowest, *random))
    assert "worst_case_random_quantile" not in view.numbers  # 20 chains do not show what one in a thousand does
    assert any("20 random chains are too few" in note for note in view.notes)
    assert f"{100 * view.numbers['worst_case_accuracy']:.1f}%" in view.verdict[0].text
    spaces, progress, spread, worst_chains, gallery = view.blocks
    assert isinstance(spaces, Table)
    assert {row[0] for row in spaces.rows} == {*KINDS, "worst for each image"}
    assert isinstance(progress, Figure)
    assert [curve["name"] for curve in progress.plot["data"]][:2] == ["colour, seed 1", "colour, seed 2"]
    assert isinstance(spread, Figure)
    assert sum(int(row[2] or 0) for row in spread.table.rows) == 20
    assert isinstance(worst_chains, Table)
    assert worst_chains.rows[0][1] == view.numbers["worst_case_unconstrained_accuracy"]
    assert isinstance(gallery, Gallery)
    assert {picture.caption for picture in gallery.pictures} == {"before", "after"}


def test_a_model_that_nothing_hurts_is_told_so():
    class First(torch.nn.Module):
        def forward(self, images):
            return torch.tensor([[1.0, 0.0]]).expand(len(images), 2)

    view = section("worst_case").view(measured([CleanSlice(0, PARTS.all), searched(runs=1)], First()))
    assert view.verdict[0].level == "good"
    assert "or mild corruptions that was tried costs any accuracy" in view.verdict[0].text


def test_a_worst_case_is_never_better_than_clean(results):
    raised = [replace(results[0], row={**(results[0].row or {}), "right": 0, "hits": "00" * 5}), *results[1:]]
    view = section("worst_case").view(raised)
    assert view.numbers["worst_case_accuracy"] == view.numbers["worst_case_each_accuracy"] == 0
    assert view.numbers["worst_case_loss"] == 0
    assert "costs any accuracy: accuracy is 0.0%" in view.verdict[0].text


def test_a_thousand_random_chains_show_the_rarest():
    random = [Found("grayscale", place / 1000, 1.0) for place in range(1000)]
    assert rare_accuracy(random) == pytest.approx(0.000999)
    assert rare_accuracy(random[1:]) is None
    marks = [[curve["name"] for curve in density(some, random[0], 1.0).plot["data"]] for some in (random, random[1:])]
    assert marks[0][1:] == ["lowest 0.1%", *marks[1][1:]] == ["lowest 0.1%", "worst found", "clean"]


def test_without_a_search_there_is_no_worst_case():
    assert not section("worst_case").view(measured([random_cell(0, 5)], Greenness())).numbers


def test_chains_are_the_searchers_own():
    space = make_space("cifar")
    (result,) = measured([random_cell(0, 3)], Greenness())
    assert result.row["trials"]["words"] == [space.words(genes) for genes in draw_tuples(space, 5, range(3))]


@pytest.mark.parametrize("norm", [torch.nn.BatchNorm2d(3), torch.nn.GroupNorm(1, 3)])
def test_networks_with_batch_norm_are_advised_to_train_on_several_chains_a_batch(norm):
    model = Greenness()
    model.norm = norm
    clean, found = measured([CleanSlice(0, PARTS.all), searched()], model)
    broken = replace(found, row={**(found.row or {}), "right": 0})
    (action,) = section("worst_case").view([clean, broken]).actions
    wanted = "--option per_batch=8 " if isinstance(norm, torch.nn.BatchNorm2d) else ""
    assert f"--recipe esda {wanted}--option every=1" in action.code
