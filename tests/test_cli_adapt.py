"""`shiftproof compare-methods` as a user meets it."""

import json

import pytest

from tests.processes import shiftproof


def test_compares_methods_under_shifts_and_resumes(tmp_path):
    given = (
        "--shifts",
        "contrast@5",
        "--methods",
        "bn,lame",
        "--methods",
        "guard",
        "--images",
        "16",
        "--out",
        tmp_path,
    )
    first = shiftproof("compare-methods", *given)
    assert first.returncode == 0, first.stderr
    for word in ("contrast@5", "source", "bn", "lame", "guard", "points gained", "time per batch"):
        assert word in first.stdout
    written = json.loads((tmp_path / "methods.json").read_text())
    assert {row["method"] for row in written["rows"]} == {"source", "bn", "lame", "guard"}
    again = shiftproof("compare-methods", *given)
    assert again.stdout == first.stdout  # nothing was measured anew, times included


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("compare-methods", "--source", "nowhere/at/all"), "There is no data"),
        (("compare-methods", "--shifts", "fog@9"), "severity"),
        (("compare-methods", "--shifts", "fog@3", "--methods", "tnt"), "tent"),
        (("compare-methods", "--shifts", "fog@3", "--option", "prior=some"), "'prior'"),
        (("compare-on-stream", "--stream", "river"), "no stream named 'river'"),
    ],
)
def test_refusals(arguments, words, tmp_path):
    result = shiftproof(*arguments, "--images", "8", "--out", tmp_path)
    assert result.returncode != 0
    assert words in result.stderr
    assert "Traceback" not in result.stderr
