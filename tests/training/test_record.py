"""The log of a run: JSON lines that go on where a checkpoint was, and the same for trackers."""

import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from shiftproof.training.record import TrainingLog

ROWS = [{"step": step, "loss": 1.0 / step, "lr": 0.1} for step in range(1, 6)]


def test_what_came_after_the_checkpoint_is_logged_again(tmp_path):
    first = TrainingLog(tmp_path)
    for row in ROWS:
        first.add(row)
    first.close()
    second = TrainingLog(tmp_path, ROWS[:3])
    second.add({**ROWS[3], "loss": 0.5})
    second.close()
    rows = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert rows == [*ROWS[:3], {**ROWS[3], "loss": 0.5}]


def test_tensorboard_reads_the_same(tmp_path):
    reading = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="tensorboard is not installed"
    )
    record = TrainingLog(tmp_path)
    for row in [*ROWS, {"step": 5, "accuracy": 0.75}]:
        record.add(row)
    record.close()
    again = TrainingLog(tmp_path, ROWS[:3])  # events after step 3 are purged
    again.add({"step": 4, "loss": 0.5})
    again.close()
    events = reading.EventAccumulator(str(tmp_path))
    events.Reload()
    assert [(each.step, each.value) for each in events.Scalars("loss")] == [
        *((row["step"], pytest.approx(row["loss"])) for row in ROWS[:3]),
        (4, pytest.approx(0.5)),
    ]


def test_wandb_is_given_one_run_by_the_name_of_the_folder(tmp_path, monkeypatch):
    calls: list[Any] = []
    run = SimpleNamespace(
        log=lambda numbers, step: calls.append((step, numbers)), finish=lambda: calls.append("finished")
    )

    def init(**asked: Any) -> Any:
        calls.append(asked)
        return run

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    record = TrainingLog(tmp_path, ROWS[:3], tracked=["wandb"])
    record.add({**ROWS[3], "note": "not a number to show"})
    record.close()
    asked, *rest = calls
    assert (asked["id"], asked["name"], asked["resume"]) == (tmp_path.name, tmp_path.name, "allow")
    assert rest == [(4, {"loss": 0.25, "lr": 0.1}), "finished"]


def test_mlflow_is_given_a_run_by_the_name_of_the_folder(tmp_path, monkeypatch):
    calls: list[Any] = []
    package = SimpleNamespace(
        start_run=lambda *, run_name: calls.append(run_name),
        log_metrics=lambda numbers, step: calls.append((step, numbers)),
        end_run=lambda: calls.append("ended"),
    )
    monkeypatch.setitem(sys.modules, "mlflow", package)
    record = TrainingLog(tmp_path, tracked=["mlflow"])
    record.add(ROWS[0])
    record.close()
    assert calls == [tmp_path.name, (1, {"loss": 1.0, "lr": 0.1}), "ended"]
