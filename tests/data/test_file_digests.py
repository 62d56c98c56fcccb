"""Digests of files are of their content, whatever is remembered, and remembering spares reading."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from shiftproof.data import file_digests as module
from shiftproof.data.contents import digests
from shiftproof.data.file_digests import FILE, file_digests
from shiftproof.runs.files import cache_folder
from tests.hostile import ordinary_rights


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "SETTLED_NS", -(10**12))  # files made a moment ago count as old
    folder = cache_folder()
    assert folder == tmp_path / "cache" / "shiftproof"
    return folder


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    made = [tmp_path / f"{number}.bin" for number in range(5)]
    for number, path in enumerate(made):
        path.write_bytes(bytes([number]) * 10_000)
    return made


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give the names of the files that are read."""
    found: list[str] = []
    read = Path.read_bytes

    def noted(path: Path) -> bytes:
        found.append(path.name)
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", noted)
    return found


def true_digests(files: list[Path]) -> torch.Tensor:
    return digests(np.fromfile(path, np.uint8).tobytes() for path in files)


def test_files_are_read_once(cache: Path, files: list[Path], reads: list[str]) -> None:
    for _ in range(2):
        assert torch.equal(file_digests(files), true_digests(files))
    assert sorted(reads) == sorted(path.name for path in files)
    files[0].rename(files[0].with_name("renamed.bin"))
    assert len(file_digests([files[0].with_name("renamed.bin"), *files[1:]])) == 5


def edited(path: Path) -> None:
    """Change a byte in the midst, and put the time of modification back, as some tools do."""
    before = path.stat()
    content = bytearray(path.read_bytes())
    content[5000] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replaced(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(b"x" * 10_000)
    os.utime(other, ns=(0, path.stat().st_mtime_ns))
    other.replace(path)


@pytest.mark.parametrize("change", [edited, replaced])
def test_a_changed_file_is_read_again_though_its_size_and_time_are_as_before(
    cache: Path, files: list[Path], change: Any
) -> None:
    before = file_digests(files)
    change(files[2])
    after = file_digests(files)
    assert torch.equal(after, true_digests(files))
    assert (before != after).tolist() == [False, False, True, False, False]


def test_what_changed_a_moment_ago_is_not_remembered(
    cache: Path, files: list[Path], reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor what will change, by a clock that went back."""
    monkeypatch.setattr(module, "SETTLED_NS", 10**12)
    file_digests(files)
    monkeypatch.setattr(module, "SETTLED_NS", 0)
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now - 10**15)
    file_digests(files)
    assert len(reads) == 10
    assert not cache.exists()


def wrong_digest(cache: Path) -> None:
    with closing(sqlite3.connect(cache / FILE)) as database, database:
        database.execute("UPDATE digests SET digest = digest + 1")


def wrong_type(cache: Path) -> None:
    with closing(sqlite3.connect(cache / FILE)) as database, database:
        database.execute("UPDATE digests SET digest = 'x'")


def other_table(cache: Path) -> None:
    with closing(sqlite3.connect(cache / FILE)) as database, database:
        database.execute("DROP TABLE digests")
        database.execute("CREATE TABLE digests (n)")


def cut(cache: Path) -> None:
    (cache / FILE).write_bytes((cache / FILE).read_bytes()[:5000])


def other_file(cache: Path) -> None:
    (cache / FILE).write_bytes(b"no database" * 1000)


def folder_instead(cache: Path) -> None:
    (cache / FILE).unlink()
    (cache / FILE).mkdir()


def file_instead(cache: Path) -> None:
    (cache / FILE).unlink()
    cache.rmdir()
    cache.write_text("")


DAMAGES = [wrong_digest, wrong_type, other_table, cut, other_file, folder_instead, file_instead]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_cache_is_as_good_as_none(cache: Path, files: list[Path], damage: Any) -> None:
    file_digests(files)
    damage(cache)
    for _ in range(3):
        assert torch.equal(file_digests(files), true_digests(files))


@pytest.mark.parametrize("damage", [wrong_digest, cut, other_file])
def test_a_damaged_cache_is_made_anew(cache: Path, files: list[Path], damage: Any, reads: list[str]) -> None:
    file_digests(files)
    damage(cache)
    for _ in range(2):
        file_digests(files)
    reads.clear()
    file_digests(files)
    assert reads == []


def test_a_read_only_cache_is_read_and_a_locked_one_waits_for_nobody(
    cache: Path, files: list[Path], reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BUSY_SECONDS", 0.01)
    file_digests(files[:3])
    cache.chmod(0o555)
    try:
        with ordinary_rights():
            assert torch.equal(file_digests(files), true_digests(files))
    finally:
        cache.chmod(0o755)
    reads.clear()
    with closing(sqlite3.connect(cache / FILE, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert torch.equal(file_digests(files), true_digests(files))
    assert len(reads) == 5


def test_no_more_is_remembered_than_agreed(cache: Path, files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 3)
    file_digests(files)
    with closing(sqlite3.connect(cache / FILE)) as database:
        assert database.execute("SELECT count(*) FROM digests").fetchone() == (3,)


def test_without_a_home_files_are_read(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def without() -> Path:
        raise RuntimeError("no home")

    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", without)
    assert torch.equal(file_digests(files), true_digests(files))
