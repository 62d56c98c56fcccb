"""Shifts and methods an audit takes as they are: texts with a level or a severity, chains, and objects."""

import json
import time
from typing import Any

import pytest
from typer.testing import CliRunner

import shiftproof
from shiftproof import shifts
from shiftproof.adapters import method
from shiftproof.cli import app
from shiftproof.errors import ConfigurationError

CHAIN = "fog@3 + jpeg_compression@2"
SMALL: dict[str, Any] = {"images": 20, "severities": [5], "sections": ["clean", "corruptions"]}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("given") / "run"
    given: list[Any] = [
        "contrast",
        shifts.corruption("fog", 3),
        "rotate=15",
        CHAIN,
        "grayscale",
        shifts.parse("rotate=15"),
    ]
    return shiftproof.audit("demo", "demo", out=folder, shifts=given, **SMALL)


def cells(result):
    """Return the cells of accuracy under a shift, by what the shift is called."""
    found = json.loads((result.folder / "results.json").read_text())["cells"]
    return {cell["shift"] for cell in found if cell["task"] == "corruptions"}


def test_each_is_measured_once_and_as_it_is(run):
    assert cells(run) == {"contrast@5", "fog@3", "rotate=15", CHAIN, "grayscale"}
    names = {name for name in run.numbers if name.startswith("accuracy.")}
    assert names == {f"accuracy.{each}" for each in ("contrast", "fog", "rotate=15", CHAIN, "grayscale")}
    assert not run.failed
    data, model = shiftproof.load_data("demo").take(20), shiftproof.load_model("demo")
    (batch,) = data.batches(20)
    assert batch.labels is not None
    turned: Any = shifts.parse("rotate=15")(batch.inputs, batch.keys, seed=0)
    right = model(turned).argmax(1).eq(batch.labels).double().mean()
    assert run.numbers["accuracy.rotate=15"] == pytest.approx(float(right))


def test_the_table_has_a_column_for_what_has_no_severity(run):
    view = next(view for view in run.views if view.section == "corruptions")
    table: Any = view.blocks[0]
    titles = [column.title for column in table.columns]
    assert titles[3:] == ["as given", "severity 3", "severity 5"]
    rows = {row[0]: row[3:] for row in table.rows}
    assert [value is not None for value in rows["fog"]] == [False, True, False]
    assert [value is not None for value in rows["contrast"]] == [False, False, True]
    assert [value is not None for value in rows["rotate=15"]] == [True, False, False]
    text = run.report.read_text()
    assert "as given" in text
    assert "rotate=15" in text
    assert "severity 0" not in text


def test_a_run_is_reopened_with_what_it_was_given(run, monkeypatch):
    before = run.report.read_text()
    monkeypatch.setattr(time, "strftime", lambda *_: "long afterwards")  # a report says when it was measured
    again = shiftproof.gate(run.folder, require=["accuracy.rotate=15 > 1%", f"accuracy.{CHAIN} > 1%"])
    assert again.passed
    assert again.numbers == run.numbers
    assert not shiftproof.gate(run.folder, require=["accuracy.rotate=15 > 100%"]).passed
    shiftproof.report(run.folder)
    assert run.report.read_text() == before


def test_the_command_line_takes_the_same_texts(run, tmp_path):
    options = ["--images", "20", "--severities", "5", "--sections", "clean,corruptions", "--out", str(tmp_path / "run")]
    given = ["--shifts", "contrast,fog@3", "--shifts", f"{CHAIN},rotate=15", "--shifts", "grayscale"]
    done = CliRunner().invoke(app, ["audit", *options, *given], env={"COLUMNS": "160"})
    assert done.exit_code == 0, done.output
    assert "as given" in done.output
    numbers = json.loads((tmp_path / "run" / "results.json").read_text())["numbers"]
    assert numbers == run.numbers
    gated = CliRunner().invoke(app, ["gate", str(tmp_path / "run"), "--require", "accuracy.rotate=15 > 100%"])
    assert gated.exit_code == 3
    assert "fails  accuracy.rotate=15 > 1" in gated.output


@pytest.mark.slow
def test_every_section_takes_them(tmp_path):
    given = ["contrast@5", "rotate=15", CHAIN, "augmix"]
    result = shiftproof.audit("demo", "demo", out=tmp_path, shifts=given, images=12, methods=[method("bn"), "tent"])
    assert not result.failed
    assert {"gain.bn", "gain.tent"} <= set(result.numbers)
    assert shiftproof.gate(tmp_path).numbers == result.numbers


def test_what_does_not_fit_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="applies to texts"):
        shiftproof.audit("demo", "demo", out=tmp_path / "a", shifts=["typos@3"], **SMALL)
    with pytest.raises(ConfigurationError, match="Invalid shift"):
        shiftproof.audit("demo", "demo", out=tmp_path / "a", shifts=[3], **SMALL)  # type: ignore[list-item]
    with pytest.raises(ConfigurationError, match="severity"):
        shiftproof.audit("demo", "demo", out=tmp_path / "a", shifts=["fog@9"], **SMALL)
    assert not (tmp_path / "a").exists()
