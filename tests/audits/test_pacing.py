"""How a model is asked: the fastest of a few ways, with the same answers, chosen once for a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from shiftproof.audits import pacing
from shiftproof.audits.costs import PACE, Costs
from shiftproof.audits.pacing import quickest
from shiftproof.audits.sections.clean import CleanSlice
from shiftproof.runs import Plan, Store
from shiftproof.subjects import Subject

PLAN = Plan((CleanSlice(0, 40),), {"model": "m"})
ENOUGH = pacing.WORTHWHILE / 40


class Counting(nn.Module):
    """A model whose batches take the time that a table says."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.sizes = 0.0, list[int]()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, images: Tensor) -> Tensor:
        self.sizes.append(len(images))
        self.now += 1.0 + 0.01 * len(images) if len(images) < 16 else 1.0 * len(images)
        return images.mean((2, 3))


def subject(model: Callable[[Tensor], Tensor], batch_size: int | None = None) -> Subject:
    data = [(torch.rand(3, 8, 8, generator=torch.Generator().manual_seed(each)), each % 3) for each in range(40)]
    return Subject.of(model, data, device="cpu", batch_size=batch_size)


def test_the_fastest_batch_size_is_chosen_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("shiftproof.subjects", fromlist=["BATCH_SIZES"]).BATCH_SIZES, "cpu", 4)
    model = Counting()
    asked = subject(model)
    with Store(tmp_path, {"model": "m"}) as store:
        found = quickest(asked, PLAN, ENOUGH, store, clock=lambda: model.now)
        assert found.batch_size == 8  # the largest that costs little more than a smaller one
        assert found.model is asked.model
        noted = json.loads(store.about()[PACE])
        assert noted["batch_size"] == 8
        assert "batches of 8: " in Costs.of(store, []).told_pace("images")
        tried = len(model.sizes)
        assert quickest(asked, PLAN, ENOUGH, store).batch_size == 8
        assert len(model.sizes) == tried  # a run that goes on does not choose again


@pytest.mark.parametrize(("operations", "batch"), [(ENOUGH / 2, None), (ENOUGH, 5)])
def test_short_audits_and_a_given_size_stay_as_they_are(tmp_path: Path, operations: float, batch: int | None) -> None:
    model = Counting()
    asked = subject(model, batch)
    with Store(tmp_path, {"model": "m"}) as store:
        found = quickest(asked, PLAN, operations, store, clock=lambda: model.now)
    assert found.batch_size == asked.batch_size


def test_layouts_give_the_same_answers() -> None:
    demo = Subject.of("demo", "demo", images=64, device="cpu")
    (batch,) = demo.data.batches(64)
    own = demo.task.scores(demo.model, batch.inputs)
    for layout in ("channels_last", "contiguous"):
        other = demo.asked(16, layout)
        assert torch.allclose(own, other.task.scores(other.fast_model, batch.inputs), atol=1e-4)
