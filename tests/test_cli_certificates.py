"""`shiftproof certify` and `spectrum` as a user meets them."""

import json

import pytest
from typer.testing import CliRunner

from shiftproof.cli import app
from shiftproof.errors import ModelError, ShiftproofError
from tests.test_cli import shiftproof

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
    "alpha": (["certify", "--sigma", "0.1", "--alpha", "1.5"], "alpha in (0, 1)"),
    "few samples": (["certify", "--sigma", "0.1", "--n", "5"], "certify nothing"),
    "n0 over n": (["certify", "--sigma", "0.1", "--n0", "500", "--n", "100"], "n0 from 1 to n"),
    "rule": (["certify", "--sigma", "0.1", "--rule", "sequentiel"], "did you mean"),
    "radius alone": (["certify", "--sigma", "0.1", "--radius", "1"], "rule='radius'"),
    "far radius": (["certify", "--sigma", "0.1", "--rule", "radius", "--radius", "1"], "at most 0.3"),
    "shift": (["certify", "--sigma", "0.1", "--shift", "fogg@3"], "did you mean"),
    "dtype": (["certify", "--sigma", "0.1", "--dtype", "int8"], "bfloat16"),
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
