"""Bits of a store flip: the audit gives the same results or says that something is wrong, never others in silence."""

from __future__ import annotations

import json
import random
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest

import shiftproof
from shiftproof.audits import gate
from shiftproof.errors import ShiftproofError

OPTIONS: dict[str, Any] = {"images": 12, "shifts": ["contrast"], "severities": [2, 5], "sections": ["corruptions"]}
FLIPS = 3
QUICK, MANY = 10, 300


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("damage") / "run"
    shiftproof.audit("demo", "demo", out=out, **OPTIONS)
    return out


def numbers(folder: Path) -> Any:
    content = json.loads((folder / "results.json").read_text())
    del content["timing"]
    return content


def told(work: Any) -> bool:
    """Whether an audit was read, or made, with something said against it."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            found = work()
        except ShiftproofError:
            return True
    return bool(said or found.missing or found.failed)


def flipped(run: Path, copy: Path, seed: int) -> None:
    shutil.copytree(run, copy)
    chance = random.Random(seed)
    content = bytearray((copy / "run.sqlite").read_bytes())
    for _ in range(FLIPS):
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    (copy / "run.sqlite").write_bytes(content)
    (copy / "results.json").unlink()


def check(run: Path, folder: Path, times: int) -> None:
    """Flip bits, then read the run, and then go on with it."""
    silent = 0
    for seed in range(times):
        copy = folder / str(seed)
        flipped(run, copy, seed)
        for work in (lambda copy=copy: gate(copy), lambda copy=copy: shiftproof.audit(out=copy, **OPTIONS)):
            if not told(work):
                silent += 1
                assert numbers(copy) == numbers(run), f"other results in silence with seed {seed}"
        shutil.rmtree(copy)
    assert silent < 2 * times, "no flip was ever told: this test sees nothing"


def test_three_flipped_bits_change_nothing_in_silence(run: Path, tmp_path: Path) -> None:
    check(run, tmp_path, QUICK)


@pytest.mark.slow
def test_three_flipped_bits_300_times_change_nothing_in_silence(run: Path, tmp_path: Path) -> None:
    check(run, tmp_path, MANY)
