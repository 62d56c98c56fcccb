"""What sections write as intervals: of one among all it was chosen from, never without width, or too few to say."""

import re
from typing import Any

import numpy as np
import pytest

from shiftproof.adapters import method as find
from shiftproof.audits.sections import section
from shiftproof.audits.sections.adaptation import AdaptedStream
from shiftproof.audits.sections.certified import CertifiedPart
from shiftproof.audits.sections.clean import CleanSlice
from shiftproof.audits.sections.corrupted_images import CorruptedSlice
from shiftproof.audits.sections.spectrum import Wave
from shiftproof.audits.sections.wording import between, interval
from shiftproof.audits.sections.worst_case_search import SearchedParts, SearchedSpace
from shiftproof.measures import Accuracy
from shiftproof.measures.intervals import TOO_FEW, Interval, mean_interval
from shiftproof.runs import Result
from shiftproof.searchers import make_space
from shiftproof.shifts import corruption, parse
from shiftproof.shifts.spectral.waves import FourierBasis


def row(right, images):
    hits = np.arange(images) < right
    return {"images": images, "right": right, "confidence": 0.9, "hits": np.packbits(hits).tobytes().hex()}


def corrupted(images, clean, cells):
    found = [Result(CleanSlice(0, images), {**row(clean, images), "classes": {"a": [clean, images]}}, None, 1.0)]
    return found + [
        Result(CorruptedSlice(parse(label), 0, images, 0), row(right, images), None, 1.0)
        for label, right in cells.items()
    ]


def test_ends_are_rounded_away_from_each_other():
    assert between(Interval(0.99963, 1.0)) == "99.9 to 100.0%"
    assert between(Interval(-0.00001, 0.12341), "") == "-0.1 to 12.4"
    assert between(Interval(0.1, 0.2)) == "10.0 to 20.0%"
    assert between(Interval(-0.25, 0.5), " points", "+") == "-25.0 to +50.0 points"
    assert between(None) == TOO_FEW == "interval: too few to say"
    assert interval(Accuracy(9, 9)) == TOO_FEW
    assert interval(Accuracy(10, 10)) == "69.1 to 100.0%"


@pytest.mark.parametrize(("clean", "lowest"), [(90, 20), (90, 88)])
def test_the_worst_cell_is_one_of_all_cells(clean, lowest):
    cells = {f"{name}@{severity}": 89 for name in ("fog", "contrast", "snow") for severity in range(1, 6)}
    view = section("corruptions").view(corrupted(100, clean, {**cells, "fog@5": lowest}))
    assert f"({interval(Accuracy(lowest, 100), among=15)})" in view.verdict[0].text


def test_the_mean_over_corruptions_counts_every_image_once():
    view = section("corruptions").view(corrupted(100, 90, {"fog@1": 80, "fog@5": 20}))
    means = np.repeat([1.0, 0.5, 0.0], [20, 60, 20])
    assert view.tiles[0].interval.startswith(between(mean_interval(means)))
    assert between(mean_interval([1.0] * 50)) == "92.1 to 100.0%"  # images that agree are not all images


def test_few_images_are_too_few_to_say():
    view = section("corruptions").view(corrupted(8, 8, {"fog@1": 8, "fog@5": 1}))
    assert TOO_FEW in view.verdict[0].text
    assert view.tiles[0].interval.startswith(TOO_FEW)
    view = section("clean").view(corrupted(8, 8, {}))
    assert view.tiles[0].interval == TOO_FEW
    assert "%" not in re.findall(r"\((.*?)\)", view.verdict[0].text)[0]


def test_the_worst_chain_is_measured_on_images_that_did_not_choose_it():
    trials: Any = {"words": ["a"], "fitness": [0.1], "similarity": [0.9], "admissible": [True]}
    parts = SearchedParts(20, 30, 200)
    found: Any = {
        "runs": {"1": trials}, "batch_norm": False, "spread": [0.3], "surviving": "00" * 4, "chain": "a",
        "searched": 0.1, "before": 0.2, "similarity": 0.9, "right": 80, "images": 200, "pictures": [],
    }  # fmt: skip
    search = SearchedSpace(make_space("cifar"), 5, 0.8, parts, 10, 1, 0)
    clean: Any = {
        "images": 250,
        "right": 227,
        "confidence": 0.9,
        "hits": np.packbits([1] * 227 + [0] * 23).tobytes().hex(),
    }
    view = section("worst_case").view([Result(CleanSlice(0, 250), clean, None, 1.0), Result(search, found, None, 1.0)])
    assert view.tiles[0].interval == interval(Accuracy(80, 200))
    assert view.tiles[0].interval in view.verdict[0].text
    assert view.numbers["worst_case_loss"] == pytest.approx(177 / 200 - 0.4)
    assert view.numbers["worst_case_each_accuracy"] == 0


def test_certificates_are_those_of_the_better_noise():
    radii = {0.03: [0.05] * 30 + [0.0] * 10, 0.25: [0.0] * 40}
    tasks = {sigma: CertifiedPart(None, sigma, 0, 40, n0=20, n=250, alpha=0.01, seed=0) for sigma in radii}
    view = section("certified").view(
        [
            Result(tasks[sigma], {"images": 40, "radii": some, "samples": 4_000}, None, 1.0)
            for sigma, some in radii.items()
        ]
    )
    assert f"75.0% ({interval(Accuracy(30, 40), among=2)}) on clean images" in view.verdict[0].text
    assert view.tiles[0].interval == f"{interval(Accuracy(0, 40), among=2)}, smoothed model"
    assert interval(Accuracy(0, 40), among=2) != interval(Accuracy(0, 40))


def test_the_weakest_band_is_one_of_three():
    waves = {(0, 0): 36, (0, 8): 20, (0, 16): 4}
    found = [
        Result(Wave(FourierBasis(i, j), 40, 0, 32, 8), row(right, 40), None, 1.0) for (i, j), right in waves.items()
    ]
    view = section("spectrum").view(found)
    expected = mean_interval(np.arange(40) < 4, among=3)
    assert f"mean accuracy is 10.0% ({between(expected)}) at high" in view.verdict[-1].text


def test_the_best_method_is_one_of_all():
    def stream(method, right):
        task = AdaptedStream(find(method), corruption("fog", 5), images=256, seed=0)
        about: Any = {"milliseconds": 1.0, "preset": "cifar", "batches": 4, "updates": 4, "resets": 0}
        return Result(task, {**row(right, 256), **about}, None, 1.0)

    view = section("adaptation").view([stream("source", 100), stream("bn", 150), stream("rdumb", 120)])
    gained = np.repeat([0.0, 1.0, 0.0], [100, 50, 106])
    told = between(mean_interval(gained, -1.0, 1.0, among=2), "")
    assert (view.tiles[0].interval, "the best method, bn," in view.tiles[0].rule) == (told, True)
    assert f"19.5 points ({told})" in view.verdict[0].text
