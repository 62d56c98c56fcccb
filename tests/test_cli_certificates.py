"""`shiftproof certify` and `spectrum` as a user meets them."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shiftproof.cli import app
from shiftproof.errors import ModelError, RunError, ShiftproofError
from tests.processes import shiftproof

FEW = ("--images", 6, "--n0", 20, "--n", 100, "--alpha", 0.01)


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Run a command in this process: `main`, which tells errors, is the same for all commands and tested with them."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "200"})


def test_certify_writes_certificates_and_resumes(tmp_path, command):
    options = ("certify", "--sigma", 0.03, *FEW, "--shift", "fog@3", "--shift", "contrast@1", "--out", "run dir")
    result = shiftproof(*options, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "mACR" in result.stdout
    content = json.loads((tmp_path / "run dir" / "certificate.fog@3.json").read_text())
    assert content["terms"]["shift"] == "fog@3"
    assert len(content["images"]) == 6
    assert (tmp_path / "run dir" / "certificate.contrast@1.json").exists()
    assert command(*options).stdout == result.stdout


def test_certify_asks_for_a_radius(tmp_path, command):
    result = command("certify", "--sigma", 0.03, *FEW, "--rule", "radius", "--radius", 0.02)
    assert result.exit_code == 0, result.output
    content = json.loads((tmp_path / "shiftproof-certificate" / "certificate.json").read_text())
    assert {row[content["columns"].index("radius")] for row in content["images"]} == {0.0, 0.02}


def test_the_radius_rule_says_what_its_average_is(command):
    result = command("certify", "--sigma", 0.03, *FEW, "--rule", "radius", "--radius", 0.02)
    assert "at least 0.02: the average is that times the share" in result.stdout
    assert [line.split()[2:] for line in result.stdout.splitlines() if line.startswith("L2")] == [["ACR", "0.02"]]


def test_the_table_has_the_same_distances_for_every_model(tmp_path, command):
    result = command("certify", "--sigma", 0.1, "--images", 6, "--n0", 20, "--n", 200, "--at", "0.05,0.02")
    head, levels, row = (
        line.split() for line in result.stdout.splitlines() if line.startswith(("L2", "Linf", "clean"))
    )
    assert head == ["L2", "distance", "ACR", "0.02", "0.03", "0.05", "0.1", "0.25", "0.5", "1"]
    assert levels[2:] == ["0.09", "0.14", "0.23", "0.46", "1.15", "2.30", "4.60"]  # by sqrt(3072), in 1 / 255
    assert len(row) == 9
    content = json.loads((tmp_path / "shiftproof-certificate" / "certificate.json").read_text())
    assert [*content["numbers"]["certified_accuracy_at"]] == head[3:]


def test_a_family_gives_macr_by_frequency_and_resumes(tmp_path, command):
    few = ("--images", 2, "--n0", 10, "--n", 50, "--alpha", 0.01)
    options = ("certify", "--sigma", 0.03, *few, "--shift", "common", "--severities", "1,5")
    result = command(*options)
    assert result.exit_code == 0, result.exception
    content = json.loads((tmp_path / "shiftproof-certificate" / "suite.json").read_text())
    assert content["numbers"]["shifts"] == 30
    assert [len(content["groups"][name]) for name in ("low", "mid", "high")] == [10, 10, 10]
    by_shift = {row["shift"]: row["acr"] for row in content["shifts"]}
    assert len(by_shift) == 31
    for name, labels in content["groups"].items():
        mean = sum(by_shift[label] for label in labels) / len(labels)
        assert content["numbers"][f"macr.{name}"] == pytest.approx(mean)
        assert f"{name} " in result.stdout
    assert command(*options).stdout == result.stdout


def test_the_rules_options_are_options_of_the_command(command):
    result = command("certify", "--sigma", 0.03, *FEW, "--tolerance", 0, "--joint", "--wrong")
    assert result.exit_code == 0, result.exception
    assert "rule fixed with all 100 samples would show" in result.stdout
    assert "All 6 certificates hold together, but for a probability of 0.01" in result.stdout
    assert "Certified but wrong:" in result.stdout
    assert command("certify", "--sigma", 0.03, *FEW, "--rule", "fixed", "--no-futility", "--out", "b").exit_code == 0


def test_a_certificate_is_never_overwritten_by_one_on_other_terms(tmp_path, command):
    assert command("certify", "--sigma", 0.03, *FEW).exit_code == 0
    path = tmp_path / "shiftproof-certificate" / "certificate.json"
    before = path.read_bytes()
    for other in (("--sigma", 0.5), ("--sigma", 0.03, "--rule", "fixed"), ("--sigma", 0.03, "--n", 200)):
        result = command("certify", *FEW, *other)
        assert isinstance(result.exception, RunError), other
        assert "with other settings" in str(result.exception)
        assert "--out" in str(result.exception)
        assert path.read_bytes() == before
    assert command("certify", "--sigma", 0.03, *FEW).exit_code == 0
    assert command("certify", "--sigma", 0.5, *FEW, "--out", "another").exit_code == 0


def test_the_guides_commands_work_one_after_another(tmp_path, command):
    guide = Path(__file__).parents[1] / "docs" / "guide" / "certificates.md"
    lines = re.findall(r"^\$ shiftproof (certify .*)$", guide.read_text().replace("\\\n", ""), re.MULTILINE)
    assert len(lines) >= 3
    for line in lines:
        asked = re.sub(r"--n \d+", "--n 50", line.replace("--images 100", "--images 2")).split()
        result = command(*asked, "--n0", 10, "--alpha", 0.01)
        assert result.exit_code == 0, (line, result.exception)


def test_spectrum(tmp_path, command):
    result = command(
        "spectrum", "--images", 20, "--step", 8, "--strengths", 8, "--alphas", 1, "--corruptions", "fog,contrast"
    )
    assert result.exit_code == 0, result.output
    assert "contrast" in result.stdout
    content = json.loads((tmp_path / "shiftproof-spectrum" / "spectrum.json").read_text())
    assert set(content["bands"]) == {"low", "mid", "high"}


ERRORS = {
    "no sigma": (["certify"], "--sigma"),
    "zero sigma": (["certify", "--sigma", "0"], "sigma above 0"),
    "negative sigma": (["certify", "--sigma=-1"], "sigma above 0"),
    "sigma of 255": (["certify", "--sigma", "25"], "scale 0 to 255, use sigma=0.098"),
    "alpha": (["certify", "--sigma", "0.1", "--alpha", "1.5"], "alpha in (0, 1)"),
    "few samples": (["certify", "--sigma", "0.1", "--n", "5"], "certify nothing"),
    "n0 over n": (["certify", "--sigma", "0.1", "--n0", "500", "--n", "100"], "n0 from 1 to n"),
    "rule": (["certify", "--sigma", "0.1", "--rule", "sequentiel"], "sequential"),
    "radius alone": (["certify", "--sigma", "0.1", "--radius", "1"], "rule='radius'"),
    "far radius": (["certify", "--sigma", "0.1", "--rule", "radius", "--radius", "1"], "at most 0.3"),
    "shift": (["certify", "--sigma", "0.1", "--shift", "fogg@3"], "did you mean"),
    "dtype": (["certify", "--sigma", "0.1", "--dtype", "int8"], "bfloat16"),
    "suite": (["certify", "--sigma", "0.1", "--suite", "cifar-g"], "cifar-f"),
    "suite and shift": (
        ["certify", "--sigma", "0.1", "--suite", "cifar-c", "--shift", "fog@3"],
        "suite= cannot be combined",
    ),
    "measure": (["spectrum", "--measure", "loss"], "acr"),
    "step": (["spectrum", "--step", "0"], "step"),
}


@pytest.mark.parametrize(("arguments", "says"), ERRORS.values(), ids=ERRORS.keys())
def test_bad_options_are_told(command, arguments, says):
    result = command(*arguments)
    refused = isinstance(result.exception, ShiftproofError)
    assert refused or result.exit_code == 2
    assert says in " ".join((str(result.exception) if refused else result.output).split())


def test_a_model_that_adapts_is_refused(tmp_path, command):
    (tmp_path / "adapting.py").write_text(
        "import shiftproof\nfrom shiftproof.adapters import adapt\n"
        "def build():\n    return adapt(shiftproof.load_model('demo'), 'bn')\n"
    )
    result = command("certify", "--model", "adapting.py:build", "--sigma", 0.1, "--images", 4)
    assert isinstance(result.exception, ModelError)
    assert "adapts" in str(result.exception)
    assert "freeze it first" in str(result.exception)
