import pytest

from shiftproof.errors import ConfigurationError
from shiftproof.measures import ALEXNET, ALEXNET_CLEAN, mce, relative_mce


def test_the_baseline_scores_100():
    errors = {name: [value] * 5 for name, value in ALEXNET.items()}
    assert mce(errors) == pytest.approx(100)
    assert relative_mce(errors, ALEXNET_CLEAN) == pytest.approx(100)


def test_hand_computed_values():
    errors = {"a": [0.1, 0.3], "b": [0.5, 0.5]}
    baseline = {"a": 0.4, "b": 1.0}
    assert mce(errors, baseline) == pytest.approx(100 * (0.2 / 0.4 + 0.5) / 2)
    assert relative_mce(errors, 0.1, baseline, 0.2) == pytest.approx(100 * (0.1 / 0.2 + 0.4 / 0.8) / 2)


def test_a_corruption_without_a_baseline_is_named():
    with pytest.raises(ConfigurationError, match="rain"):
        mce({"rain": [0.5]})
    with pytest.raises(ConfigurationError, match="no corruption"):
        mce({})
