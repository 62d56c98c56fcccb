"""Processes run an audit where a short trial finds them faster, and where they can."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from shiftproof import audit
from shiftproof.audits import costs, executor_choice
from shiftproof.audits.audit_settings import make_settings
from shiftproof.audits.planning import scope_of
from shiftproof.audits.sections import planned
from shiftproof.models import BlackBox
from shiftproof.runs import Auto, Inline, Plan, Processes, choose_executor
from shiftproof.subjects import Subject
from tests.searchers.models import pictures


def subject_of(model: Any) -> Subject:
    return Subject.of(model, pictures(20), device="cpu", batch_size=10)


def chosen(subject: Subject) -> object:
    scope = scope_of(make_settings(sections=["clean"], shifts=["contrast"]), 20, subject)
    plan = Plan(planned("clean", scope), subject.fingerprints)
    return executor_choice.quickest_executor(subject, scope, plan, 1e6, Auto(timeout=60))


def linear() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 12 * 12, 2)).eval()


@pytest.mark.parametrize(("together", "processes"), [(20.0, True), (11.0, True), (10.5, False)])
def test_what_is_faster_is_chosen(together: float, processes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_choice, "LONG", 0)
    monkeypatch.setattr(executor_choice, "cores", lambda: 2)
    monkeypatch.setattr(executor_choice, "pace", lambda _, __, workers, *___: together if workers == 2 else 10.0)
    assert chosen(subject_of(linear())) == (Processes(2, timeout=60) if processes else Auto(timeout=60))


def test_short_audits_one_core_and_what_cannot_be_sent_stay_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_choice, "pace", lambda _, __, workers, *___: float(workers))
    monkeypatch.setattr(executor_choice, "cores", lambda: 2)
    assert chosen(subject_of(linear())) == Auto(timeout=60)  # it is short
    monkeypatch.setattr(executor_choice, "LONG", 0)
    assert chosen(subject_of(linear())) == Processes(2, timeout=60)
    assert chosen(subject_of(BlackBox(lambda images: images.mean((2, 3))[:, :2]))) == Auto(timeout=60)
    monkeypatch.setattr(executor_choice, "cores", lambda: 1)
    assert chosen(subject_of(linear())) == Auto(timeout=60)


def test_processes_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_choice, "LONG", 0)
    monkeypatch.setattr(executor_choice, "cores", lambda: 64)
    monkeypatch.setattr(executor_choice, "pace", lambda _, __, workers, *___: float(workers))
    monkeypatch.setattr(executor_choice, "peak_memory", lambda: {"process": 10**9})
    for free, expected in ((9e9, Processes(4, timeout=60)), (3e9, Auto(timeout=60)), (math.inf, None)):
        monkeypatch.setattr(executor_choice, "free_memory", lambda free=free: free)
        assert chosen(subject_of(linear())) == (expected or Processes(64, timeout=60))
    assert 0 < costs.free_memory() < 2**50


def test_a_pace_is_measured_and_leaves_the_threads_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_choice, "PATIENCE", 0.01)
    before = torch.get_num_threads()
    assert executor_choice.pace(subject_of(linear()), None, 2, 1, time.perf_counter) > 0
    assert torch.get_num_threads() == before


def test_auto_is_an_executor_of_every_verb(tmp_path: Path) -> None:
    assert choose_executor("auto", timeout=9) == Auto(9)
    assert isinstance(Auto(), Inline)
    found = audit(linear(), pictures(20), sections=["clean"], executor="auto", out=tmp_path)
    assert "clean_accuracy" in found.numbers
