"""The one loop: every recipe learns, a seed decides everything, and a kill costs nothing."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import shiftproof
from shiftproof.data import load_data
from shiftproof.errors import ConfigurationError, DataError, ModelError, RunError
from shiftproof.models import BlackBox, load_model, logits
from shiftproof.training import RECIPES, train
from shiftproof.training.state import load_state
from tests.training.samples import Small, small, two_classes

ROOT = Path(__file__).parents[2]
CHEAP: dict[str, dict[str, Any]] = {
    "macer": {"copies": 4},
    "smoothadv": {"steps": 2, "warmup": 1},
    "ada": {"steps": 2},
    "rda": {"length": 2},
    "rsda": {"length": 2, "images": 40, "budget": 10, "every": 2},
    "esda": {"length": 2, "images": 40, "budget": 20, "every": 2},
}
QUICK: dict[str, Any] = {"batch_size": 40, "lr": 0.1, "schedule": "cosine", "log_every": 5}


@pytest.fixture(scope="module")
def data():
    return two_classes()


def noisy_accuracy(trained, data):
    """Return the accuracy on images with the noise that the network was trained for."""
    (batch,) = data.batches(len(data))
    noise = torch.randn(batch.inputs.shape, generator=torch.Generator().manual_seed(0)) * trained.sigma
    return float((logits(trained.model, batch.inputs + noise).argmax(1) == batch.labels).float().mean())


def same_weights(one, other):
    first, second = one.state_dict(), other.state_dict()
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("name", [name for name in RECIPES if name != "denoiser" and "anchor" not in name])
def test_every_recipe_learns(name, data):
    # At a rate of 0.1 macer gives one answer to everything under most seeds.
    settings = {**QUICK, "lr": 0.02} if name == "macer" else QUICK
    trained = train("convnet", data, recipe=name, options=CHEAP.get(name), epochs=5, **settings)
    assert trained.log[-1]["step"] == 25
    assert trained.losses()[-1] < trained.losses()[0]
    assert noisy_accuracy(trained, data) >= 0.75  # chance is 0.5
    assert len(trained.tuples) == (2 if name in ("rsda", "esda") else 0)


@pytest.mark.parametrize("name", ["fouriermix+hcr", "esda", "smoothadv", "macer"])
def test_two_runs_with_one_seed_are_identical(name, data):
    some = data.take(80)
    options = {**CHEAP.get(name, {}), **({"every": 0.5} if name == "esda" else {})}
    runs = [train("convnet", some, recipe=name, options=options, epochs=1, seed=seed, **QUICK) for seed in (3, 3, 4)]
    assert same_weights(runs[0].model, runs[1].model)
    assert runs[0].losses() == runs[1].losses()
    assert runs[0].tuples == runs[1].tuples
    assert not same_weights(runs[0].model, runs[2].model)


KILLED = """
import os, signal
from shiftproof.training import train
from tests.training.samples import small, two_classes

def watch(step, steps, row):
    if step == 8:
        os.kill(os.getpid(), signal.SIGKILL)

train(small(dropout=0.2), two_classes(), out={out!r}, on_progress=watch, **{settings!r})
"""


def test_a_kill_in_the_middle_of_an_epoch_changes_nothing(data, tmp_path):
    settings: dict[str, Any] = {
        **{"recipe": "esda", "options": {"length": 2, "images": 20, "budget": 10, "every": 1.2}, "epochs": 3},
        **{"batch_size": 40, "log_every": 1, "checkpoint_every": 3, "ema": 0.9, "clip": 1.0, "lr": 0.05},
    }
    script = KILLED.format(out=str(tmp_path / "run"), settings=settings)
    killed = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert killed.returncode == -9, killed.stderr
    before = [json.loads(line)["step"] for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert before == [1, 2, 3, 4, 5, 6, 7, 8]
    resumed_at = []
    resumed = train(
        small(dropout=0.2),
        data,
        out=tmp_path / "run",
        on_progress=lambda step, steps, row: resumed_at.append(step),
        **settings,
    )
    assert resumed_at == [6, *range(7, 16)]  # the epochs have five steps each, the last checkpoint was at six
    torch.manual_seed(0)
    whole = train(small(dropout=0.2), data, **settings)
    assert same_weights(whole.model, resumed.model)
    assert whole.losses() == resumed.losses()
    assert whole.tuples == resumed.tuples
    assert len(whole.tuples) == 2
    rows = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, 16))
    again = train(small(dropout=0.2), data, out=tmp_path / "run", **settings)  # nothing is left to do
    assert same_weights(again.model, whole.model)


def test_the_folder_is_a_model(data, tmp_path):
    trained = train("convnet", data, recipe="gaussian", epochs=1, out=tmp_path / "run", validation=data, **QUICK)
    loaded = load_model(tmp_path / "run")
    assert isinstance(loaded, nn.Module)
    (batch,) = data.subset(range(8)).batches(8)
    assert torch.equal(logits(loaded, batch.inputs), logits(trained.model, batch.inputs))
    assert loaded.state_dict()["normalize.std"].flatten().tolist() == [1, 1, 1]  # no normalisation where there is noise
    right = logits(loaded, torch.cat([b.inputs for b in data.batches(50)])).argmax(1) == data.labels
    assert trained.clean_accuracy == pytest.approx(float(right.float().mean()))
    further = train(str(tmp_path / "run"), data, epochs=1, out=tmp_path / "further", **QUICK)
    assert same_weights(load_model(tmp_path / "further"), further.model)
    with pytest.raises(RunError, match="another recipe"):
        train("convnet", data, recipe="erm", epochs=1, out=tmp_path / "run", **QUICK)


class Threshold(nn.Module):
    """Says 1 where the mean of the image is above one half: right on every image of `grey`, often wrong under noise."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        distance = images.mean((1, 2, 3)) - 0.5
        return self.scale * torch.stack([-distance, distance], 1)


def test_a_recipe_with_noise_is_validated_under_its_noise(tmp_path):
    labels = torch.arange(2000) % 2
    grey = load_data(((0.475 + 0.05 * labels)[:, None, None, None].expand(-1, 3, 8, 8), labels))
    quick: dict[str, Any] = {"epochs": 1, "lr": 1e-9, "batch_size": 1000, "framing": "", "validation": grey}
    sigma = (
        0.025 * 192**0.5
    )  # the mean of 192 values is then off by 0.025 in standard deviation, as far as the threshold
    noisy = train(Threshold(), grey, recipe="gaussian", sigma=sigma, out=tmp_path, **quick)
    assert noisy.clean_accuracy == noisy.log[-1]["clean_accuracy"] == 1.0
    assert noisy.accuracy == noisy.log[-1]["noisy_accuracy"] == pytest.approx(0.8413, abs=0.025)  # 3 sd of 2,000
    assert "accuracy" not in noisy.log[-1]  # which of the two would it be?
    clean = train(Threshold(), grey, **quick)
    assert clean.accuracy == clean.clean_accuracy == clean.log[-1]["accuracy"] == 1.0
    assert noisy.to_row()["clean_accuracy"] == 1.0


def test_files_of_ones_own_and_objects(data, tmp_path):
    (tmp_path / "net.py").write_text("from tests.training.samples import small\n\ndef build():\n    return small()\n")
    settings: dict[str, Any] = {"epochs": 1, **QUICK}
    train(f"{tmp_path / 'net.py'}:build", data, out=tmp_path / "file", **settings)
    mine = small()
    trained = train(mine, data, out=tmp_path / "object", **settings)
    assert same_weights(load_model(tmp_path / "file"), trained.model)
    assert same_weights(mine, small())  # what is given stays as it was
    with pytest.raises(ModelError, match="as an object"):
        load_model(tmp_path / "object")


def test_the_average_of_the_weights_is_what_is_kept(data):
    plain = train(small(), data, epochs=2, lr=0.1, batch_size=40)
    averaged = train(small(), data, epochs=2, lr=0.1, batch_size=40, ema=0.5)
    assert averaged.losses() == plain.losses()  # it follows, and does not lead
    assert not same_weights(averaged.model, plain.model)


def test_clipping_bounds_what_a_step_can_do(data):
    start = small()
    settings: dict[str, Any] = {"epochs": 1, "batch_size": 200, "momentum": 0.0, "weight_decay": 0.0, "lr": 0.5}
    moved = train(start, data, clip=0.01, **settings).model
    change = torch.cat([(a - b).flatten() for a, b in zip(moved.parameters(), start.parameters(), strict=True)])
    assert change.detach().norm().item() == pytest.approx(0.5 * 0.01, rel=1e-3)


def test_low_precision_learns_the_same(data):
    losses = [train(small(), data, epochs=2, **QUICK, precision=each).losses() for each in ("float32", "bf16")]
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], abs=0.02)


def test_mistakes_are_told(data, tmp_path):
    with pytest.raises(DataError, match="no labels"):
        train(small(), torch.rand(8, 3, 16, 16))
    with pytest.raises(DataError, match="only one class"):
        train(small(), (torch.rand(8, 3, 16, 16), torch.zeros(8, dtype=torch.int64)))
    with pytest.raises(ModelError, match="black box"):
        train(BlackBox(lambda images: images.mean((2, 3))), data)
    with pytest.raises(ModelError, match="too few classes"):
        train(Small(), (torch.rand(8, 3, 16, 16), torch.arange(8) % 4))
    with pytest.raises(ConfigurationError, match="did you mean"):
        train(small(), data, epochz=3)
    with pytest.raises(ConfigurationError, match="epochs"):
        train(small(), data, epochs=0)
    with pytest.raises(ConfigurationError, match="ema"):
        train(small(), data, ema=1.0)
    with pytest.raises(RunError, match="loss is not finite at step"):
        train(small(), data, epochs=1, lr=1e30, batch_size=40, log_every=1)
    (tmp_path / "model.json").write_text("{}")
    with pytest.raises(ModelError, match="how the network"):
        load_model(tmp_path)


@pytest.mark.parametrize("goal", [None, "accuracy"])
def test_of_a_run_that_diverges_the_weights_of_its_checkpoints_are_kept(goal, data, tmp_path):
    settings: dict[str, Any] = {**QUICK, "validation": 0.2, "goal": goal, "checkpoint_every": 1, "log_every": 1}

    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = small()
            self.steps = nn.Parameter(torch.zeros(()), requires_grad=False)  # part of every state

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            scores: torch.Tensor = self.network(images)
            if self.training:
                self.steps.add_(1)
            return scores * torch.where(self.steps > 2, torch.nan, 1.0) if self.training else scores

    for _ in range(2):  # the same call ends in the same way
        with pytest.raises(RunError, match="not finite at step 3") as caught:
            train(Broken(), data, epochs=3, out=tmp_path, **settings)
        facts = json.loads((tmp_path / "model.json").read_text())
        assert facts["last"]["step"] in ((1, 2) if goal else (2,))
        assert f"the weights of step {facts['last']['step']}" in caught.value.facts["kept"]
    kept = load_file(tmp_path / "model.safetensors")
    name = f"best-{facts['last']['step']}.pt" if goal else "state-2.pt"
    state = load_state(tmp_path / name, torch.device("cpu"))
    held = state if goal else state["network"]
    assert all(torch.equal(kept[name], held[name]) for name in kept)


def test_labels_that_leave_classes_out_and_few_images(data):
    trained = train("convnet", data.subset([0, 1, 150]), epochs=1, batch_size=256)
    assert trained.log[-1]["step"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_esda_is_better_in_the_worst_case_than_erm(seed, data):
    settings: dict[str, Any] = {
        "epochs": 100,
        "batch_size": 40,
        "optimizer": "adam",
        "lr": 0.01,
        "schedule": "cosine",
        "framing": "",
    }
    options = {"length": 3, "every": 10, "images": 60, "budget": 40}
    worst = {}
    for name in ("erm", "esda"):
        used = options if name == "esda" else None
        trained = train(small(), data, recipe=name, options=used, seed=seed, **settings)
        found = shiftproof.search(trained.model, data, length=3, budget=100, images=100, seed=seed + 10)
        worst[name] = found.worst
    assert worst["esda"] > worst["erm"] + 0.1
