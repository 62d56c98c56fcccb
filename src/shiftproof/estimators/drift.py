"""Drift of normalisation statistics in live traffic, layer by layer."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from shiftproof.errors import ModelError
from shiftproof.measures import LayerStatistics, layer_distances
from shiftproof.measures.normalization import Statistics
from shiftproof.models import StatisticsTap, source_statistics

BATCHES = 8
"""The statistics of so many of the latest tapped batches are pooled."""


class Drift:
    """How far the statistics of recent batches are from those a model was trained with.

    Distances are Wasserstein's, in units of the source's standard deviations (Schneider et al. 2020, section C.5).
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._source = source_statistics(model)
        self._recent: deque[Statistics] = deque(maxlen=BATCHES)
        self._distances: dict[str, float] | None = {}
        """Those of the recent batches, None until they are asked for: most batches are not tapped."""

    @classmethod
    def of(cls, model: nn.Module) -> Drift | None:
        """Return the drift of a model, None where it keeps no statistics."""
        try:
            return cls(model)
        except ModelError:
            return None

    @contextmanager
    def taking(self, images: int) -> Iterator[None]:
        """Take the statistics of the forward pass inside."""
        with StatisticsTap(self._model) as tap:
            yield
        self._recent.append(tap.statistics(images=images))
        self._distances = None

    def by_layer(self) -> dict[str, float]:
        """Return the distance from the source by layer; nothing before the first batch."""
        if self._distances is None:
            self._distances = layer_distances(self._source, pooled(self._recent)) if self._recent else {}
        return dict(self._distances)

    def mean(self) -> float | None:
        """Return the mean distance over layers, None before the first batch."""
        distances = self.by_layer()
        return float(np.mean(list(distances.values()))) if distances else None

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Return the recent statistics as arrays."""
        return {
            f"drift/{number}/{layer.name}": np.stack([layer.mean, layer.var, np.full_like(layer.mean, layer.images)])
            for number, batch in enumerate(self._recent)
            for layer in batch
        }

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a state."""
        batches: dict[int, list[LayerStatistics]] = {}
        for key, (mean, var, images) in ((key, rows) for key, rows in state.items() if key.startswith("drift/")):
            _, number, name = key.split("/", 2)
            batches.setdefault(int(number), []).append(LayerStatistics(name, mean, var, int(images[0])))
        self._recent.clear()
        self._recent.extend(batches[number] for number in sorted(batches))
        self._distances = None


def pooled(batches: Sequence[Statistics] | deque[Statistics]) -> Statistics:
    """Return the statistics of all images of several batches, from those of each."""
    weights = np.array([layers[0].images or 1 for layers in batches], float)
    shares = weights / weights.sum()
    made = []
    for layers in zip(*batches, strict=True):
        means, variances = np.stack([layer.mean for layer in layers]), np.stack([layer.var for layer in layers])
        mean = shares @ means
        # The variance of a union is the mean variance and the variance of the means.
        made.append(
            LayerStatistics(layers[0].name, mean, shares @ (variances + (means - mean) ** 2), int(weights.sum()))
        )
    return tuple(made)
