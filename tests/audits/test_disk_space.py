"""How much of a disk an audit takes: what is announced is near what is written, and what cannot fit is refused."""

import shutil
from typing import Any

import pytest

import shiftproof
from shiftproof.audits.disk_space import BESIDES, PICTURES, refuse_full_disk
from shiftproof.errors import RunError


def test_what_is_announced_is_near_what_is_written(tmp_path):
    heard: list[Any] = []
    options: dict[str, Any] = {"images": 100, "sections": ["clean", "corruptions"]}
    shiftproof.audit("demo", "demo", **options, shifts=["fog", "contrast"], out=tmp_path, on_plan=heard.append)
    for_images = heard[0].disk - BESIDES - PICTURES * 32**2
    written = (tmp_path / "images.csv").stat().st_size
    rows = len((tmp_path / "images.csv").read_text().splitlines()) - 1
    assert rows == 100 * 11
    assert 0.9 * written < for_images < 1.3 * written
    assert sum(entry.stat().st_size for entry in tmp_path.iterdir()) < heard[0].disk


def test_a_run_that_its_disk_has_no_room_for_is_refused_but_for_what_is_there(tmp_path):
    free = shutil.disk_usage(tmp_path).free
    refuse_full_disk(tmp_path, free // 2)
    refuse_full_disk(tmp_path, free + BESIDES // 2)
    with pytest.raises(RunError, match=r"too little room.*[\s\S]*expected +about [\d.]+ GB[\s\S]*--images"):
        refuse_full_disk(tmp_path, 2 * free)
    there = tmp_path / "run.sqlite"
    with there.open("wb") as file:
        file.truncate(2 * free)  # sparse: it takes no space
    refuse_full_disk(tmp_path, 2 * free)
