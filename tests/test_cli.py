"""The command line as a user meets it: a process, its output and its exit status."""

import json
import os
import signal
import subprocess
import sys

import pytest

from shiftproof.cli.commands import COMMANDS
from tests.processes import Stop, measured, shiftproof


def test_help_does_not_import_torch():
    command = [sys.executable, "-X", "importtime", "-m", "shiftproof", "--help"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "audit" in result.stdout
    imported = {line.rpartition("|")[2].strip() for line in result.stderr.splitlines()}
    assert "typer" in imported
    assert not imported & {"torch", "numpy", "scipy", "plotly", "PIL"}


@pytest.mark.parametrize(("given", "used"), [({}, "1"), ({"OPENBLAS_NUM_THREADS": "3"}, "3")])
def test_numpy_leaves_the_cores_to_pytorch_unless_told_otherwise(given, used):
    code = (
        "import os, sys\n"
        "from shiftproof.cli import main\n"
        "assert 'numpy' not in sys.modules\n"  # which would have read it already
        "sys.argv = ['shiftproof', '--version']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(os.environ['OPENBLAS_NUM_THREADS'])"
    )
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"} | given
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert result.stdout.split()[-1] == used


def test_version():
    from shiftproof import __version__

    assert shiftproof("--version").stdout == f"shiftproof {__version__}\n"


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("shifts", "gaussian_noise"),
        ("adapters", "rdumb"),
        ("sections", "corruptions"),
        ("models", "demo"),
        ("estimators", "combined"),
        ("searchers", "evolution"),
        ("spaces", "cifar"),
        ("streams", "ccc"),
        ("data", "demo"),
    ],
)
def test_list(kind, name):
    result = shiftproof("list", kind)
    assert result.returncode == 0, result.stderr
    assert name in result.stdout


def test_a_list_never_cuts_a_name_and_says_all_of_one():
    assert "difference_of_confidences" in shiftproof("list", "estimators", columns=60).stdout
    every = shiftproof("list", "adapters").stdout
    assert "entropy_margin=" not in every
    assert "shiftproof list adapters NAME also prints defaults and departures." in every
    one = shiftproof("list", "adapters", "asr").stdout
    assert "entropy_margin=0.4" in one
    assert "1,000 classes" in one
    assert "rdumb" not in one
    assert {"common", "enhance"} <= set(shiftproof("list", "shifts", "contrast").stdout.split())  # two of one name


def test_audit_and_report(tmp_path):
    options = ("--images", 10, "--shifts", "contrast,gaussian_noise", "--severities", "5", "--out", "run dir")
    sections = ("--sections", "clean,corruptions,worst_case,adaptation")
    result = shiftproof("audit", *options, *sections, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "run dir/report.html" in result.stdout
    assert "contrast" in result.stdout
    numbers = json.loads((tmp_path / "run dir" / "results.json").read_text())["numbers"]
    assert {"clean_accuracy", "corruption_accuracy", "accuracy.contrast"} <= set(numbers)
    assert "mce" not in numbers  # it is of ImageNet-C
    again = shiftproof("report", "run dir", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert result.stdout.splitlines()[-2:] == again.stdout.splitlines()[-2:]


ERRORS = {
    "missing model": (["audit", "--model", "nowhere.py:build"], 1, "nowhere.py"),
    "unknown shift": (["audit", "--shifts", "fogg"], 1, "did you mean"),
    "unknown list": (["list", "shift"], 1, "shifts"),
    "unknown name in a list": (["list", "adapters", "ars"], 1, "did you mean"),
    "no run": (["report", "."], 1, "no run in"),
    "bad severities": (["audit", "--severities", "a,b"], 2, "takes numbers, such as 1,3,5"),
    "bad choice": (["audit", "--budget", "tiny"], 2, "quick"),
    "bad executor": (["audit", "--executor", "cloud"], 1, "inline, processes, ray"),
    "unknown command": (["adit"], 2, "Did you mean 'audit'"),
    "function without a command": (
        ["adapt", "--model", "demo"],
        2,
        "Did you mean 'compare-methods', 'compare-on-stream'",
    ),
    "unknown option": (["audit", "--modle", "demo"], 2, "--model"),
}


@pytest.mark.parametrize(("arguments", "status", "says"), ERRORS.values(), ids=ERRORS.keys())
def test_errors_are_a_paragraph_and_a_status(tmp_path, arguments, status, says):
    result = shiftproof(*arguments, cwd=tmp_path)
    assert result.returncode == status
    assert says in result.stderr
    assert "Traceback" not in result.stderr


def test_debug_shows_the_traceback(tmp_path):
    for arguments in (["--debug", "report", "."], ["report", ".", "--debug"]):
        assert "Traceback" in shiftproof(*arguments, cwd=tmp_path).stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_an_interrupt_keeps_what_was_measured(tmp_path, number):
    stop = Stop(number, lambda: measured(tmp_path) >= 3)
    stopped = shiftproof("audit", "--out", tmp_path, "--images", 100, "--shifts", "contrast,fog", stop=stop)
    assert stopped.returncode == 130
    assert "the same command resumes it" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    assert measured(tmp_path) >= 3
    report = shiftproof("report", tmp_path)
    assert report.returncode == 1
    assert "Unfinished" in report.stdout
    assert (tmp_path / "report.html").is_file()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_says_what_it_does_in_the_list(name):
    assert COMMANDS[name].summary.endswith("."), name
