"""`shiftproof train` as a user meets it: a process, its output, its files, and what comes next."""

import json

import pytest

from tests.processes import shiftproof

SMALL = ("--data", "demo", "--size", 16, "--images", 60, "--model", "convnet", "--batch-size", 20, "--epochs", 1)


def test_train_says_where_the_model_is_and_it_goes_straight_into_a_certificate(tmp_path):
    recipe = ("--recipe", "augmix+hcr", "--sigma", 0.25, "--option", "lam=20", "--log-every", 1)
    first = shiftproof("train", *SMALL, *recipe, "--out", "run", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "augmix+hcr, sigma 0.25" in first.stdout
    assert "3 steps" in first.stdout
    rows = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert f"{rows[-1]['loss']:.4f}" in first.stdout
    assert json.loads((tmp_path / "run" / "model.json").read_text())["options"]["lam"] == "20.0"
    assert shiftproof("train", *SMALL, *recipe, "--out", "run", cwd=tmp_path).stdout == first.stdout
    command = first.stdout.partition("next")[2].split()
    assert command[1:4] == ["certify", "--sigma", "0.25"]  # what such a network is for
    certified = shiftproof(*command[1:], "--images", 4, "--n", 200, cwd=tmp_path)
    assert certified.returncode == 0, certified.stderr


def test_a_network_without_noise_goes_straight_into_an_audit(tmp_path):
    first = shiftproof("train", *SMALL, "--out", "run", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    command = first.stdout.partition("next")[2].split()
    assert command[-4:] == ["--data", "demo", "--size", "16"]  # as they were trained on
    audited = shiftproof(*command[1:], "--sections", "clean", "--images", 20, "--out", "audit", cwd=tmp_path)
    assert audited.returncode == 0, audited.stderr
    assert (tmp_path / "audit" / "report.html").stat().st_size > 1000


def test_networks_for_noise_are_judged_under_noise(tmp_path):
    judged = ("--validation", "demo", "--size", 16, "--out", "run")
    result = shiftproof("train", *SMALL, "--recipe", "gaussian", "--sigma", 0.5, *judged, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    last = json.loads((tmp_path / "run" / "log.jsonl").read_text().splitlines()[-1])
    both = f"{last['noisy_accuracy']:.4f} under noise of sigma 0.5, {last['clean_accuracy']:.4f} clean, on demo"
    assert both in result.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--recipe", "fouriermx"), "did you mean  fouriermix"),
        (("--option", "lam"), "name=value"),
    ],
)
def test_mistakes_are_one_paragraph(arguments, says, tmp_path):
    result = shiftproof("train", *SMALL, *arguments, "--out", "run", cwd=tmp_path)
    assert result.returncode in (1, 2)
    assert says in result.stderr
    assert "Traceback" not in result.stderr
