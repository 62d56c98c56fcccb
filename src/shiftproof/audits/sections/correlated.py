"""Streams in which images of a class come together: what decides whether batch statistics help or ruin.

A part of the section `adaptation`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shiftproof.adapters import Method, make_adapter
from shiftproof.audits.sections.base import READ, Measurement, Unit, Work, shifting
from shiftproof.audits.sections.measuring import hits_of, preset_for, rows
from shiftproof.audits.sections.method_streams import streamed
from shiftproof.audits.sections.shift_names import named
from shiftproof.errors import DataError, ModelError
from shiftproof.runs import Result, Row
from shiftproof.shifts import Shift
from shiftproof.subjects import Subject


@dataclass(frozen=True)
class CorrelatedStream(Measurement):
    """Shifted images through a fresh adapter, sorted by class."""

    kind = "adaptation.correlated"
    method: Method
    shift: Shift
    images: int
    seed: int
    batch: int

    def measure(self, subject: Subject) -> Row:
        """Stream the images, class after class, through the adapter and tally its answers."""
        preset = preset_for(subject)
        try:
            adapter = make_adapter(subject.model, self.method, preset=preset)
        except ModelError as error:
            return {"applies": False, "reason": error.headline}
        first = subject.data.subset(range(self.images))
        if first.labels is None:
            raise DataError("Images of a class cannot come together without labels.")
        data = first.subset(first.labels.argsort(stable=True).tolist())
        found = streamed(adapter, data, self.shift, seed=self.seed, batch=self.batch, device=subject.device)
        return {**found, "preset": preset}

    def work(self) -> Work:
        """Count images through an adapter."""
        adapting = [(Unit("adapter", self.method), 1.0), (Unit("adapt", self.method, self.batch), float(self.images))]
        return [(READ, self.images), *shifting(self.shift, self.images), *adapting]


def correlated_gains(results: Sequence[Result]) -> tuple[float, dict[str, NDArray[np.float64]]]:
    """Return the accuracy of the model as it is, and what each method adds to it on every image, [N]."""
    hits: dict[str, dict[str, NDArray[np.uint8]]] = defaultdict(dict)
    for task, row in rows(results, CorrelatedStream):
        if row.get("applies", True):
            hits[task.method.name][named(task.shift)] = hits_of(row)
    source = hits.pop("source", {})
    if not source:
        return 0.0, {}
    alone = np.concatenate(list(source.values())).astype(float)
    gains = {
        name: np.concatenate([each[shift] for shift in source]) - alone
        for name, each in hits.items()
        if set(each) == set(source)
    }
    return float(alone.mean()), gains
