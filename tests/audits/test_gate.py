"""Requirements: how they are read, what they say of numbers that are there or not, and JUnit's XML."""

import json
import shutil
import sqlite3
import sys
from contextlib import closing
from dataclasses import replace
from typing import Any, ClassVar
from xml.etree import ElementTree as Xml

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from typer.testing import CliRunner

import shiftproof
from shiftproof.audits import gate
from shiftproof.audits.numbers import find
from shiftproof.audits.requirements import COMPARISONS, Check, Requirement, junit, parse, parse_all
from shiftproof.audits.sections import SECTIONS, section
from shiftproof.cli import app
from shiftproof.errors import ConfigurationError, UsageError
from shiftproof.runs import Store
from tests.hostile import ordinary_rights, snapshot


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """Every section on a tiny model."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)).eval()
    images = np.random.default_rng(0).integers(0, 256, (104, 8, 8, 3), dtype=np.uint8)
    options: dict[str, Any] = {"shifts": ["contrast", "fog"], "severities": [5], "methods": ["bn"]}
    return shiftproof.audit(model, (images, [0, 1] * 52), out=tmp_path_factory.mktemp("run"), **options)


def gated(audited, *requirements):
    return gate(audited.folder, require=requirements)


@given(
    st.sampled_from(["mce", "accuracy.fog", "acr.fog@3", "worst_case"]),
    st.sampled_from(list(COMPARISONS)),
    st.floats(-1e6, 1e6).map(lambda value: round(value, 3)),
    st.sampled_from(["", " ", "  "]),
)
def test_what_is_written_is_read(name, comparison, limit, space):
    found = parse(f"{space}{name}{space}{comparison}{space}{limit!r}{space}")
    assert (found.name, found.comparison) == (name, comparison)
    assert found.limit == pytest.approx(limit)


def test_percent_is_a_share():
    assert parse("worst_case>40%").limit == pytest.approx(0.4)


@pytest.mark.parametrize(
    "text",
    ["", "mce", "mce <", "< 70", "mce = 70", "mce == 70", "mce < nan", "mce < 1e999", "mce < x", "mce < 70 or 1 < 2",
     "__import__('os').system('true') < 1", "mce << 70", "70 > mce", "mce < 70; mce > 0"],
)  # fmt: skip
def test_anything_else_is_refused_and_never_evaluated(text):
    with pytest.raises(ConfigurationError, match="Cannot parse the requirement"):
        parse(text)


def test_a_misspelt_name_is_told_before_any_work():
    with pytest.raises(ConfigurationError) as error:
        parse_all(["mcee < 70"], ["clean", "corruptions"])
    assert "did you mean  mce" in str(error.value)


def test_a_misspelt_name_and_a_percentage_without_its_sign_are_told_by_gate(audited):
    for wrong, said in (("clean_acuracy > 0", "clean_accuracy"), ("clean_accuracy > 80", "clean_accuracy > 80%")):
        with pytest.raises(UsageError) as error:
            gated(audited, wrong)
        assert said in str(error.value)
        assert error.value.status == 2
    gated(audited, "clean_accuracy <= 1", "corruption_loss > -1")


def test_mce_is_of_imagenet_alone(audited):
    assert "mce" not in audited.numbers
    (one,) = gated(audited, "mce < 70").checks
    assert "given on ImageNet's 1,000 classes" in one.reason


def test_a_number_of_a_section_that_will_not_run_is_told_before_any_work(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be checked"):
        shiftproof.audit("demo", "demo", out=tmp_path / "run", sections=["clean"], require=["mce < 70"])
    assert not (tmp_path / "run").exists()


def test_requirements_hold_or_do_not(audited):
    value = audited.numbers["clean_accuracy"]
    checks = gated(audited, f"clean_accuracy >= {value}", f"clean_accuracy > {value}", f"clean >= {value}").checks
    assert [one.passed for one in checks] == [True, False, True]
    assert [one.value for one in checks] == [value] * 3
    assert f"it is {value:.4g}" in str(checks[1])
    assert not gated(audited, f"clean > {value}").passed
    assert gated(audited).passed


def test_a_section_s_name_stands_for_its_headline(audited):
    assert [view.section for view in audited.views if view.section not in SECTIONS] == ["caveats", "mistakes"]
    told = [view.section for view in audited.views if view.section in SECTIONS]
    checks = gated(audited, *(f"{name} < 1e9" for name in told)).checks
    for name, one in zip(told, checks, strict=True):
        assert one.value == audited.numbers[section(name).numbers[0].name]


def test_every_number_of_an_audit_is_declared_with_its_unit(audited):
    sections = [section(name) for name in SECTIONS.own]
    for name in audited.numbers:
        found = find(name, sections)
        assert found is not None, name
        assert found[1].says
    assert {view.section for view in audited.views if view.numbers} == set(SECTIONS.own)


def test_missing_numbers_fail_with_the_reason(tmp_path):
    class Fails(nn.Module):
        def forward(self, images):
            rough = (images[..., 1:] - images[..., :-1]).abs().mean((1, 2, 3))
            return torch.stack([rough, torch.where(rough > 0.1, float("nan"), 0.0)], 1)

    flat = np.full((6, 8, 8, 3), 128, np.uint8)
    options: dict[str, Any] = {"shifts": ["gaussian_noise"], "severities": [5], "sections": ["clean", "corruptions"]}
    audit = shiftproof.audit(
        Fails(), (flat, [0, 1] * 3), out=tmp_path, require=["accuracy.gaussian_noise > 0"], **options
    )
    assert not audit.passed
    assert "tasks of corruptions failed" in audit.checks[0].reason
    (elsewhere,) = gated(audit, "worst_case > 0.4").checks
    assert "the section worst_case was not run" in elsewhere.reason
    assert not elsewhere.passed
    (case,) = Xml.fromstring(junit(audit)).iterfind(".//testcase[@name='every task was measured']/failure")
    assert "NaN" in (case.text or "")


def test_junit_has_a_case_for_every_requirement(audited, tmp_path):
    found = gate(audited.folder, require=["clean >= 0", "clean > 1"], junit=tmp_path / "junit.xml")
    suite = Xml.parse(tmp_path / "junit.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures")) == ("3", "1")
    failing = [case.get("name") for case in suite if case.find("failure") is not None]
    assert failing == ["clean > 1"]
    assert not found.passed


def test_junit_survives_what_xml_cannot_hold(audited):
    bad = Check(Requirement("x\x00<&>", "<", 1.0), "clean", None, "\x1b[31m ]]> \ud800")
    suite = Xml.fromstring(junit(replace(audited, checks=(bad,))).partition("\n")[2])
    assert "]]>" in (suite.findtext(".//failure") or "")


def test_requirements_do_not_change_the_results(audited):
    before = (audited.folder / "results.json").read_bytes()
    gated(audited, "clean > 1")
    assert (audited.folder / "results.json").read_bytes() == before
    assert json.loads(before)["numbers"] == dict(audited.numbers)


class TestUnfinished:
    """Half of the cells of a corruption are gone, as after a kill."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "images": 20,
        "shifts": ["contrast", "fog"],
        "severities": [2, 4],
        "sections": ["clean", "corruptions"],
    }

    @pytest.fixture(scope="class")
    @classmethod
    def whole(cls, tmp_path_factory):
        whole = shiftproof.audit("demo", "demo", out=tmp_path_factory.mktemp("whole"), **cls.OPTIONS)
        assert whole.missing == 0
        return whole

    @pytest.fixture
    def run(self, whole, tmp_path):
        return replace(whole, folder=shutil.copytree(whole.folder, tmp_path / "run"))

    @pytest.fixture
    def cut(self, run):
        self.change(run.folder, "DELETE FROM cells WHERE task = 'corruptions' AND parameters LIKE '%fog@4%'")
        return run.folder

    def change(self, folder, query):
        with closing(sqlite3.connect(folder / "run.sqlite")) as database, database:
            assert database.execute(query).rowcount == 1

    def test_numbers_that_lack_a_cell_are_not_given(self, cut, run):
        found = gate(cut)
        assert found.missing == 1
        assert found.numbers.keys() == {"clean_accuracy", "clean_confidence_gap", "accuracy.contrast"}
        assert found.numbers["accuracy.contrast"] == run.numbers["accuracy.contrast"]
        assert json.loads((cut / "results.json").read_text())["numbers"] == found.numbers
        said = found.views[1].verdict[0]
        assert (said.level, found.views[1].tiles) == ("bad", ())
        assert "1 of 9 tasks have no result" in said.text

    def test_nothing_passes(self, cut, tmp_path):
        found = gate(cut, require=["clean > 0", "corruptions > 0.1"], junit=tmp_path / "junit.xml")
        assert not found.passed
        assert [one.passed for one in found.checks] == [True, False]
        assert "unfinished, 1 planned tasks have no result" in found.checks[1].reason
        suite = Xml.parse(tmp_path / "junit.xml").getroot()[0]
        assert [case.get("name") for case in suite if case.find("failure") is not None] == [
            "corruptions > 0.1",
            "every task was measured",
        ]
        assert "Unfinished" in repr(found)
        assert "Unfinished" in found._repr_html_()

    @pytest.mark.parametrize("command", [("gate", "-r", "clean > 0"), ("gate",), ("report",)], ids=" ".join)
    def test_commands_say_so_and_end_with_1(self, cut, command):
        name, *options = command
        result = CliRunner().invoke(app, [name, str(cut), *options], env={"COLUMNS": "200"})
        assert result.exit_code == 1
        assert "Unfinished: 1 planned tasks have no result" in result.output

    @pytest.mark.parametrize("damage", ['{"rig', "{}", '{"right":1}'])
    def test_a_damaged_row_is_missing_and_the_same_audit_measures_it_again(self, run, damage, tmp_path):
        query = f"UPDATE cells SET result = '{damage}' WHERE task = 'corruptions' AND parameters LIKE '%fog@4%'"
        self.change(run.folder, query)
        with pytest.warns(UserWarning, match="1 stored result is damaged"):
            found = gate(run.folder, require=["clean > 0"], junit=tmp_path / "junit.xml")
        assert (found.missing, found.passed) == (1, False)
        assert 'message="0 tasks failed, 1 have no result"' in (tmp_path / "junit.xml").read_text()
        with pytest.warns(UserWarning, match="measured again"):
            again = shiftproof.audit("demo", "demo", out=run.folder, **self.OPTIONS)
        assert (again.missing, again.numbers) == (0, run.numbers)


class TestReadOnly:
    """The run is somebody else's, or on a disk that nobody writes."""

    @pytest.fixture
    def run(self, tmp_path):
        return shiftproof.audit("demo", "demo", out=tmp_path / "run", images=20, sections=["clean"])

    @pytest.fixture
    def locked(self, run):
        run.folder.chmod(0o555)
        with ordinary_rights():
            yield run.folder
        run.folder.chmod(0o755)

    def test_gate_and_report_work(self, run, locked, tmp_path):
        before = snapshot(locked)
        found = gate(locked, require=["clean > 0"], junit=tmp_path / "junit.xml")
        assert found.passed
        assert found.numbers == run.numbers
        assert (tmp_path / "junit.xml").exists()
        for command in (["gate", str(locked), "-r", "clean > 0"], ["report", str(locked)]):
            result = CliRunner().invoke(app, command)
            assert result.exit_code == 0, result.output
        assert snapshot(locked) == before

    def test_a_run_that_was_killed_and_has_no_report_is_read_with_its_log(self, run, tmp_path):
        copy = tmp_path / "copy"
        with Store(run.folder, {}) as store:
            store.note({"note": "this is in the log"})
            shutil.copytree(run.folder, copy, ignore=shutil.ignore_patterns("*-shm", "report.html"))
        assert (copy / "run.sqlite-wal").stat().st_size
        before = snapshot(copy)
        copy.chmod(0o555)
        try:
            with ordinary_rights(), pytest.warns(UserWarning, match="is read-only, and has no report"):
                found = gate(copy)
            with ordinary_rights(), Store(copy) as store:
                assert store.about()["note"] == "this is in the log"
        finally:
            copy.chmod(0o755)
        assert found.numbers == run.numbers
        assert snapshot(copy) == before


def test_a_failed_cell_takes_its_means_with_it(tmp_path):
    class Fails(nn.Module):
        def forward(self, images):
            if images.std() < 0.1:  # under contrast@5
                sys.exit(0)
            return images.mean((2, 3))[:, :2]

    data = (np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), dtype=np.uint8), [0, 1] * 3)
    options: dict[str, Any] = {"shifts": ["contrast", "brightness"], "severities": [1, 5], "sections": ["corruptions"]}
    audit = shiftproof.audit(Fails(), data, out=tmp_path, **options)
    assert any("contrast@5" in failure and "SystemExit" in failure for failure in audit.failed)
    assert audit.missing == 0
    assert audit.numbers.keys() == {"accuracy.brightness"}
