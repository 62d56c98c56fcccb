"""Statistics of layers to measure distances between."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from shiftproof.measures import LayerStatistics

RNG = np.random.default_rng(0)


def layer(mean: object, var: object, name: str = "bn") -> LayerStatistics:
    return LayerStatistics(name, np.atleast_1d(np.asarray(mean, float)), np.atleast_1d(np.asarray(var, float)))


def random_layer(channels: int = 7, name: str = "bn") -> LayerStatistics:
    return layer(RNG.normal(size=channels), RNG.uniform(0.1, 4, channels), name)


@st.composite
def layers(draw: st.DrawFn, count: int = 2) -> list[LayerStatistics]:
    channels = draw(st.integers(1, 5))
    means = st.lists(st.floats(-10, 10), min_size=channels, max_size=channels)
    variances = st.lists(st.floats(0.01, 100), min_size=channels, max_size=channels)
    return [layer(draw(means), draw(variances)) for _ in range(count)]
