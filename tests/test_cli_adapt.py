"""`shiftproof compare-methods` as a user meets it."""

import json

import pytest

from tests.test_cli import shiftproof


def test_compares_methods_under_shifts_and_resumes(tmp_path):
    given = ("--shift", "contrast@5", "--method", "bn,lame,guard", "--images", "16", "--out", tmp_path)
    first = shiftproof("adapt", *given)
    assert first.returncode == 0, first.stderr
    for word in ("contrast@5", "source", "bn", "lame", "guard", "points won", "time per batch"):
        assert word in first.stdout
    written = json.loads((tmp_path / "methods.json").read_text())
    assert {row["method"] for row in written["rows"]} == {"source", "bn", "lame", "guard"}
    again = shiftproof("adapt", *given)
    assert again.stdout == first.stdout  # nothing was measured anew, times included


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "say what to adapt to"),
        (("--shift", "fog@3", "--stream", "ccc"), "say what to adapt to"),
        (("--shift", "fog@9"), "severity"),
        (("--shift", "fog@3", "--method", "tnt"), "tent"),
        (("--shift", "fog@3", "--prior", "some"), "--prior"),
        (("--stream", "river"), "--stream"),
    ],
)
def test_refusals(arguments, words, tmp_path):
    result = shiftproof("adapt", *arguments, "--images", "8", "--out", tmp_path)
    assert result.returncode != 0
    assert words in result.stderr
    assert "Traceback" not in result.stderr
