"""Training as practitioners do it: fine-tuning, goals, early ends, extension, mixed labels, whole folders."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import shiftproof
from shiftproof.data import DataSpec, ImageSet
from shiftproof.errors import ConfigurationError, ModelError, RunError
from shiftproof.models import class_names, load_model, logits
from shiftproof.models.heads import head_of, with_new_head
from shiftproof.training import rehearsal, train
from shiftproof.training.feed import balanced
from shiftproof.training.goals import GoalScore, best_step, stalled
from shiftproof.training.learning_layers import parameter_groups, stages
from shiftproof.training.mixed_targets import Targets, mixed
from shiftproof.training.recalibrating import recalibrate
from shiftproof.training.rehearsal import TrainingPlan
from shiftproof.training.settings import TrainingSettings
from shiftproof.training.splitting import share_of, split_off
from tests.training.samples import small, two_classes
from tests.training.test_start import NET, same, stop_at

QUICK: dict[str, Any] = {"epochs": 2, "batch_size": 40, "lr": 0.05, "log_every": 1}


@pytest.fixture(scope="module")
def data():
    return two_classes()


def module(folder: Path | str) -> nn.Module:
    loaded = load_model(folder)
    assert isinstance(loaded, nn.Module)
    return loaded


def ones(data: ImageSet) -> float:
    assert data.labels is not None
    return float(data.labels.float().mean())


@pytest.fixture
def net(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "layers.py").write_text(NET)
    (tmp_path / "mine" / "net.py").write_text("from layers import build\n")
    return f"{tmp_path / 'mine' / 'net.py'}:build"


@pytest.mark.parametrize(
    "settings",
    [
        {"schedule": "cosine", "ema": 0.9},
        {"goal": "accuracy", "validation": 0.2, "sampling": "balanced", "recalibrate": True},
        {"mix": "mixup", "label_smoothing": 0.1, "optimizer": "adamw", "lr": 0.002, "layer_decay": 0.5},
        {"mix": "cutmix", "class_weights": "balanced", "accumulate": 2, "precision": "bf16", "freeze": "0,1"},
    ],
    ids=["average", "goal", "mixup", "cutmix"],
)
def test_interrupted_and_extended_runs_of_ones_own_file_are_bit_identical(settings, net, data, tmp_path):
    longer = {**QUICK, **settings, "epochs": 3}
    shorter = {**longer, "epochs": 2}
    train(net, data, out=tmp_path / "whole", **shorter)
    whole = train(net, data, out=tmp_path / "whole", **longer)
    with pytest.raises(KeyboardInterrupt):
        train(net, data, out=tmp_path / "parts", on_progress=stop_at(7), **shorter)
    train(net, data, out=tmp_path / "parts", **shorter)
    with pytest.raises(KeyboardInterrupt):
        train(net, data, out=tmp_path / "parts", on_progress=stop_at(12), **longer)
    parts = train(net, data, out=tmp_path / "parts", **longer)
    assert same(parts.model, whole.model)
    assert parts.losses() == whole.losses()
    assert len(whole.losses()) == 3 * (len(data) if "validation" not in settings else 160) // 40
    assert parts.kept == whole.kept
    shutil.rmtree(tmp_path / "mine")  # neither its place nor that of the file matters
    moved = shutil.move(tmp_path / "parts", tmp_path / "elsewhere")
    assert same(module(moved), whole.model)
    assert class_names(load_model(moved)) == class_names(whole.model)


def test_certificates_and_audits_of_an_interrupted_run_are_those_of_a_whole_one(net, data, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train(net, data, out=whole, **QUICK)
    with pytest.raises(KeyboardInterrupt):
        train(net, data, out=parts, on_progress=stop_at(7), **QUICK)
    train(net, data, out=parts, **QUICK)
    shutil.rmtree(tmp_path / "mine")
    moved = shutil.move(parts, tmp_path / "elsewhere")
    few = data.subset(range(0, 200, 20))
    radii = [shiftproof.certify(each, few, sigma=0.1, n=100).radii.tolist() for each in (whole, moved)]
    assert radii[0] == radii[1]
    found = [
        shiftproof.audit(each, few, sections=("clean",), out=tmp_path / f"audit-{each.name}").numbers
        for each in (whole, Path(moved))
    ]
    assert found[0] == found[1]


def test_an_extended_run_at_a_constant_rate_is_the_longer_run(data, tmp_path):
    settings: dict[str, Any] = {**QUICK, "schedule": "constant"}
    train(small(), data, out=tmp_path / "run", **settings)
    extended = train(small(), data, out=tmp_path / "run", **{**settings, "epochs": 4})
    assert same(extended.model, train(small(), data, **{**settings, "epochs": 4}).model)


def test_what_cannot_be_extended_says_why(data, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(small(), data, out=tmp_path / "run", on_progress=stop_at(7), **QUICK)
    with pytest.raises(RunError, match="another number of epochs") as caught:
        train(small(), data, out=tmp_path / "run", **{**QUICK, "epochs": 3})
    assert caught.value.facts["expected"] == "epochs 2, as in the folder; more, once these are done"


def test_a_new_head_for_new_classes(data, tmp_path):
    three = (torch.rand(60, 3, 16, 16), torch.arange(60) % 3)
    with pytest.raises(ModelError, match="too few classes") as caught:
        train(small(), three, **QUICK)
    assert "--head new" in caught.value.facts["fix"]
    base = train("convnet", data, out=tmp_path / "base", **QUICK)
    tuned = train(tmp_path / "base", three, head="new", freeze="conv1,bn1", out=tmp_path / "tuned", **QUICK)
    loaded = module(tmp_path / "tuned")
    assert same(loaded, tuned.model)
    assert logits(loaded, torch.rand(2, 3, 16, 16)).shape == (2, 3)
    old, new = base.model.state_dict(), tuned.model.state_dict()
    kept = [name for name in old if name.startswith(("conv1", "bn1"))]
    assert kept
    assert all(torch.equal(old[name], new[name]) for name in kept)  # statistics of its normalisation too
    assert not all(torch.equal(old[name], new[name]) for name in old if not name.startswith(("conv1", "bn1", "linear")))


def test_heads_and_stages():
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    assert head_of(network)[0] == "2"
    assert with_new_head(network, 7)(torch.rand(1, 3, 8, 8)).shape == (1, 7)
    assert stages(nn.Sequential(nn.Identity(), network)) == ["1.0", "1.2"]
    groups = parameter_groups(nn.Sequential(network), TrainingSettings(layer_decay=0.5))
    assert [group["scale"] for group in groups] == [0.5, 1.0]
    with pytest.raises(ModelError, match="no last layer"):
        head_of(nn.ReLU())
    with pytest.raises(ConfigurationError, match="did you mean"):
        train(small(), two_classes(40), freeze="layerz", **QUICK)
    with pytest.raises(ConfigurationError, match="Nothing is left"):
        train(small(), two_classes(40), freeze="layers", **QUICK)


def test_the_best_checkpoint_is_kept_and_training_ends_early(data, tmp_path):
    # A rate that destroys what was learned: the first checkpoint of a good start is the best.
    good = train(small(), data, epochs=10, batch_size=40, lr=0.1, schedule="cosine").model
    settings: dict[str, Any] = {
        "batch_size": 40,
        "lr": 5.0,
        "momentum": 0.0,
        "goal": "accuracy",
        "patience": 2,
        "log_every": 1,
    }
    settings |= {"warmup": 4.0, "epochs": 30, "schedule": "constant", "validation": 0.2}
    trained = train(good, data, out=tmp_path / "run", **settings)
    scores = {int(str(row["step"])): float(str(row["goal"])) for row in trained.log if "goal" in row}
    assert trained.kept == min(step for step in scores if scores[step] == max(scores.values()))
    assert len(trained.log) < 30 * 4  # it ended early
    assert trained.accuracy == scores[trained.kept]
    again = train(good, data, out=tmp_path / "run", **settings)
    assert same(again.model, trained.model)
    assert again.kept == trained.kept
    with pytest.raises(ConfigurationError, match="not trained on"):
        train(small(), data, goal="accuracy", **QUICK)
    with pytest.raises(ConfigurationError, match="cannot be combined"):
        train(small(), data, patience=1, **QUICK)


@pytest.mark.parametrize("goal", ["accuracy", "corruptions", "certified", "worst_case"])
def test_goals_rank_a_trained_network_above_an_untrained_one(goal, data):
    score = GoalScore(goal, data.take(60), sigma=0.1, seed=0, batch_size=60)
    trained = train(small(), data, epochs=10, batch_size=40, lr=0.1, schedule="cosine")
    assert score(trained.model) > score(small().eval())
    assert score(trained.model) == score(trained.model)


def test_patience_counts_checkpoints():
    rows = [{"step": step, "goal": value} for step, value in enumerate([0.2, 0.4, 0.4, 0.1], 1)]
    assert best_step(rows) == 2  # the first of equals
    assert not stalled(rows[:3], 2)
    assert stalled(rows, 2)
    assert best_step([{"step": 1}]) is None


def test_a_share_for_validation(data):
    rest, held = split_off(data, 0.25, seed=0)
    assert (len(rest), len(held)) == (150, 50)
    assert not set(rest.keys.tolist()) & set(held.keys.tolist())
    assert abs(ones(held) - ones(data)) < 0.02
    assert share_of(DataSpec("0.1", size=8)) == 0.1
    assert share_of("photos") is None
    with pytest.raises(ConfigurationError, match="Invalid share"):
        share_of("1.5")
    trained = train(small(), data, validation=0.25, **QUICK)
    assert trained.accuracy is not None
    assert "train_accuracy" in trained.log[-1]


def test_mixed_weighted_and_softened_targets():
    views, labels = torch.rand(1, 4, 3, 8, 8), torch.tensor([0, 1, 0, 1])
    log = torch.randn(4, 2)
    for kind in ("mixup", "cutmix"):
        made, targets = mixed(views, Targets(labels), TrainingSettings(mix=kind), 3)
        assert not torch.equal(made, views)
        assert targets.others is not None
        assert targets.others.tolist() == [1, 0, 1, 0]
        one, other = Targets(labels).cross_entropy(log), Targets(targets.others).cross_entropy(log)
        torch.testing.assert_close(targets.cross_entropy(log), targets.share * one + (1 - targets.share) * other)
    inside = (
        (made[0] == views[0].roll(1, 0)).all(1).float().mean((1, 2))
    )  # the share of pixels that are the neighbour's
    torch.testing.assert_close(inside, torch.full((4,), 1 - targets.share))
    soft = Targets(labels, smoothing=0.2, weights=torch.tensor([1.0, 3.0]))
    expected = nn.functional.cross_entropy(log, labels, label_smoothing=0.2, reduction="none")
    torch.testing.assert_close(soft.cross_entropy(log), expected * torch.tensor([1.0, 3, 1, 3]))
    for wrong in ({"mix": "mixup"}, {"label_smoothing": 0.1}, {"class_weights": "balanced"}):
        with pytest.raises(ConfigurationError, match="'macer'"):
            train("convnet", two_classes(40), recipe="macer", epochs=1, **wrong)


def test_balanced_sampling_has_every_class_equally_often(data):
    uneven = data.subset([*range(20), 190])
    labels = uneven.labels
    order = balanced(uneven.order(0, "x"), labels)
    assert len(order) == len(uneven)
    assert abs(int((labels[order] == 0).sum()) - int((labels[order] == 1).sum())) <= 1


def test_statistics_are_those_of_the_images():
    network = nn.Sequential(nn.BatchNorm2d(3)).eval()
    images = [torch.rand(50, 3, 4, 4) * 3 + 1 for _ in range(4)]
    recalibrate(network, images)
    whole = torch.cat(images)
    torch.testing.assert_close(network[0].running_mean, whole.mean((0, 2, 3)))
    torch.testing.assert_close(network[0].running_var, whole.var((0, 2, 3)), rtol=0.02, atol=0.02)
    assert network[0].momentum == 0.1
    assert not network.training


def test_augmix_as_published_has_no_noise(data):
    plain = train("convnet", data, recipe="augmix", **QUICK)
    assert plain.sigma == 0.0
    assert plain.model.state_dict()["normalize.std"].flatten()[0] != 1  # so it normalises as erm does
    assert train("convnet", data, recipe="augmix", sigma=0.1, **QUICK).sigma == 0.1


def test_a_folder_says_what_it_is(net, data, tmp_path):
    train(net, data, validation=0.2, out=tmp_path / "run", **QUICK)
    text = (tmp_path / "run" / "README.md").read_text()
    assert "source/net.py:build" in text
    assert "Licence" in text
    facts = (tmp_path / "run" / "model.json").read_text()
    assert str(tmp_path) not in facts
    assert str(tmp_path) not in text
    assert {each.name for each in (tmp_path / "run" / "source").iterdir()} == {"net.py", "layers.py"}


def test_a_file_that_came_with_a_folder_is_not_run(net, data, tmp_path):
    train(net, data, out=tmp_path / "run", **QUICK)
    (tmp_path / "run" / "source" / "layers.py").write_text(NET + "\nprint('hello')\n")
    with pytest.raises(ModelError, match="was not run") as caught:
        load_model(tmp_path / "run")
    assert "--weights" in caught.value.facts["fix"]


def test_a_copy_that_does_not_build_keeps_the_path(data, tmp_path):
    lines = "from pathlib import Path\n" + NET.replace(
        "    net =", "    Path(__file__).with_name('w.txt').read_text()\n    net ="
    )
    (tmp_path / "net.py").write_text(lines)
    (tmp_path / "w.txt").write_text("weights")
    with pytest.warns(UserWarning, match="cannot be moved"):
        trained = train(f"{tmp_path / 'net.py'}:build", data, out=tmp_path / "run", **QUICK)
    assert json.loads((tmp_path / "run" / "model.json").read_text())["model"].startswith(str(tmp_path))
    assert same(module(tmp_path / "run"), trained.model)


def test_a_step_is_timed_once_it_has_settled(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(rehearsal, "time", SimpleNamespace(perf_counter=lambda: clock[0]))

    class Slow:
        """A loop that looks for kernels in its next round, and takes 10 ms a step."""

        step, device, feed = 3, torch.device("cpu"), SimpleNamespace(steps=1000)

        def run(self, stop: int, _: Any) -> None:
            clock[0] += 0.01 * (stop - self.step) + (2.0 if self.step == 3 else 0.0)
            self.step = stop

    loop: Any = Slow()
    assert rehearsal._settled(loop, 3.0) == pytest.approx(0.01)
    assert loop.step < 1000


def test_a_forecast_comes_before_training_and_changes_nothing(data):
    told: list[TrainingPlan] = []
    trained = train(small(), data, on_plan=told.append, **QUICK)
    assert [(plan.steps, plan.batch, plan.epochs) for plan in told] == [(10, 40, 2)]
    assert told[0].seconds > 0
    assert str(told[0]) == "10 steps of 40 images, 2 epochs"
    assert same(trained.model, train(small(), data, **QUICK).model)


def test_trackers_are_named_and_must_be_there(data, tmp_path):
    with pytest.raises(ConfigurationError, match="did you mean"):
        train(small(), data, track=["wandbb"], out=tmp_path / "a", **QUICK)
    with pytest.raises(ConfigurationError, match="not installed"):
        train(small(), data, track=["mlflow"], out=tmp_path / "b", **QUICK)
    train(small(), data, track=["none"], out=tmp_path / "c", **QUICK)


def test_anchored_recipes_hold_on_to_what_the_network_said(data):
    good = train(small(), data, epochs=20, batch_size=40, lr=0.1, schedule="cosine").model
    images = torch.cat([batch.inputs for batch in data.batches(100)])
    settings: dict[str, Any] = {"epochs": 3, "batch_size": 40, "lr": 0.02, "schedule": "cosine", "framing": ""}
    moved = {}
    for name, options in (("spectra", {}), ("spectra+anchor", {"corrected": False})):
        tuned = train(good, data, recipe=name, options=options, **settings).model
        moved[name] = float((logits(tuned, images).softmax(1) - logits(good, images).softmax(1)).abs().mean())
    assert moved["spectra+anchor"] < moved["spectra"]
    with pytest.raises(ConfigurationError, match="trained network"):
        train("convnet", data, recipe="mixed+anchor", **settings)
