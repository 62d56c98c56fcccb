"""A run that sets its epochs by the time its first one took: as if they had been planned so, also where it resumes."""

import json
from typing import Any

import pytest

from shiftproof.errors import ConfigurationError, RunError
from shiftproof.training import train
from tests.training.samples import small, two_classes
from tests.training.test_start import same, stop_at

COSINE: dict[str, Any] = {
    "batch_size": 40,
    "lr": 0.05,
    "log_every": 1,
    "schedule": "cosine",
    "ema": 0.9,
    "recipe": "spectra",
}


def rates(trained):
    return [row["lr"] for row in trained.log]


@pytest.mark.parametrize(("planned", "epochs"), [(2, 4), (4, 2), (1, 2), (3, 1)])
def test_the_schedule_goes_on_as_if_the_epochs_had_been_planned(planned, epochs, tmp_path):
    data, told = two_classes(), []

    def replan(spent, step):
        told.append((spent, step))
        return epochs

    made = train(small(), data, epochs=planned, replan=replan, out=tmp_path / "run", **COSINE)
    first = train(small(), data, epochs=planned, **COSINE)
    later = train(small(), data, epochs=epochs, **COSINE)
    assert rates(made) == rates(first)[:5] + rates(later)[5:]
    assert made.losses()[:5] == first.losses()[:5]
    (timed,) = told
    spent = [float(str(row["seconds"])) for row in made.log[:5]]
    assert timed == (pytest.approx(sum(spent)), pytest.approx(sum(spent[1:]) / 4))


def test_the_number_that_was_planned_changes_nothing(tmp_path):
    data = two_classes()
    made = train(small(), data, epochs=3, replan=lambda *_: 3, out=tmp_path / "run", **COSINE)
    assert same(made.model, train(small(), data, epochs=3, **COSINE).model)


def test_what_is_written_beside_the_model_is_how_long_it_was_trained(tmp_path):
    made = train(small(), two_classes(), epochs=3, replan=lambda *_: 2, out=tmp_path, **COSINE)
    assert made.row["epoch"] == 2
    assert json.loads((tmp_path / "model.json").read_text())["settings"]["epochs"] == "2"


def test_only_the_first_checkpoint_of_a_new_run_can_change_its_epochs(tmp_path):
    run: dict[str, Any] = {**COSINE, "epochs": 3, "out": tmp_path}
    whole = train(small(), two_classes(), **run)
    again = train(small(), two_classes(), replan=lambda *_: 1, **run)
    assert len(again.log) == 15
    assert same(again.model, whole.model)


@pytest.mark.parametrize(("every", "epochs"), [(1, 1), (3, 2), (5, 4)])
def test_a_checkpoint_within_an_epoch_will_do(every, epochs, tmp_path):
    run: dict[str, Any] = {**COSINE, "checkpoint_every": every, "epochs": 3}
    assert len(train(small(), two_classes(), replan=lambda *_: epochs, out=tmp_path, **run).log) == 5 * epochs


def test_a_later_first_checkpoint_is_refused_before_anything_is_trained(tmp_path):
    run: dict[str, Any] = {**COSINE, "checkpoint_every": 6, "epochs": 3}
    with pytest.raises(ConfigurationError, match="checkpoint_every of 5 steps"):
        train(small(), two_classes(), replan=lambda *_: 1, out=tmp_path / "run", **run)
    assert not (tmp_path / "run").exists()


def test_a_run_that_resumes_keeps_its_new_plan(tmp_path):
    data = two_classes()
    whole = train(small(), data, epochs=2, replan=lambda *_: 3, out=tmp_path / "whole", **COSINE)
    run: dict[str, Any] = {**COSINE, "epochs": 2, "out": tmp_path / "parts"}
    for step, epochs in ((3, 9), (5, 9), (7, 3), (12, 9)):  # in the first epoch, before it is noted, and after it
        with pytest.raises(KeyboardInterrupt):
            train(small(), data, replan=lambda *_, epochs=epochs: epochs, on_progress=stop_at(step), **run)
    parts = train(small(), data, replan=lambda *_: 9, **run)
    assert len(parts.log) == 15
    assert same(parts.model, whole.model)
    assert parts.losses() == whole.losses()
    again = train(small(), data, replan=lambda *_: 9, **run)  # all is done
    assert same(again.model, whole.model)
    with pytest.raises(RunError, match="another number of epochs"):
        train(small(), data, **{**run, "epochs": 1})
    assert len(train(small(), data, **{**run, "epochs": 4}).log) == 20  # and a finished run can be extended


def test_the_number_that_was_planned_at_first_can_be_asked_for_itself(tmp_path):
    run: dict[str, Any] = {**COSINE, "epochs": 3, "out": tmp_path}
    train(small(), two_classes(), replan=lambda *_: 2, **run)
    assert len(train(small(), two_classes(), **run).log) == 15
