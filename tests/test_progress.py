"""What is seen while work goes on: lines in a log where there is no terminal; and before, what is cut, and why."""

from __future__ import annotations

import io
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import shiftproof
from shiftproof.audits import audit_settings
from shiftproof.audits.forecast import Forecast
from shiftproof.cli.derive import Option, value_of
from shiftproof.cli.terminal import Progress


def logged() -> tuple[Progress, io.StringIO]:
    text = io.StringIO()
    return Progress(Console(file=text, width=200), every=0.01), text


def wait_for(text: io.StringIO, wanted: str) -> None:
    for _ in range(6000):  # a minute, which is forever
        if wanted in text.getvalue():
            return
        time.sleep(0.01)
    pytest.fail(f"{wanted!r} is not in {text.getvalue()!r}")


def test_a_log_gets_lines_also_while_a_task_takes_long():
    progress, text = logged()
    with progress:
        wait_for(text, "preparing, after 0 s\n")
        progress.on_progress(3, 12, None)
        wait_for(text, "measuring 3 of 12, after 0 s\n")
    ended = text.getvalue()
    time.sleep(0.05)
    assert text.getvalue() == ended


def test_a_terminal_gets_a_bar_and_no_lines():
    text = io.StringIO()
    with Progress(Console(file=text, force_terminal=True, width=80), every=0.01) as progress:
        progress.on_progress(3, 12, None)
        time.sleep(0.1)
    assert ", after" not in text.getvalue()


def test_what_is_cut_and_why_is_told_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setitem(audit_settings.ALLOWED, "cpu", 1e5)  # for which the demo's network is costly
    heard: list[Forecast] = []
    options: dict[str, Any] = {"images": 60, "shifts": ["contrast"], "sections": ["clean", "corruptions"]}
    shiftproof.audit("demo", "demo", out=tmp_path, on_plan=heard.append, **options)
    (forecast,) = heard
    assert forecast.kept == {"corruptions": (60 + 60 + 8) / (60 + 60 * 5 + 8)}
    assert "billion operations" in forecast.why
    progress, text = logged()
    progress.on_plan(forecast)
    assert "% of the budget's passes" in text.getvalue()
    assert forecast.why in text.getvalue()
    heard.clear()
    monkeypatch.undo()
    shiftproof.audit("demo", "demo", out=tmp_path / "whole", on_plan=heard.append, **options)
    assert (heard[0].kept, heard[0].why) == ({}, "")


def test_folders_may_have_commas_in_their_names():
    runs = Option("verb", "runs", list[Path], (), "", Path)
    assert value_of(runs, ["a,b", "c"]) == [Path("a,b"), Path("c")]
