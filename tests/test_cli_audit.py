"""`shiftproof audit --config`, `--require`, `gate` and `compare` from the command line, in this process."""

import inspect
import json
import tomllib
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest
from typer.testing import CliRunner

import shiftproof
from shiftproof.cli import app
from shiftproof.cli.commands import COMMANDS
from shiftproof.cli.derive import options_for
from shiftproof.errors import ConfigurationError

RUNNER = CliRunner()
CONFIG = """
images = 24
shifts = ["fog", "contrast"]
severities = [5]
sections = ["clean", "corruptions"]
on-bad-file = "skip"
require = ["clean > 50%"]
"""
NOT_OPTIONS = {"on_progress", "on_plan", "command"}


def invoke(*arguments):
    return RUNNER.invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "120"})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audit")
    (folder / "audit.toml").write_text(CONFIG)
    result = invoke("audit", "--config", folder / "audit.toml", "--out", folder / "run", "--shifts", "fog")
    assert result.exit_code == 0, result.output
    return folder


def test_a_config_gives_what_the_command_line_leaves_open(run):
    settings = json.loads((run / "run" / "results.json").read_text())["settings"]
    assert settings["images"] == 24
    assert settings["shifts"] == ["fog"]  # the command line wins
    assert settings["severities"] == [5.0]


def test_the_plan_is_announced_on_the_error_stream(run):
    result = invoke("audit", "--config", run / "audit.toml", "--out", run / "announced", "--shifts", "fog")
    assert "corruptions  about" in result.stderr
    assert "all          about" in result.stderr
    assert "holds  clean > 0.5: it is" in result.stdout


def test_options_have_the_same_names_in_the_library_and_in_a_config():
    options = options_for(COMMANDS["audit"])
    assert {option.name for option in options if option.owner == "verb"} == (
        set(inspect.signature(shiftproof.audit).parameters) - NOT_OPTIONS
    )
    assert {option.name for option in options if option.owner == "model"} == (
        set(inspect.signature(shiftproof.load_model).parameters) - {"spec", "device"}
    )
    assert {option.name for option in options if option.owner == "data"} == (
        set(inspect.signature(shiftproof.load_data).parameters) - {"source", "classes"}  # the model's say the same
    )
    assert {option.name for option in options if option.owner == "executor"} == {
        *("address", "gpus_per_worker", "timeout")
    }


def test_a_config_is_keyword_arguments_of_the_library(run, tmp_path):
    options = {key.replace("-", "_"): value for key, value in tomllib.loads(CONFIG).items()}
    data = shiftproof.DataSpec("demo", on_bad_file=options.pop("on_bad_file"))
    result = shiftproof.audit("demo", data, out=tmp_path, **{**options, "shifts": ["fog"]})
    assert result.passed
    assert result.numbers == json.loads((run / "run" / "results.json").read_text())["numbers"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('modle = "demo"', "did you mean  model"),
        ("[audit]\nimages = 3", "There is no option in"),
        ("images = true", "cannot have this value"),
        ("shifts = [[1]]", "cannot have this value"),
        ("images = = 3", "line 1"),
        ('config = "other.toml"', "There is no option in"),
    ],
)
def test_a_config_that_is_not_understood_says_why(tmp_path, text, says):
    (tmp_path / "bad.toml").write_text(text)
    result = invoke("audit", "--config", tmp_path / "bad.toml", "--out", tmp_path / "run")
    assert isinstance(result.exception, ConfigurationError)
    assert says in str(result.exception)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("content", [None, b"\xff\xfe"], ids=["missing", "no text"])
def test_a_config_that_cannot_be_read_says_why(tmp_path, content):
    path = tmp_path / "bad.toml"
    if content is not None:
        path.write_bytes(content)
    result = invoke("audit", "--config", path)
    assert isinstance(result.exception, ConfigurationError)
    assert "Cannot read the configuration" in str(result.exception)


@pytest.mark.parametrize("text", ['images = "many"', "images = 1.5", 'budget = "tiny"'])
def test_values_of_a_config_are_checked_as_on_the_command_line(tmp_path, text):
    (tmp_path / "bad.toml").write_text(text)
    result = invoke("audit", "--config", tmp_path / "bad.toml")
    assert result.exit_code == 2
    assert f"--{text.partition(' ')[0]}" in result.output


def test_a_requirement_that_does_not_hold_is_status_3_and_named(run):
    result = invoke("gate", run / "run", "--require", "clean > 1", "-r", "clean > 0", "--junit", run / "junit.xml")
    assert result.exit_code == 3
    assert "fails  clean > 1: it is" in result.output
    assert Xml.parse(run / "junit.xml").getroot()[0].get("failures") == "1"
    again = ("audit", "--config", run / "audit.toml", "--out", run / "run", "--shifts", "fog")
    assert invoke(*again, "--require", "clean > 1").exit_code == 3
    assert invoke("gate", run / "run", "--require", "clean > 0").exit_code == 0


def test_compare_says_that_a_run_equals_itself(run, tmp_path):
    (tmp_path / "copy").symlink_to(run / "run")
    result = invoke("compare", run / "run", tmp_path / "copy", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "copy is equal to run" in result.output
    assert Path(tmp_path / "out" / "report.html").stat().st_size > 1000


def test_shared_options_read_the_same_in_every_command():
    """One name, one help text: what a user learns of one command holds for the others."""
    for name in ("size", "labels", "weights", "text_column", "on_bad_file", "address"):
        texts = {option.help for command in COMMANDS.values() for option in options_for(command) if option.name == name}
        assert len(texts) == 1, (name, texts)
