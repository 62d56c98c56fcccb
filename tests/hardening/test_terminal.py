"""What a person at a terminal sees of hardening: every weakness, what came of it, and where things are."""

from typing import Any

import pytest

from shiftproof.cli.showing_hardening import show_hardened
from shiftproof.hardening.between import Candidate
from shiftproof.hardening.choice import Choice
from shiftproof.hardening.hardened import Change, Hardened
from shiftproof.hardening.training_time import Fitted
from shiftproof.hardening.weaknesses import Weakness

CHOICE = Choice(
    (
        Weakness("noise", 0.125, 0.25, "[bold]coloured_noise", 0.05, "coloured_noise"),
        Weakness("blur", 0.01, None, None, 0.05, "random_blur"),
    ),
    "augmix",
    "coloured_noise",
    Fitted(2, None, "sgd", 0.01, 0.99, 20, 0.1),
    worth=True,
)


@pytest.fixture
def shown(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")

    def show(outcome: Any, **parts: Any) -> list[str]:
        show_hardened(Hardened(tmp_path, outcome, CHOICE, (60, 30, 30), 1.0, **parts), {})
        out: str = capsys.readouterr().out
        return out.splitlines()

    return show


def test_a_hardened_network(shown, tmp_path):
    kept = Candidate(0.5, 0.9, 0.8)
    lines = shown("hardened", kept=kept, changes=(Change("clean_accuracy", 0.9, 0.95, 0.02, 0.08),))
    assert [line.split() for line in lines[1:3]] == [
        ["noise", "25.0", "[bold]coloured_noise"],  # the larger loss of both; markup is text
        ["blur", "1.0", "left", "out"],
    ]
    assert "Hardened: clean accuracy 90.0% to 95.0%, +5.0 points (+2.0 to +8.0 points)." in lines
    assert f"model    {tmp_path / 'model'}" in lines
    assert f"report   {tmp_path / 'report.html'}" in lines
    assert f"numbers  {tmp_path / 'hardened.json'}" in lines


def test_a_network_that_stays_as_it_was_has_no_model(shown, tmp_path):
    lines = shown("nothing to mend")
    assert any(line.startswith("Nothing is worth changing") for line in lines)
    assert f"report   {tmp_path / 'report.html'}" in lines
    assert not any(line.startswith("model") for line in lines)
