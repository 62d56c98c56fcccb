"""Computing in fewer digits: what it changes is measured and told."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from shiftproof import audit
from shiftproof.audits.sections.reduced_precision import BothPrecisions, precision_note
from shiftproof.runs import Result
from shiftproof.subjects import Subject
from tests.searchers.models import pictures


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2)).eval()


def test_the_report_says_what_fewer_digits_change(tmp_path: Path) -> None:
    data = pictures(30)
    model = network()
    model(Subject.of(nn.Flatten(), data).data.subset([0]).in_memory().batches(1).__next__().inputs)
    found = audit(model, data, sections=["clean"], amp=True, out=tmp_path / "low")
    (view,) = [view for view in found.views if view.section == "clean"]
    assert any("Computed in bfloat16 (--amp): on the first 30 images" in note for note in view.notes)
    usual = audit(model, data, sections=["clean"], out=tmp_path / "usual")
    assert not any("bfloat16" in note for view in usual.views for note in view.notes)
    low = Subject.of(model, data, amp=True, device="cpu")
    row = BothPrecisions(30).measure(low)
    assert row["images"] == 30
    assert row["right_in_float32"] == round(30 * usual.numbers["clean_accuracy"])
    assert row["right"] == round(30 * found.numbers["clean_accuracy"])
    assert low.in_own_precision().fast_model is not low.fast_model


def test_the_note_counts() -> None:
    row = {"images": 200, "same": 199, "right": 150, "right_in_float32": 151}
    (said,) = precision_note([Result(BothPrecisions(200), row, None, 1.0)], "images")
    assert "199 answers are those of float32, and accuracy is 75.0%, in float32 75.5%." in said
