"""Grouped quantiles: by hand, against plain conformal quantiles, and by simulation."""

import math

import numpy as np
import pytest

from shiftproof.measures.conformal import grouped_p_value, grouped_quantile, largest_level


def test_groups_of_one_are_plain_conformal_quantiles():
    scores = np.random.default_rng(0).random(19)
    for level in (0.5, 0.8, 0.95):
        rank = math.ceil(level * 20 - 1e-9)
        assert grouped_quantile(scores, range(19), level) == pytest.approx(np.sort(scores)[rank - 1])
    assert grouped_quantile(scores, range(19), 0.96) == math.inf


@pytest.mark.parametrize(("groups", "level"), [(4, 0.8), (9, 0.9), (19, 0.95)])
def test_levels_need_groups(groups, level):
    assert largest_level(groups) == pytest.approx(level)
    assert grouped_quantile(np.arange(groups), range(groups), level) == groups - 1
    assert grouped_quantile(np.arange(groups - 1), range(groups - 1), level) == math.inf


def test_copies_of_one_group_count_as_one():
    few = grouped_quantile([1.0, 5.0, 2.0, 3.0], "abcd", 0.6)
    many = grouped_quantile([1.0, *[5.0] * 50, 2.0, 3.0], ["a", *"b" * 50, "c", "d"], 0.6)
    assert few == many


def test_new_groups_are_covered_as_often_as_stated():
    rng, held, low, trials = np.random.default_rng(1), 0, 0, 2000
    for _ in range(trials):
        scale = np.exp(rng.normal(size=11))  # groups differ much, scores within a group little
        scores = np.abs(rng.normal(size=(11, 5)) * 0.1 + 1) * scale[:, None]
        groups = np.repeat(range(10), 5).tolist()
        new = scores[10, 0]
        held += new <= grouped_quantile(scores[:10].ravel(), groups, 0.8)
        low += grouped_p_value(new, scores[:10].ravel(), groups) <= 0.1
    assert 0.77 < held / trials < 0.9
    assert low / trials < 0.12
