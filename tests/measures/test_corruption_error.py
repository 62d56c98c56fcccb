import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiftproof.errors import ConfigurationError
from shiftproof.measures import ALEXNET, ALEXNET_CLEAN, category_means, corruption_errors, mce, relative_mce

RUNS = st.dictionaries(st.text(), st.lists(st.floats(0.01, 1), min_size=3, max_size=3), min_size=1)


def test_the_baseline_scores_100():
    errors = {name: [value] * 5 for name, value in ALEXNET.items()}
    assert mce(errors) == pytest.approx(100)
    assert relative_mce(errors, ALEXNET_CLEAN) == pytest.approx(100)


def test_hand_computed_values():
    errors = {"a": [0.1, 0.3], "b": [0.5, 0.5]}
    baseline = {"a": 0.4, "b": 1.0}
    assert corruption_errors(errors, baseline) == pytest.approx({"a": 50, "b": 50})
    assert mce(errors, baseline) == pytest.approx(100 * (0.2 / 0.4 + 0.5) / 2)
    assert relative_mce(errors, 0.1, baseline, 0.2) == pytest.approx(100 * (0.1 / 0.2 + 0.4 / 0.8) / 2)


def test_arrays_are_errors_too():
    assert mce({"a": np.array([0.1, 0.3])}, {"a": np.array([0.2, 0.6])}) == pytest.approx(50)


def test_alexnet_on_one_corruption():
    assert mce({"brightness": [0.282296]}) == pytest.approx(50)
    assert relative_mce({"brightness": [0.3]}, 0.2) == pytest.approx(100 * 0.1 / (0.564592 - 0.4348))


@given(RUNS, st.floats(0.1, 10))
def test_a_run_scores_100_against_itself_and_in_proportion_to_its_errors(run, times):
    assert mce(run, run) == pytest.approx(100)
    larger = {name: [times * error for error in errors] for name, errors in run.items()}
    assert mce(larger, run) == pytest.approx(100 * times)
    assert relative_mce(larger, 0, run, 0) == pytest.approx(100 * times)


@given(RUNS)
def test_a_run_and_its_means_are_the_same_baseline(run):
    means = {name: sum(errors) / 3 for name, errors in run.items()}
    ones = {name: [1.0] * 3 for name in run}
    assert mce(ones, means) == pytest.approx(mce(ones, run))


@given(RUNS)
def test_one_category_is_the_mean_over_corruptions_and_one_each_is_every_corruption(run):
    means = {name: sum(errors) / 3 for name, errors in run.items()}
    assert category_means(run, dict.fromkeys(run, "all")) == {"all": pytest.approx(sum(means.values()) / len(means))}
    assert category_means(run, {name: name for name in run}) == pytest.approx(means)


def test_a_category_counts_corruptions_alike_whatever_their_number_of_severities():
    errors = {"fog": [0.2], "jpeg": [0.1, 0.5], "snow": [0.3, 0.4, 0.5, 0.6, 0.7]}
    means = category_means(errors, {"snow": "weather", "fog": "weather", "jpeg": "digital", "rain": "weather"})
    assert means == pytest.approx({"weather": (0.2 + 0.5) / 2, "digital": 0.3})
    assert list(means) == ["weather", "digital"]


def test_a_corruption_without_a_baseline_or_category_is_named():
    with pytest.raises(ConfigurationError, match="rain"):
        mce({"rain": [0.5]})
    with pytest.raises(ConfigurationError, match="also rain"):
        category_means({"rain": [0.5]}, {"fog": "weather"})
    with pytest.raises(ConfigurationError, match="no corruption"):
        mce({})


def test_baselines_that_cannot_be_compared_with_are_refused():
    with pytest.raises(ConfigurationError, match="3 errors"):
        mce({"fog": [0.1, 0.2]}, {"fog": [0.1, 0.2, 0.3]})
    with pytest.raises(ConfigurationError, match="loses nothing to 'fog'"):
        mce({"fog": [0.1]}, {"fog": [0.0]})
    with pytest.raises(ConfigurationError, match="loses nothing to 'fog'"):
        relative_mce({"fog": [0.1]}, 0.05, {"fog": [0.1]}, 0.1)
    with pytest.raises(ConfigurationError, match="baseline's clean error"):
        relative_mce({"fog": [0.1]}, 0.05, {"fog": [0.1]})
    with pytest.raises(ConfigurationError, match="'fog' has no errors"):
        mce({"fog": []})
