"""The table of safe adaptation: methods that went along different streams are compared on the same ones."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.safe_adaptation import file_of, paired, row_of, save
from benchmarks.safe_lanes import Unit, shared_out
from benchmarks.safe_streams import shapes


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


def test_all_are_compared_on_what_all_have_answered(tmp_path: Path) -> None:
    shape = next(shapes())
    labels = np.arange(300) % 10
    save(tmp_path / "labels" / f"{shape.name}.npy", labels)
    for name, length in (("source", 300), ("petta", 100), ("bn", 0), ("rdumb", 200)):
        answers = labels[:length].copy()
        answers[150:] = 99  # what only some have answered does not count
        answers[:10] += name == "petta"
        save(file_of(tmp_path, (shape, "demo", name, 1.0)), answers)
    chosen = argparse.Namespace(methods=("source", "bn", "rdumb", "petta"), out=tmp_path)
    row = row_of((shape, "demo", 1.0), chosen)
    assert row is not None
    assert row["images"] == 100
    assert row["accuracy"] == {"source": 1.0, "rdumb": 1.0, "petta": 0.9}
    assert row["choices"]["safe 1/50"][0]["accuracy"] == 1.0


def test_processes_get_about_as_much_each() -> None:
    by_size = [[shape for shape in shapes() if shape.batch == size] for size in (64, 16, 1)]
    names = ("source", "rdumb", "eata", "rdumbpp", "asr", "petta")
    units = [Unit(model, name, some) for model in ("a", "b") for name in names for some in by_size]
    parts = shared_out(units, 6)
    assert sorted(map(id, units)) == sorted(id(unit) for part in parts for unit in part)
    for name, model in {(unit.name, unit.model) for unit in units}:
        assert sum(any((unit.name, unit.model) == (name, model) for unit in part) for part in parts) == 1
    loads = [sum(unit.share for unit in part) for part in parts]
    assert max(loads) < 2 * min(loads) + 1
