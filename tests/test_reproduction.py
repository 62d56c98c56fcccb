"""The papers' tables: the page says what the figures say, and every script runs from end to end at its tiny size."""

import argparse
import json
import re
import sys
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from scipy.stats import kendalltau, norm

from benchmarks import pair_domains
from benchmarks.rank_intervals import standing, weighted_taus
from benchmarks.reproduce import (
    certificates_causes,
    curves,
    equal_n_table,
    estimation_causes,
    hypersphere_table,
    markdown,
    page,
    pairs_table,
    panels,
    segmentation_table,
    tables,
)
from benchmarks.reproduce.all import TABLES, scripts_of
from benchmarks.reproduce.all import main as run_all
from benchmarks.reproduce.cells_table import SIZES as CELL_SIZES
from benchmarks.reproduce.cells_table import Planned, collapse
from benchmarks.reproduce.certificates_table import RECIPES
from benchmarks.reproduce.compared import Bench as CorruptionBench
from benchmarks.reproduce.compared import Corruptions, GroupStatistics, Network
from benchmarks.reproduce.heat_maps import drawing
from benchmarks.reproduce.long_stream import taken
from benchmarks.reproduce.normalised import BATCH, GROUP, build
from benchmarks.reproduce.record import Figures
from benchmarks.reproduce.tables.claims import CLAIMS, NOT_TESTED, verdict
from benchmarks.reproduce.tables.estimation import first_zero, text_panels
from benchmarks.reproduce.tables.evidence import student
from benchmarks.reproduce.tables.plans import PLANS
from benchmarks.reproduce.tables.tested import certificates_causes as certificates_causes_table
from benchmarks.reproduce.tables.tested import length_and_seed, samples_and_training
from benchmarks.safe_adaptation import parsed
from benchmarks.text_findings import accuracies, influences, intervals, micro, spreads, standings
from shiftproof import load_model, shifts
from shiftproof.adapters import adapt, method
from shiftproof.data import load_data
from shiftproof.models import build_network
from shiftproof.runs import Cell
from shiftproof.searchers import make_space
from shiftproof.searchers.uniform import draw_tuples
from shiftproof.shifts.spectral.waves import frequency_sets

SCRIPTS = [(script.module, script.part) for scripts in TABLES.values() for script in scripts]


def test_the_page_shows_the_figures(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["page", "--check"])
    assert page.main() == 0, "run python -m benchmarks.reproduce.page"
    text, files = page.PAGE.read_text(), page.read()
    assert page.filled(text, files) == text, "run python -m benchmarks.reproduce.page"
    for name, drawn in page.pictures(files).items():
        assert drawn == (page.PICTURES / name).read_text(), "run python -m benchmarks.reproduce.page"


def test_every_figure_has_a_command_and_every_table_its_place_on_the_page():
    text = page.PAGE.read_text()
    assert {f"<!-- begin {name} -->" in text for name in tables.TABLES} == {True}
    assert markdown.MISSING not in text
    for script in (script for scripts in TABLES.values() for script in scripts):
        assert (page.FIGURES / f"{script.figures}.json").is_file(), script.name


def test_what_is_not_reproduced_has_a_cause_that_was_tested():
    files = page.read()
    for claim in CLAIMS:
        assert claim.settles in PLANS
        if verdict(claim.paper, claim.ours(files)) != "yes":
            assert claim.cause(files) != NOT_TESTED
            assert PLANS[claim.settles].minutes(files) > 0
    said = [row.split("|")[2].strip() for row in tables.TABLES["claims"](files).splitlines() if row.startswith("| [")]
    explained = [row.split("|")[3:5] for row in tables.TABLES["causes"](files).splitlines() if row.startswith("| [")]
    assert len(said) == len(CLAIMS)
    assert len(explained) == len(said) - said.count("yes")
    assert all(cell.strip() for row in explained for cell in row)


def test_costs_are_told_before_anything_runs(capsys):
    assert run_all(["--data", "nowhere", "--costs", "--tables", "statistics"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:1]] == ["statistics_table-imagenet-resnet50"]
    told = [float(line.split(" min")[0].split()[-1]) for line in lines]
    assert told[-1] == pytest.approx(sum(told[:-1]), abs=0.1 * len(told))


def test_a_curve_has_collapsed_where_it_stays_below_the_other():
    starts, base = [0, 10, 20, 30], [0.5, 0.5, 0.5, 0.5]
    assert collapse([0.6, 0.4, 0.4, 0.4], base, starts) == 10
    assert collapse([0.4, 0.6, 0.6, 0.4], base, starts) is None
    assert collapse([0.4, 0.4, 0.4, 0.4], base, starts) == 0


def test_blocks_count_where_every_recipe_has_them_and_differences_are_taken_apart():
    rows: Any = {(recipe, "clean", 10): {start: {"radii": [0.1, 0.3]} for start in (0, 2)} for recipe in RECIPES}
    del rows["gaussian", "clean", 10][2]
    found = equal_n_table.radii_of(rows, ["clean"], 10)
    assert {len(each["clean"]) for each in found.values()} == {2}
    one, other = np.array([[0.0, 0.2] * 5]), np.array([[0.4, 0.2] * 5])
    told = equal_n_table.difference(one, other, 0.5)
    assert told["difference"] == pytest.approx(0.2)
    assert told["by more images"] + told["by larger radii"] == pytest.approx(0.2)


def test_an_interval_over_seeds_and_images_is_students_where_one_of_them_counts_alone():
    rng = np.random.default_rng(0)
    for seeds, images in ((rng.normal(0.1, 0.02, (3, 1)), np.zeros((1, 40))), (np.zeros((3, 1)), rng.random((1, 40)))):
        found = certificates_causes.crossed(seeds + images)
        expected = student((seeds + images).mean(1) if images.std() == 0 else (seeds + images).mean(0))
        assert (found["low"], found["high"]) == pytest.approx(expected)
    assert found["deviation"] == pytest.approx(0)
    assert certificates_causes.crossed(np.full((3, 4), 0.5))["high"] == 0.5


@pytest.mark.parametrize(("seeds", "images"), [(0.0, 0.1), (0.01, 0.1), (0.02, 0.05)])
def test_an_interval_over_seeds_and_images_covers_the_mean(seeds, images):
    """Three seeds and 100 images, drawn anew each time: coverage is 93 to 97%, told within a point or two by 1,000."""
    rng, covered = np.random.default_rng(1), 0
    for _ in range(1000):
        values = 0.3 + rng.normal(0, seeds, (3, 1)) + rng.normal(0, images, 100) + rng.normal(0, 0.1, (3, 100))
        found = certificates_causes.crossed(values)
        covered += found["low"] < 0.3 < found["high"]
    assert 0.91 <= covered / 1000 <= 0.98


def _smoothed_networks(leads, luck=0.0):
    """Return rows of networks of both recipes by epochs and seed, where one is ahead by what `leads` say of epochs."""
    rng = np.random.default_rng(0)
    easy, rows = rng.random(100) * 0.5, {}
    for epochs, lead in leads.items():
        for seed in range(3):
            for recipe, ahead in zip(equal_n_table.COMPARED, (0.0, lead + luck * (seed - 1)), strict=True):
                radii = {label: easy + ahead + rng.normal(0, 0.01, 100) for label in ("clean", "fog@3", "frost@3")}
                rows[recipe, epochs, seed] = {"training accuracy": 0.5, "radii": radii}
    return rows


def _causes(rows):
    """Return the files of the page, with what these networks tell."""
    groups = {"clean": ["clean"], "common": ["fog@3", "frost@3"]}
    found = certificates_causes.findings(rows, (6, 24), range(3), groups)
    return {**page.read(), "certificates-causes": {"figures": json.loads(json.dumps(found))}}


@pytest.mark.parametrize(
    ("leads", "said"),
    [
        ({6: -0.02, 24: 0.03}, "the lead rises with longer training: from 6 epochs to 24 epochs"),
        ({6: 0.03, 24: -0.02}, "the lead falls with longer training"),
        ({6: 0.01, 24: 0.01}, "it cannot be told whether the lead changes with longer training"),
    ],
)
def test_what_longer_training_changes_is_said_by_the_interval_of_the_change(leads, said):
    files = _causes(_smoothed_networks(leads))
    found, change = files["certificates-causes"]["figures"], leads[24] - leads[6]
    assert found["24 epochs"]["by group"]["common"]["lead"]["mean"] == pytest.approx(leads[24], abs=2e-3)
    assert found["change"]["common"]["low"] < change < found["change"]["common"]["high"]
    assert said in length_and_seed(files)
    assert "not one training each" in length_and_seed(files)
    assert samples_and_training(files).endswith(length_and_seed(files))
    (clean, common) = certificates_causes_table(files).splitlines()[2:]
    assert clean.startswith("| clean |")
    assert f"{found['change']['common']['mean']:+.3f} (" in common.split("|")[-2]


def test_one_training_can_hide_a_lead_that_varies_as_much_over_seeds():
    assert "one training each can hide it" in length_and_seed(_causes(_smoothed_networks({6: 0.0, 24: 0.0}, luck=0.03)))


def test_only_lengths_whose_networks_are_all_there_are_told():
    rows = _smoothed_networks({6: 0.0, 24: 0.02})
    del rows["fouriermix+hcr", 6, 1]
    files = _causes(rows)
    assert list(files["certificates-causes"]["figures"]) == ["24 epochs"]
    assert "for 24 epochs the lead is +0.0" in length_and_seed(files)
    assert "length not tested" in length_and_seed(files)
    assert "change" not in certificates_causes_table(files)
    del rows["gaussian+jsd", 24, 0]
    assert length_and_seed(_causes(rows)) == "network and training not tested"


def test_both_recipes_are_trained_with_the_same_seeds_and_certified_alike():
    size = certificates_causes.SIZES["short"]
    cells = certificates_causes.cells(size, range(3))
    alike = [
        sorted((cell["epochs"], cell["seed"], cell["images"], cell["n"]) for cell in cells if cell["recipe"] == recipe)
        for recipe in equal_n_table.COMPARED
    ]
    assert alike[0] == alike[1]
    assert len(cells) == len(set(cells)) == 12


def test_the_table_of_certificates_says_how_many_samples_cap_each_column():
    text = page.PAGE.read_text()
    rows = [line.split("|")[2:-1] for line in text.splitlines() if line.startswith(("| *n*", "| *largest radius*"))]
    (counts, largest) = ([cell.strip() for cell in row] for row in rows)
    assert counts == ["1,000 (100,000)", "300"]
    looks = {"1,000 (100,000)": (1_000, 3), "300": (300, 2)}
    for count, cell in zip(counts, largest, strict=True):
        n, times = looks[count]  # the sequential rule spends alpha evenly on its looks
        assert cell.split()[0] == f"{0.25 * norm.ppf((0.001 / times) ** (1 / n)):.3f}"
    assert "of its clean radius" not in text


def test_a_heat_map_shows_every_wave_and_its_opposite():
    waves = [[0, 0, 0.1], [0, 2, 0.2], [2, 0, 0.3], [2, 2, 0.4], [-2, 2, 0.5]]
    cells = re.findall(r'<rect x="(\d+)" y="(\d+)" width="51" height="51"', drawing({"one": waves}, "radii"))
    assert len(cells) == len(set(cells)) == 9
    fast = drawing({"one": [[0, 16, 0.1], [8, 16, 0.2], [16, 8, 0.3], [0, 8, 0.4]]}, "radii")
    assert fast.count('width="30" height="30"') == 2 + 4 + 4 + 2


def test_curves_are_drawn_from_the_top_left_to_the_bottom_right():
    picture = curves.drawing({"NI": [(0.0, 1.0), (1.0, -1.0)], "ATC": [(0.0, 0.0)]}, "tau")
    top_left, bottom_right = f"{curves.LEFT}.0,{curves.TOP}.0", f"570.0,{curves.HEIGHT - curves.BOTTOM}.0"
    assert f'points="{top_left} {bottom_right}"' in picture
    assert picture.count("<polyline") == 2


def test_a_panel_has_a_curve_for_each_family_of_networks():
    found = {
        "cnn": {"ablations": {"views=2": 0.4, "views=1": 0.2, "magnitude=7%": 0.1, "magnitude=15%": 0.3}},
        "head": {"ablations": {"views=1": 0.5, "views=2": 0.6}},
    }
    drawn = text_panels({"estimation-text": {"figures": found}})
    assert drawn["views of each text"] == {"CNNs": [("1", 0.2), ("2", 0.4)], "heads": [("1", 0.5), ("2", 0.6)]}
    assert drawn["tokens corrupted"] == {"CNNs": [("7%", 0.1), ("15%", 0.3)]}
    picture = panels.drawing(drawn, "tau")
    assert picture.count("<polyline") == 3
    highest, lowest = f"{panels.TOP}.0", f"{panels.TOP + panels.HEIGHT * (0.6 - 0.1) / 0.6:.1f}"
    assert f",{highest}" in picture
    assert f",{lowest}" in picture


@pytest.mark.parametrize(
    ("taus", "zero"), [((0.5, 0.1, -0.1, 0.2), 0.3), ((0.5, 0.0, 0.1, 0.2), 0.2), ((0.5, 0.4, 0.3, 0.2), None)]
)
def test_where_a_curve_first_comes_down_to_zero(taus, zero):
    assert first_zero(list(zip((0.0, 0.2, 0.4, 0.6), taus, strict=True))) == (
        None if zero is None else pytest.approx(zero)
    )


def test_tau_on_the_sphere_is_the_mean_over_the_sets_of_a_distance():
    """Two networks, two sets at one distance: on one invariance ranks them rightly, on the other it cannot."""
    worse, better = ({"accuracy": accuracy, "NI": accuracy, "ATC": -accuracy} for accuracy in (0.5, 0.9))
    rows: list[Any] = [{"sets": [[0.25, [one, worse]]]} for one in (worse, better)]
    assert hypersphere_table.taus(rows) == [{"distance": 0.25, "NI": 0.5, "ATC": -0.5}]


def test_what_a_pool_of_text_classifiers_tells_beside_scores():
    """Width makes these networks better on other categories and worse on SST-2, and NI-EDA goes with width."""

    def network(number, width):
        found = {"books": 0.9, "dvd": 0.5 + width / 100, "sst2": 0.5 - width / 100}
        domains = {test: {"accuracy": value, "measures": {"NI-EDA": width / 50}} for test, value in found.items()}
        return Cell("text pool", number=number, train="books", width=width), {"domains": domains}

    rows: list[Any] = [network(number, width) for number, width in enumerate((10, 20, 30))]
    taus = standings(rows, rows)
    assert {where: found["NI-EDA"]["mean"] for where, found in taus.items()} == {
        "other categories": 1.0,
        "sst2": -1.0,
        "all networks": 0.0,
    }
    assert spreads(rows)["dvd"] == pytest.approx({"accuracy": 70, "spread": 10, "spread of NI-EDA": 20})
    assert influences(rows, ["width"], ["NI-EDA", "NI-BT"]) == {"width": {"accuracy": 0.0, "NI-EDA": 1.0}}


def _text_networks(accuracies, measures, train="books"):
    """Return rows of networks with these accuracies on dvd and SST-2, and what measures say of both."""
    rows: list[Any] = []
    for number, accuracy in enumerate(accuracies):
        seen = {name: values[number] for name, values in measures.items()}
        domains = {test: {"accuracy": accuracy, "measures": seen} for test in (train, "dvd", "sst2")}
        rows.append((Cell("text pool", number=number, train=train), {"domains": domains, "training accuracy": 1.0}))
    return rows


def test_intervals_of_tau_are_over_networks_and_differences_are_paired():
    rng = np.random.default_rng(0)
    truth = np.linspace(0.6, 0.9, 30)
    noisy = (truth + rng.normal(0, 0.1, 30)).tolist()
    rows = _text_networks(truth.tolist(), {"ATC-MC": noisy, "NI-EDA": truth.tolist(), "NI-SSMBA": noisy})
    found = intervals(rows, draws=400)
    assert found["ATC-MC"]["mean"] == pytest.approx(kendalltau(truth, noisy).statistic)
    assert found["ATC-MC"]["mean low"] < found["ATC-MC"]["mean"] < found["ATC-MC"]["mean high"] < 1
    assert found["NI-EDA"]["mean low"] == found["NI-EDA"]["mean high"] == 1
    assert found["NI-EDA"]["ahead low"] > 0
    assert found["NI-SSMBA"]["ahead low"] == found["NI-SSMBA"]["ahead high"] == 0


def test_pairs_of_domains_count_as_they_are_told():
    """NI-EDA ranks rightly on dvd and wrongly on SST-2; each is told by itself."""
    rows = _text_networks([0.6, 0.7, 0.8, 0.9], {"ATC-MC": [1, 3, 2, 4], "NI-EDA": [1, 2, 3, 4]})
    for _, row in rows:
        row["domains"]["sst2"]["measures"] = {"ATC-MC": 0.5, "NI-EDA": -row["domains"]["sst2"]["accuracy"]}
    for tests, tau in ((["dvd"], 1.0), (["sst2"], -1.0), (["dvd", "sst2"], 0.0)):
        found = intervals(rows, draws=50, counted=partial(_among, tests))
        assert found["NI-EDA"]["mean"] == pytest.approx(tau)


def _among(tests, train, test):
    return test in tests


def test_the_features_of_a_pair_join_its_two_sentences_view_by_view():
    vectors = torch.arange(2 * 2 * 3, dtype=torch.float32)[:, None]  # two views of three pairs: premises, hypotheses
    found = pairs_table.joined(vectors, 2)
    assert found.shape == (6, 4)
    assert found[:, :2].tolist() == [[0, 3], [1, 4], [2, 5], [6, 9], [7, 10], [8, 11]]
    assert found[4, 2:].tolist() == [3, 70]


def test_weighted_tau_is_that_of_the_places_taken_so_often():
    one, other, counts = [1.0, 2.0, 2.0, 4.0, 0.0], [3.0, 1.0, 5.0, 5.0, 2.0], [2, 0, 1, 3, 1]
    places = np.repeat(np.arange(5), counts)
    (found,) = weighted_taus(one, other, np.array([counts]))
    assert found == pytest.approx(kendalltau(np.array(one)[places], np.array(other)[places]).statistic)


def test_small_groups_have_the_tau_of_the_pool_and_strengths_hold_every_severity():
    rows = [row for _, row in _text_networks([0.6, 0.7, 0.8], {"NI-RandAug": [1, 2, 3], "ATC-MC": [3, 2, 1]})]
    found = estimation_causes.small_groups(rows, ["dvd"])
    assert (found["NI-RandAug"]["mean"], found["ATC-MC"]["mean"]) == (1.0, -1.0)
    told = standing(rows, ["dvd"], ["NI-RandAug", "ATC-MC"], "ATC-MC", draws=50)
    assert told["NI-RandAug"]["ahead"] == pytest.approx(2.0)
    groups = estimation_causes.strengths(["clean", "fog@1", "fog@3", "fog@5"])
    assert groups["severity 3"] == ["fog@3"]
    assert groups["all corruptions"] == ["fog@1", "fog@3", "fog@5"]
    assert "natural" not in groups


def test_each_part_of_a_batch_has_a_chain_of_its_own():
    images, chain = torch.full((4, 3, 8, 8), 0.5), make_space("camvid").chain(_genes())
    found = segmentation_table._under([None, chain], images, torch.arange(4))
    assert torch.equal(found[:2], images[:2])
    torch.testing.assert_close(found[2:], chain(images[2:], torch.arange(2, 4)))
    assert not torch.equal(found[2:], images[2:])


def _genes():
    """Return the first drawn chain of the space of street scenes."""
    return draw_tuples(make_space("camvid"), 5, range(1), seed=0)[0]


def test_accuracies_and_micro_tau_of_a_pool_of_text_classifiers():
    rows = _text_networks([0.6, 0.8], {"NI-EDA": [0.1, 0.2]}) + _text_networks([0.7], {"NI-EDA": [0.3]}, "kitchen")
    found = accuracies(rows[:2])
    assert found == pytest.approx(
        {"training": 100, "own category": 70, "other categories": 70, "sst2": 70, "spread": 20 / 2**0.5}
    )
    assert micro(rows) == {"sst2": {"NI-EDA": {"mean": pytest.approx(1 / 3)}}}


def test_long_runs_are_taken_over_with_their_cost():
    row = {"method": "source", "images": 640, "seconds_per_batch": 0.5, "accuracy": 0.3}
    run = {"length": 640, "batch_size": 64, "seed": 43, "target": "medium", "lr_scale": 1.0, "rows": [row]}
    found = taken([run, {**run, "lr_scale": 10.0}])
    assert found["figures"] == {"1": [row], "10": [row]}
    assert found["seconds"] == 10.0


def test_a_changed_figure_changes_the_page(tmp_path):
    found = json.loads((page.FIGURES / "estimation-cifar.json").read_text())
    found["figures"]["scores"]["NI-RandAug"]["macro_tau"]["mean"] = 0.123456
    (tmp_path / "estimation-cifar.json").write_text(json.dumps(found))
    files = page.read(tmp_path)
    assert "0.123" in tables.TABLES["estimation-cifar"](files)
    assert tables.TABLES["certificates"](files) == markdown.MISSING


@pytest.mark.parametrize(
    "path", sorted(page.FIGURES.rglob("*.json")), ids=lambda path: f"{path.parent.name}/{path.stem}"
)
def test_figures_say_where_they_come_from(path):
    found = json.loads(path.read_text())
    assert found["table"] == path.stem
    assert {"seed", "commit", "device", "torch", "seconds", "cut", "figures"} <= found.keys()
    assert found["size"] != "tiny"
    assert found["seconds"] > 0
    assert found["cut"]


def test_a_run_that_goes_on_keeps_its_figures_and_its_time(tmp_path):
    options = argparse.Namespace(out=tmp_path, size="tiny", seed=0, commit="abc", device="cpu", minutes=None)
    first = Figures("table", options, ["everything"])
    first.began -= 100
    first.add("one", 1)
    second = Figures("table", options, ["everything"])
    second.add("two", 2)
    found = json.loads(second.path.read_text())
    assert found["figures"] == {"one": 1, "two": 2}
    assert found["seconds"] >= 100
    other = Figures("table", argparse.Namespace(**{**vars(options), "seed": 1}), ["everything"])
    assert (other.parts, other.before) == ({}, 0.0)


def test_a_part_of_a_table_can_be_named():
    assert [script.name for script in scripts_of("estimation/digits")] == ["estimation_table-digits"]
    assert len(scripts_of("certificates")) == 6
    assert [script.name for script in scripts_of("estimation/text")] == ["text_table"]
    with pytest.raises(SystemExit, match="no table"):
        scripts_of("estimation/texts")


def test_no_layer_is_left_with_batch_normalisation_where_groups_take_its_place():
    plain, grouped = build(BATCH), build(GROUP)
    count = sum(isinstance(layer, torch.nn.BatchNorm2d) for layer in plain.modules())
    assert not any(isinstance(layer, torch.nn.BatchNorm2d) for layer in grouped.modules())
    assert sum(isinstance(layer, torch.nn.GroupNorm) for layer in grouped.modules()) == count > 0
    images = torch.rand(4, 3, 32, 32)  # in training mode, an answer does not depend on the other images
    torch.testing.assert_close(grouped(images)[:1], grouped(images[:1]), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(plain(images)[:1], plain(images[:1]), rtol=1e-2, atol=1e-2)


def test_a_network_without_batch_statistics_has_errors_as_it_is_and_no_distance(tmp_path):
    network = Network("vit", tmp_path, "cpu")
    cell = Cell("corruption", shift="fog@3", ways=[[0, 0]])
    worker = object.__new__(Corruptions)
    (batch,) = load_data("demo").take(20).batches(20)
    worker.bench, worker.device, worker.step = CorruptionBench(network, 20, 0, 20), "cpu", 10
    worker.model, worker.normalising = network.load(), None
    worker.images, worker.keys, worker.labels = batch.inputs, batch.keys, torch.as_tensor(batch.labels)
    assert list(worker.measure(cell)) == ["right"]


def test_sets_of_noise_are_grouped_by_band_and_by_power():
    sets = list(frequency_sets())
    found = equal_n_table.groups_of_waves(sets)
    assert {name: len(labels) for name, labels in found.items()} == {
        "waves": 192, "low": 60, "mid": 60, "high": 72, "alpha 0.5": 48, "alpha 1": 48, "alpha 2": 48, "alpha 3": 48,
    }  # fmt: skip
    assert all(shifts.parse(label).label == label for label in found["waves"])


@pytest.mark.parametrize("part", equal_n_table.PARTS)
def test_every_network_is_certified_on_the_same_images_under_the_same_conditions(part):
    cells = equal_n_table.Work(part, equal_n_table.SIZES["sample"]).cells()
    by_recipe = {
        recipe: [(cell["shift"], cell["n"], cell["start"]) for cell in cells if cell["recipe"] == recipe]
        for recipe in RECIPES
    }
    assert len({tuple(some) for some in by_recipe.values()}) == 1
    assert len(cells) == len(set(cells)) > 0


def test_margins_and_resets_are_options_of_methods_with_the_source_beside_them():
    assert parsed("eata[entropy_margin=0.1]") == ("eata", {"entropy_margin": "0.1"})
    assert parsed("bn") == ("bn", {})
    for part in ("margins", "resets"):
        planned = Planned(part, CELL_SIZES["short"])
        assert len(planned.streams) == 3
        for shape in planned.streams:
            names = [name for _, _, name, _ in planned.units(shape)]
            assert names[0] == "source"
            for name in names:
                method_name, options = parsed(name)
                method(method_name).options("cifar", "paper", options)


@pytest.mark.parametrize("prior", [0, 16])
def test_small_batches_that_go_together_are_answered_as_if_one_after_another(prior):
    model = load_model("demo", device="cpu")
    (batch,) = load_data("demo").take(24).batches(24)
    images = shifts.parse("fog@4")(batch.inputs, batch.keys)
    one_by_one = adapt(model, "bn", prior=prior)
    expected = torch.cat([one_by_one(part) for part in images.split(8)])
    together = adapt(model, "bn")
    with torch.no_grad(), together.normalising(GroupStatistics(8, prior)):
        found = together.run(images)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(found, model(images), atol=0.1)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Return a folder of small sets in the layout the scripts read, made of the demo's images."""
    folder = tmp_path_factory.mktemp("data")
    (batch,) = load_data("demo").take(240).batches(240)
    images = (batch.inputs * 255).round().byte().permute(0, 2, 3, 1).numpy()
    grey, labels = images[:, 2:30, 2:30, 0], np.asarray(batch.labels)
    for name, pixels in (("cifar10", images), ("mnist", grey)):
        (folder / name).mkdir()
        for part in ("train", "test"):
            np.savez(folder / name / f"{part}.npz", images=pixels, labels=labels)
    small = images[:, ::2, ::2, 0]
    np.savez(folder / "usps.npz", train_x=small, train_y=labels, test_x=small, test_y=labels)
    np.savez(folder / "imagenet-as-cifar10.npz", x=images[:40], y=labels[:40])
    (folder / "cifar10-resnets").mkdir()
    for name in ("resnet20", "resnet56"):
        weights = {key: value for key, value in build_network(name).state_dict().items() if "normalize" not in key}
        save_file(weights, folder / "cifar10-resnets" / f"{name}.safetensors")
    builders = (f"def {name}(): return build_network('convnet')" for name in ("resnet50", "efficientnet_lite0"))
    (folder / "models.py").write_text("\n".join(["from shiftproof.models import build_network", *builders]) + "\n")
    for place in range(40):
        (folder / "imagenet-sample" / str(labels[place])).mkdir(parents=True, exist_ok=True)
        Image.fromarray(images[place]).save(folder / "imagenet-sample" / str(labels[place]) / f"{place}.png")
    for part, count in (("train", 4), ("test", 2)):
        (folder / "camvid-small" / part).mkdir(parents=True)
        (folder / "camvid-small" / f"{part}-labels").mkdir()
        for place in range(count):
            scene = Image.fromarray(images[place])
            scene.save(folder / "camvid-small" / part / f"{place}.jpg")
            Image.fromarray(images[place, :, :, 0] % 12).save(
                folder / "camvid-small" / f"{part}-labels" / f"{place}.png"
            )
    _write_texts(folder)
    return folder


def _write_texts(folder):
    """Write reviews of 0 and 1 in the layouts of the text sets, and a WordNet of one meaning."""
    said = {
        kind: [f"a {word} thing, number {place}, for all" for place in range(20)]
        for kind, word in (("negative", "dull"), ("positive", "great"))
    }
    for category in ("books", "dvd", "electronics", "kitchen", "video"):
        (folder / "text" / "amazon" / category).mkdir(parents=True)
        for kind, lines in said.items():
            (folder / "text" / "amazon" / category / f"review_{kind}").write_text("\n".join(lines))
    rows = [(line, label) for label, lines in enumerate(said.values()) for line in lines]
    for part in ("text/sst2", "imdb", "wordnet"):
        (folder / part).mkdir()
    (folder / "text" / "sst2" / "test.tsv").write_text("".join(f"{line}\t{label}\n" for line, label in rows))
    (folder / "imdb" / "reviews.json").write_text(json.dumps([{"t": line, "s": label} for line, label in rows]))
    for part in ("noun", "verb", "adj", "adv"):
        (folder / "wordnet" / f"data.{part}").write_text("00000001 00 a 02 great 0 grand 0 000 | large\n")
    _write_pairs(folder / "text")
    if find_spec("transformers") is not None:
        _write_encoder(folder / "minilm")


def _write_pairs(folder):
    """Write pairs of sentences in the layouts of SICK and of SNLI with rewritten pairs."""
    (folder / "sick").mkdir()
    for files in pair_domains.PARTS.values():
        rows = [
            f"{number}\ta great thing\ta dull thing, {number}\t3.0\t{pair_domains.CLASSES[number % 3].upper()}"
            for number in (*range(1, 41), *range(1_100, 1_140))
        ]
        head = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"
        (folder / "sick" / files[0]).write_text("\n".join([head, *rows]))
        for name in pair_domains.SNLI.values():
            pairs = [f"all great\tall dull, {number}\t{pair_domains.CLASSES[number % 3]}" for number in range(40)]
            path = folder / "counterfactual" / "NLI" / name / files[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(["sentence1\tsentence2\tgold_label", *pairs]))


def _write_encoder(folder):
    """Write a sentence encoder of one small layer, as `transformers` keeps it."""
    import transformers

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "dull", "great", "thing", "for", "all"]
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(words))
    transformers.BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    transformers.BertModel(transformers.BertConfig(vocab_size=len(words), **sizes)).save_pretrained(folder)


@pytest.mark.slow
@pytest.mark.parametrize(("module", "part"), SCRIPTS)
def test_every_script_runs(module, part, data, tmp_path, monkeypatch):
    arguments = [
        "script",
        "--data",
        str(data),
        "--size",
        "tiny",
        "--runs",
        str(tmp_path),
        "--out",
        str(tmp_path / "figures"),
    ]
    if module == "pairs_table":
        pytest.importorskip("transformers")
    monkeypatch.setattr(sys, "argv", [*arguments, "--device", "cpu", *(["--part", part] if part else [])])
    import_module(f"benchmarks.reproduce.{module}").main()
    (found,) = (tmp_path / "figures").glob("*.json")
    assert json.loads(found.read_text())["figures"]
