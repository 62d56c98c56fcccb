"""Calibration error, selective prediction, conformal sets and scores of strangeness, against other ways to get them."""

from itertools import pairwise

import numpy as np
import pytest

from shiftproof.errors import DataError
from shiftproof.measures.self_knowledge import (
    Reliability,
    accuracy_at_coverage,
    calibration_error,
    calibration_error_of_chance,
    conformal_threshold,
    energy,
    neighbor_scores,
)

RNG = np.random.default_rng(0)


def test_the_calibration_error_is_the_gap_of_bins_by_their_size():
    sure, right = RNG.uniform(0.1, 1, 500), RNG.random(500) < 0.6
    edges = np.linspace(0, 1, 16)
    total = 0.0
    for low, high in pairwise(edges):  # (low, high], as in Guo et al. 2017
        some = (sure > low) & (sure <= high)
        total += abs(sure[some].sum() - right[some].sum())
    assert calibration_error(sure, right) == pytest.approx(total / 500)
    assert Reliability.of(sure, right).inputs.sum() == 500
    assert calibration_error([1.0, 1.0], [True, True]) == 0
    assert calibration_error([1.0, 1.0], [False, False]) == 1


def test_few_inputs_show_an_error_where_there_is_none():
    sure = RNG.uniform(0.5, 1, 2000)
    few, many = calibration_error_of_chance(sure[:50]), calibration_error_of_chance(sure)
    assert 0.05 < few < 0.2
    assert many < few / 3
    right = RNG.random(2000) < sure
    assert calibration_error(sure, right) == pytest.approx(many, abs=0.01)


def test_accuracy_at_coverage_is_that_of_the_surest():
    scores, right = RNG.permutation(200) / 200, RNG.random(200) < 0.7
    order = np.argsort(-scores)
    for coverage in (0.9, 0.7, 0.5, 0.013):
        kept = order[: max(1, int(np.ceil(round(200 * coverage, 6))))]
        assert accuracy_at_coverage(scores, right, coverage) == pytest.approx(right[kept].mean())
    assert accuracy_at_coverage(scores, right, 1.0) == pytest.approx(right.mean())


def test_equal_scores_count_as_drawn_at_random():
    assert accuracy_at_coverage([0.5] * 10, [True] * 4 + [False] * 6, 0.5) == pytest.approx(0.4)
    assert accuracy_at_coverage([0.9, 0.5, 0.5, 0.5], [True, True, False, False], 0.5) == pytest.approx((1 + 1 / 3) / 2)


def test_conformal_sets_hold_the_truth_as_often_as_they_say():
    held = []
    for _ in range(300):
        true = RNG.beta(3, 1, 300)  # the probability of the true class, in labelled inputs and in new ones
        held.append((true[100:] >= conformal_threshold(true[:100], 0.9)).mean())
    assert np.mean(held) == pytest.approx(91 / 101, abs=0.005)  # ceil(101 * 0.9) / 101
    assert conformal_threshold([0.9, 0.8], 0.9) == 0.0  # too few: every class is in every set


def test_energy_and_neighbours_are_low_for_what_is_strange():
    assert energy([[0.0, 0.0], [5.0, 0.0]]).tolist() == pytest.approx([np.log(2), np.log(1 + np.exp(5))])
    source = np.stack([np.ones(40), np.linspace(0, 0.1, 40)], 1)
    near, far = neighbor_scores([[3.0, 0.0], [-1.0, 0.0]], source)
    assert near > -0.1
    assert far == pytest.approx(-2, abs=0.02)
    distances = np.sort(np.linalg.norm(source / np.linalg.norm(source, axis=1, keepdims=True) - [1, 0], axis=1))
    assert near == pytest.approx(-distances[1])  # one in twenty of forty: the second nearest


def test_scores_without_truth_are_refused():
    with pytest.raises(DataError, match="truth value"):
        calibration_error([0.5], [True, False])
    with pytest.raises(DataError, match="truth value"):
        accuracy_at_coverage([], [], 0.5)
