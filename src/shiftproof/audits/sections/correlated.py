"""Streams in which images of a class come together: what decides whether batch statistics help or ruin.

A part of the section `adaptation`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shiftproof.adapters import Method, make_adapter
from shiftproof.audits.sections.base import READ, Measurement, Unit, Work, shifting
from shiftproof.audits.sections.measuring import hits_of, preset_for, rows
from shiftproof.audits.sections.method_streams import streamed
from shiftproof.errors import DataError, ModelError
from shiftproof.runs import Result, Row
from shiftproof.shifts import Shift
from shiftproof.subjects import Subject


@dataclass(frozen=True)
class CorrelatedStream(Measurement):
    """Batches of images sorted by class through a fresh adapter, under the shifts in turn."""

    kind = "adaptation.correlated"
    method: Method
    shifts: tuple[Shift, ...]
    images: int
    seed: int
    batch: int

    def measure(self, subject: Subject) -> Row:
        """Stream the batches, class after class, through the adapter and tally its answers."""
        preset = preset_for(subject)
        try:
            adapter = make_adapter(subject.adapted_model, self.method, preset=preset)
        except ModelError as error:
            return {"applies": False, "reason": error.headline}
        if subject.data.labels is None:
            raise DataError("A stream sorted by class needs labels.")
        data = subject.data.subset(sorted_batches(subject.data.labels, self.batch, self.images))
        found = streamed(adapter, data, self.shifts, seed=self.seed, batch=self.batch, device=subject.device)
        return {**found, "preset": preset}

    def work(self) -> Work:
        """Count images through an adapter."""
        adapting = [(Unit("adapter", self.method), 1.0), (Unit("adapt", self.method, self.batch), float(self.images))]
        shifted = [unit for shift in self.shifts for unit in shifting(shift, self.images / len(self.shifts))]
        return [(READ, self.images), *shifted, *adapting]


def sorted_batches(labels: Tensor, batch: int, images: int) -> list[int]:
    """Return the places of so many images, in batches that are cut from all of them sorted by class, evenly spaced.

    Batches are of one class, or of few, wherever a class has as many images as a batch.

    >>> sorted_batches(torch.tensor([1, 0, 1, 0, 2, 2]), 2, 4)
    [1, 3, 4, 5]
    """
    batches = torch.split(labels.argsort(stable=True), batch)
    count = max(1, min(len(batches), images // batch))
    chosen = torch.linspace(0, len(batches) - 1, count).round().long()
    return torch.cat([batches[place] for place in chosen.tolist()]).tolist()


def correlated_gains(results: Sequence[Result]) -> tuple[float, dict[str, NDArray[np.float64]]]:
    """Return the accuracy of the model as it is, and what each method adds to it on every image, [N]."""
    found = rows(results, CorrelatedStream)
    hits = {task.method.name: hits_of(row).astype(float) for task, row in found if row.get("applies", True)}
    source = hits.pop("source", None)
    if source is None:
        return 0.0, {}
    return float(source.mean()), {name: each - source for name, each in hits.items()}
