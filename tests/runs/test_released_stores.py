"""Stores as versions wrote them: every later version opens them, with the same numbers."""

import json
import shutil
from pathlib import Path

import pytest

import shiftproof
from shiftproof.version import __version__

STORES = Path(__file__).parents[1] / "stores"
WRITTEN = sorted(path.name for path in STORES.iterdir() if (path / "run.sqlite").is_file())


@pytest.fixture
def run(request, tmp_path):
    shutil.copy(STORES / request.param / "run.sqlite", tmp_path)
    return tmp_path


def test_this_version_has_one():
    assert __version__ in WRITTEN


@pytest.mark.parametrize("run", WRITTEN, indirect=True, ids=WRITTEN)
def test_its_results_are_read_and_reported(run, request):
    expected = json.loads((STORES / request.node.callspec.id / "numbers.json").read_text())
    found = shiftproof.gate(run, require=["clean_accuracy > 0.9"])
    assert {name: found.numbers[name] for name in expected} == expected
    assert found.passed
    assert (found.missing, found.failed) == (0, ())
    report = shiftproof.report(run).report
    assert "brightest channel" in report.read_text()
