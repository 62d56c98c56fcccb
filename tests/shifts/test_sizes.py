"""Interpolation between the presets by image size."""

from __future__ import annotations

import pytest

from shiftproof.shifts.sizes import between_presets


def test_values_are_linear_in_the_logarithm_of_the_side_and_stop_at_the_presets() -> None:
    assert between_presets(0.2, 1.0, 32, 32) == pytest.approx(0.2)
    assert between_presets(0.2, 1.0, 16, 16) == pytest.approx(0.2)
    assert between_presets(0.2, 1.0, 224, 224) == pytest.approx(1.0)
    assert between_presets(0.2, 1.0, 500, 600) == pytest.approx(1.0)
    middle = 32 * 7**0.5
    assert between_presets(0.0, 1.0, round(middle), round(middle)) == pytest.approx(0.5, abs=0.01)
