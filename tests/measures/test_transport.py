"""Optimal transport and norms of outputs against linear programming and plain formulas."""

import numpy as np
import pytest

from shiftproof.measures.expected_confusion import class_figures, expected_confusion
from shiftproof.measures.output_norms import mano_rows, nuclear_norm
from shiftproof.measures.transport import cott_threshold, matched_costs


def test_costs_are_the_optimum_of_the_linear_program():
    from scipy.optimize import linprog

    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 12)
    mix = np.array([0.5, 0.25, 0.25])
    rows = np.kron(np.eye(12), np.ones(3))
    columns = np.tile(np.eye(3), 12)
    solved = linprog(
        (1 - p).ravel() / 12, A_eq=np.vstack([rows, columns]), b_eq=np.concatenate([np.ones(12), 12 * mix])
    )
    assert matched_costs(p, mix).mean() == pytest.approx(solved.fun, abs=1e-9)


def test_a_calibrated_model_costs_its_error_at_the_right_mix_and_more_at_another():
    rng = np.random.default_rng(1)
    p = rng.dirichlet(np.full(4, 0.15), 1200)
    right = matched_costs(p, p.mean(0)).mean()
    assert right == pytest.approx(1 - p.max(1).mean(), abs=0.03)
    assert matched_costs(p, np.array([0.7, 0.1, 0.1, 0.1])).mean() > right + 0.2


def test_as_many_source_inputs_lie_above_cotts_threshold_as_are_wrong():
    costs = np.random.default_rng(2).random(50)
    for errors in (0, 7, 49):
        assert (costs > cott_threshold(costs, errors)).sum() == errors
    assert (costs < cott_threshold(costs, 50)).sum() == 0


def test_norms_are_their_formulas():
    p = np.random.default_rng(3).dirichlet(np.ones(5), 20)
    assert nuclear_norm(p) == pytest.approx(np.linalg.norm(p, "nuc") / np.sqrt(20 * 5))
    sure = np.eye(5)[np.arange(20) % 5] * 200.0  # far from uniform: softmax
    assert mano_rows(sure) == pytest.approx(np.full(20, 0.2))
    vague = np.zeros((3, 5))  # Taylor's rows of equal values: nothing is left of them
    assert mano_rows(vague) == pytest.approx(np.zeros(3))


def test_expected_figures_are_the_counted_ones_where_probabilities_are_certain():
    truth, answers = np.array([0, 0, 1, 2, 2, 2]), np.array([0, 1, 1, 2, 2, 0])
    found = class_figures(expected_confusion(np.eye(3)[truth], answers))
    np.testing.assert_allclose(found.support, [2, 1, 3])
    np.testing.assert_allclose(found.precision, [0.5, 0.5, 1])
    np.testing.assert_allclose(found.recall, [0.5, 1, 2 / 3])
    np.testing.assert_allclose(found.f1, [0.5, 2 / 3, 0.8])
