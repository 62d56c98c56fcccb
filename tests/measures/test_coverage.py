"""Every kind of interval holds the truth in at least 93% of simulated data sets, wherever there is an answer."""

import re

import numpy as np
import pytest
from scipy.stats import binomtest, t

from benchmarks.coverage import ACCURACIES, KINDS, LEAST, PAGE, SIZES, chances, holds
from shiftproof.measures.intervals import MIN_IMAGES

POINTS = [(kind, dependence) for kind, each in KINDS.items() for dependence in each.dependences]
COUNTS = ("accuracy", "lowest of 75 cells", "worst chain found", "certified accuracy")
"""Exact at every size: of so few images, sections write that they are too few to say."""


def coverages(kind, dependence, sizes, accuracies, sets):
    return {(n, p): KINDS[kind].point(kind, dependence, n, p, sets) for n in sizes for p in accuracies}


@pytest.mark.parametrize(("kind", "dependence"), POINTS)
def test_intervals_hold(kind, dependence):
    found = coverages(kind, dependence, (10, 100), (0.5, 0.99), sets=300)
    assert all(share is not None and share >= LEAST for share in found.values()), found


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "dependence"), POINTS)
def test_intervals_hold_at_every_point(kind, dependence):
    found = coverages(kind, dependence, SIZES, ACCURACIES, sets=2_000)
    assert len(found) == 15
    assert all(share is not None and share >= LEAST for share in found.values()), found


@pytest.mark.parametrize("kind", KINDS)
def test_fewer_than_ten_images_are_too_few_to_say(kind):
    for dependence in KINDS[kind].dependences:
        found = KINDS[kind].point(kind, dependence, MIN_IMAGES - 1, 0.9, 100)
        assert found is None if kind not in COUNTS else found is not None and found >= LEAST


def test_the_simulation_tells_what_does_not_hold():
    """Of the intervals that these are in place of: Wilson's, Student's, and the percentiles of a paired bootstrap."""
    rng = np.random.default_rng(0)
    by_hits = [binomtest(hits, 10).proportion_ci(method="wilson") for hits in range(11)]
    wilson = np.array([by_hits[hits] for hits in rng.binomial(10, 0.99, 2_000)])
    assert holds(wilson, 0.99).mean() < LEAST
    means = chances(rng, (100, 2_000), 0.99, dependence=1)
    reach = t.ppf(0.975, 99) * means.std(0, ddof=1) / 10
    assert holds(np.stack([means.mean(0) - reach, means.mean(0) + reach], 1), 0.99).mean() < 0.75
    gained = rng.binomial(50, 0.03, 2_000)
    percentiles = np.quantile(rng.binomial(50, gained[:, None] / 50, (2_000, 1_000)) / 50, [0.025, 0.975], axis=1)
    assert holds(percentiles.T, 0.03).mean() < LEAST


def test_the_page_has_every_kind_and_size():
    """The table is made by `python -m benchmarks.coverage --page`."""
    table = re.search(r"<!-- begin coverage -->(.*)<!-- end coverage -->", PAGE.read_text(), re.DOTALL)
    assert table is not None
    rows = [line.strip("| ").split("|") for line in table[1].strip().splitlines()[2:]]
    assert [(row[0].strip(), row[1].strip()) for row in rows] == POINTS
    shares = [[float(share) for share in cell.split()] for row in rows for cell in row[2:]]
    assert {len(cell) for cell in shares} == {len(ACCURACIES)}
    assert len(shares) == len(POINTS) * len(SIZES)
    assert min(map(min, shares)) >= 100 * LEAST
