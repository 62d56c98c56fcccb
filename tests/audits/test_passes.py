"""A pass is made once: what sections read of the same images under the same shift is asked of the model once."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from shiftproof import audit
from shiftproof.data.contents import content_keys
from shiftproof.runs import Row, Task
from shiftproof.shifts import corruption
from shiftproof.subjects import Measurer, Subject
from tests.searchers.models import pictures

FIRST = 64
"""Images that are looked at beside what is measured: by checks, for examples and pictures, for statistics."""
OTHERS = (
    "before",  # and after: whether the model works at all
    "CorrelatedStream",  # it also says what a batch takes of the model as it is
    *(f"{stream} {method}" for stream in ("AdaptedStream", "LongStream") for method in ("bn", "tent", "rdumb")),
    *("AdaptedErrors", "PriorStream"),  # networks that adapt
)
SHARED = ["clean", "corruptions", "failures", "worst_case", "adaptation"]


class Watched(nn.Module):
    """A small network that notes of which task every image came."""

    task = "before"
    seen: ClassVar[defaultdict[int, Counter[str]]] = defaultdict(Counter)

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head = nn.BatchNorm1d(48), nn.Linear(48, 2)

    def forward(self, images: Tensor) -> Tensor:
        for key in content_keys(images).tolist():
            Watched.seen[key][Watched.task] += 1
        scores: Tensor = self.head(self.norm(nn.functional.adaptive_avg_pool2d(images, 4).flatten(1)))
        return scores


def test_no_image_goes_through_the_model_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measure = Measurer.measure

    def noted(self: Measurer, task: Task[Subject]) -> Row:
        method = getattr(task, "method", None)
        Watched.task = f"{type(task).__name__} {method.name if method else ''}".strip()
        return measure(self, task)

    monkeypatch.setattr(Measurer, "measure", noted)
    monkeypatch.setattr(Watched, "seen", defaultdict(Counter))
    monkeypatch.setattr(Watched, "task", "before")
    torch.manual_seed(0)
    data = pictures(130)
    found = audit(Watched().eval(), data, sections=SHARED, shifts=["contrast"], severities=[1, 5], out=tmp_path / "out")
    assert found.numbers.keys() >= {"corruption_accuracy", "worst_case_loss", "gain.bn", "distance_prediction_error"}
    Watched.task = "before"
    audited = Subject.of(Watched(), data).data.subset(range(FIRST, 130))
    for shift in (None, corruption("contrast", 1), corruption("contrast", 5)):
        for batch in audited.batches(200):
            images = batch.inputs if shift is None else shift(batch.inputs, batch.keys, seed=0)
            for key in content_keys(images).tolist():
                asked = {name: n for name, n in Watched.seen[key].items() if not name.startswith(OTHERS)}
                assert sum(asked.values()) == 1, (shift, asked)
