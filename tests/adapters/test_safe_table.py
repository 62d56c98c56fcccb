"""The table of safe adaptation: methods that went along different streams are compared on the same ones."""

from __future__ import annotations

from typing import Any

from benchmarks.safe_adaptation import paired


def test_differences_are_of_the_streams_that_both_went_along() -> None:
    rows: list[dict[str, Any]] = [
        {"accuracy": {"source": 0.5, "rdumb": 0.6}, "choices": {}},
        {"accuracy": {"source": 0.1, "rdumb": 0.9, "petta": 0.3}, "choices": {"safe 1/50": [{"accuracy": 0.7}]}},
        {"accuracy": {"source": 0.2, "petta": 0.4}, "choices": {}},
    ]
    lines = list(paired(rows, ("source", "rdumb", "safe 1/50")))
    assert lines[0] == "| method | streams | above source, points | above rdumb, points | above safe 1/50, points |"
    assert "| petta | 2 | 20.0 ± 0.0 | -60.0 ± 0.0, of 1 | -40.0 ± 0.0, of 1 |" in lines
    assert "| safe 1/50 | 1 | 60.0 ± 0.0 | -20.0 ± 0.0 |  |" in lines
