"""How long is trained: as many epochs as fit into the minutes, by the first of them where a few steps misled."""

from typing import Any

import pytest

from shiftproof.hardening import harden, training_time
from shiftproof.hardening.training_time import EPOCHS, MEASURED, epochs_in
from shiftproof.training.rehearsal import TrainingPlan
from tests.training.samples import small, two_classes

ASKED: dict[str, Any] = {"batch_size": 20, "test": 0.4, "max_clean_loss": 100, "augment": "coloured_noise"}


@pytest.mark.parametrize("planned", [1, 2, 7, 30])
def test_epochs_fit_by_the_first(planned):
    for epoch in (0.1, 3.0, 20.0, 61.0, 200.0):
        found = epochs_in(2.0, 1.5 * epoch, epoch, planned)
        taken = 1.5 * epoch + (found - 1) * epoch
        assert taken <= MEASURED * 120 or found == min(planned, 2)
        assert taken + epoch > MEASURED * 120 or found == EPOCHS


def test_steps_that_were_slow_when_they_were_timed_cost_no_epochs(tmp_path, monkeypatch):
    monkeypatch.setattr(training_time, "EPOCHS", 4)
    monkeypatch.setattr(training_time, "step_seconds", lambda *_, **__: 60.0)
    plans: list[TrainingPlan] = []
    found = harden(small(), two_classes(), minutes=10, out=tmp_path, on_plan=plans.append, **ASKED)
    assert plans[0].epochs == 1  # of 160 images, as many as fit 8 minutes of such steps
    assert plans[0].steps == 6
    assert found.choice.fitted.epochs == 4
    assert "4 epochs" in found.report.read_text()
    again = harden(small(), two_classes(), minutes=10, out=tmp_path, **ASKED)
    assert again.to_row() == found.to_row()


def test_epochs_that_were_asked_for_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(training_time, "step_seconds", lambda *_, **__: 60.0)
    assert harden(small(), two_classes(), epochs=2, out=tmp_path, **ASKED).choice.fitted.epochs == 2
