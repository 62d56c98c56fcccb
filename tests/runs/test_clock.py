"""A clock that goes back changes nothing: no decision depends on the date."""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path
from typing import Any

import pytest

import shiftproof

OPTIONS: dict[str, Any] = {"images": 12, "shifts": ["contrast"], "severities": [5], "sections": ["corruptions"]}


def numbers(folder: Path) -> Any:
    content = json.loads((folder / "results.json").read_text())
    del content["timing"]
    return content


def test_a_clock_that_goes_back_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shiftproof.audit(out=tmp_path / "usual", **OPTIONS)
    count = itertools.count()
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: 1e9 - 3600 * next(count))
        patch.setattr(time, "time_ns", lambda: 10**18 - 3600 * 10**9 * next(count))
        shiftproof.audit(out=tmp_path / "odd", **OPTIONS)
        again = shiftproof.audit(out=tmp_path / "odd", **OPTIONS)
    assert numbers(tmp_path / "odd") == numbers(tmp_path / "usual")
    assert again.missing == 0
