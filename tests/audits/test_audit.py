"""The audit end to end on the demo: what it writes, resumes, refuses and survives."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import shiftproof
from shiftproof import shifts
from shiftproof.errors import ConfigurationError, DataError, ModelError, RunError
from tests.processes import Stop, measured, python

SMALL: dict[str, Any] = {
    "images": 12,
    "shifts": ["contrast", "gaussian_noise"],
    "severities": [2.5, 5],
    "sections": ["clean", "corruptions", "spectrum", "adaptation"],  # all of them: tests/runs/test_survival.py
    "methods": ["bn", "tent"],
}


def without_times(folder: Path) -> str:
    content = json.loads((folder / "results.json").read_text())
    del content["timing"]
    return json.dumps(content)


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return shiftproof.audit("demo", "demo", out=tmp_path_factory.mktemp("reference"), **SMALL)


def test_numbers_are_what_a_plain_loop_gives(reference):
    model, data = shiftproof.load_model("demo"), shiftproof.load_data("demo").take(SMALL["images"], seed=0)
    (batch,) = data.batches(SMALL["images"])
    assert batch.labels is not None
    with torch.inference_mode():
        clean = model(batch.inputs).argmax(1).eq(batch.labels)
        shifted = [
            model(shifts.parse(f"contrast@{severity}")(batch.inputs, batch.keys)).argmax(1).eq(batch.labels)
            for severity in (2.5, 5)
        ]
    assert reference.numbers["clean_accuracy"] == pytest.approx(clean.double().mean().item())
    assert reference.numbers["accuracy.contrast"] == pytest.approx(torch.stack(shifted).double().mean().item())
    assert reference.numbers["clean_accuracy"] > 0.8


def test_files_are_whole_and_agree(reference):
    content = json.loads((reference.folder / "results.json").read_text())
    assert content["numbers"] == dict(reference.numbers)
    rows = (reference.folder / "results.csv").read_text().splitlines()
    assert len(rows) == len(content["cells"]) + 1
    assert "cost most; the lowest is" in reference.report.read_text()


def test_a_second_call_measures_nothing_and_changes_nothing(reference):
    before = (reference.folder / "results.json").read_bytes()
    heard = []
    shiftproof.audit("demo", "demo", out=reference.folder, on_progress=lambda *news: heard.append(news), **SMALL)
    assert [(done == total, result) for done, total, result in heard] == [(True, None)]
    assert (reference.folder / "results.json").read_bytes() == before


@pytest.mark.parametrize("options", [{"batch_size": 7}, {"executor": "processes:2"}], ids=str)
def test_batch_size_and_executor_do_not_change_the_results(reference, tmp_path, options):
    result = shiftproof.audit("demo", "demo", out=tmp_path, **SMALL, **options)
    assert without_times(result.folder) == without_times(reference.folder)


def test_kill_9_and_resume_gives_the_same_results(reference, tmp_path):
    script = f"import shiftproof; shiftproof.audit('demo', 'demo', out={str(tmp_path)!r}, **{SMALL!r})"
    kills = 0
    for least in (1, 6, 40, 120):  # of some two hundred
        stop = Stop(signal.SIGKILL, lambda least=least: measured(tmp_path) >= least)  # type: ignore[misc]
        kills += python(script, tmp_path, stop).returncode == -signal.SIGKILL
    assert kills > 1
    result = shiftproof.audit("demo", "demo", out=tmp_path, **SMALL)
    assert without_times(result.folder) == without_times(reference.folder)


@pytest.mark.slow
def test_ten_kills_of_the_whole_demo_audit(tmp_path):
    """The walking skeleton's promise at full size: ten kills at random moments, then the same bytes."""
    command = [sys.executable, "-m", "shiftproof", "audit", "--out"]
    subprocess.run([*command, str(tmp_path / "whole")], check=True, capture_output=True)
    chance = random.Random(1)
    for _ in range(10):
        process = subprocess.Popen([*command, str(tmp_path / "killed")], stdout=subprocess.DEVNULL)
        time.sleep(chance.uniform(2, 12))
        process.kill()
        process.wait()
    subprocess.run([*command, str(tmp_path / "killed")], check=True, capture_output=True)
    assert without_times(tmp_path / "killed") == without_times(tmp_path / "whole")


def test_a_class_name_with_markup_is_text_in_the_report(tmp_path):
    for name in ("<script>alert(1)</script>".replace("/", "\N{DIVISION SLASH}"), "plain"):
        (tmp_path / "data" / name).mkdir(parents=True)
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (4, 16, 16, 3), dtype=np.uint8)
    for number, image in enumerate(pixels):
        folder = sorted((tmp_path / "data").iterdir())[number % 2]
        Image.fromarray(image).save(folder / f"{number}.png")
    result = shiftproof.audit(
        nn.Sequential(nn.Flatten(), nn.Linear(768, 2)), tmp_path / "data", out=tmp_path / "run", shifts=["contrast"]
    )
    assert "<script>alert" not in result.report.read_text()
    assert "&lt;script&gt;alert" in result.report.read_text()


class Constant(nn.Module):
    """A model with a fixed answer of any shape or value."""

    answer: torch.Tensor

    def __init__(self, answer):
        super().__init__()
        self.register_buffer("answer", torch.as_tensor(answer, dtype=torch.float32))

    def forward(self, images):
        return self.answer.expand(len(images), *self.answer.shape)


def labelled(labels):
    labels = np.asarray(labels)
    return np.zeros((len(labels), 8, 8, 3), np.uint8), labels


BAD: dict[str, tuple[Any, Any, dict[str, Any], type[Exception], str]] = {
    "outputs are NaN": (Constant([float("nan"), 1.0]), labelled([0, 1]), {}, ModelError, "NaN"),
    "outputs are images": (Constant([[[1.0]]]), labelled([0, 1]), {}, ModelError, "N"),
    "one output": (Constant([1.0]), labelled([0, 1]), {}, ModelError, "2"),
    "a label too large": (Constant([0.0, 1.0]), labelled([0, 2]), {}, DataError, "Labels and model outputs"),
    "one class": (Constant([0.0, 1.0]), labelled([1, 1]), {}, DataError, "same label"),
    "no labels": (Constant([0.0, 1.0]), np.zeros((4, 8, 8, 3), np.uint8), {}, DataError, "no labels"),
    "missing model": ("nowhere.py:build", "demo", {}, ModelError, "nowhere.py"),
    "missing data": ("demo", "nowhere/", {}, DataError, "nowhere"),
    "unknown shift": ("demo", "demo", {"shifts": ["fogg"]}, ConfigurationError, "fog"),
    "unknown section": ("demo", "demo", {"sections": ["cleen"]}, ConfigurationError, "clean"),
    "unknown budget": ("demo", "demo", {"budget": "huge"}, ConfigurationError, "quick"),
    "severity 7": ("demo", "demo", {"severities": [7]}, ConfigurationError, "from 0"),
    "severity 0": ("demo", "demo", {"severities": [0]}, ConfigurationError, "clean input"),
    "no images": ("demo", "demo", {"images": 0}, ConfigurationError, "must be positive"),
    "batch size 0": ("demo", "demo", {"batch_size": 0}, ConfigurationError, "batch size"),
    "no such device": ("demo", "demo", {"device": "cuda:99"}, ConfigurationError, "cuda:99"),
}


@pytest.mark.parametrize(("model", "data", "options", "kind", "says"), BAD.values(), ids=BAD.keys())
def test_bad_input_gets_an_error_that_says_what_to_do(tmp_path, model, data, options, kind, says):
    with pytest.raises(kind, match=says):
        shiftproof.audit(model, data, out=tmp_path / "run", **{"shifts": ["contrast"], **options})
    assert not (tmp_path / "run" / "results.json").exists()


def test_a_run_directory_of_another_model_is_refused(reference):
    before = (reference.folder / "results.json").read_bytes()
    other = shiftproof.load_model("demo")
    assert isinstance(other, nn.Module)
    with torch.no_grad():
        next(other.parameters()).mul_(1.01)
    with pytest.raises(RunError, match="another model"):
        shiftproof.audit(other, "demo", out=reference.folder, **SMALL)
    assert (reference.folder / "results.json").read_bytes() == before


class BreaksUnderNoise(nn.Module):
    """Answers NaN when an image is noisier than a clean one."""

    def forward(self, images):
        rough = (images[..., 1:] - images[..., :-1]).abs().mean((1, 2, 3))
        return torch.stack([rough, torch.where(rough > 0.1, float("nan"), 0.0)], 1)


def test_failing_cells_are_reported_and_the_rest_is_kept(tmp_path):
    images = np.full((6, 8, 8, 3), 128, np.uint8)
    options = {**SMALL, "images": None, "sections": ["clean", "corruptions"]}  # others draw noise of their own
    result = shiftproof.audit(BreaksUnderNoise(), (images, [0, 1] * 3), out=tmp_path, **options)
    assert result.failed
    assert all("gaussian_noise" in failure for failure in result.failed)
    assert "accuracy.contrast" in result.numbers
    assert "NaN" in result.report.read_text()


@pytest.mark.skipif(os.geteuid() == 0 and not Path("/dev/full").exists(), reason="needs a place that cannot be written")
def test_an_unwritable_run_directory_is_an_error_a_user_can_act_on(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match=r"file"):
        shiftproof.audit("demo", "demo", out=tmp_path / "file" / "run", **SMALL)


def test_reopen_writes_the_same_files_from_the_store_alone(reference):
    from shiftproof.audits import gate

    before = (reference.folder / "results.json").read_bytes()
    for name in ("report.html", "results.json", "results.csv"):
        (reference.folder / name).unlink()
    again = gate(reference.folder)
    assert (reference.folder / "results.json").read_bytes() == before
    assert again.numbers == reference.numbers
    assert again.report.exists()
