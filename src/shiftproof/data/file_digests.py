"""Digests of whole files, remembered between runs: a folder of a million images is read once, until a file changes.

A file is known by its device, inode, size and times of change. What is remembered is in the user's cache folder, apart
from all runs, and nothing depends on it: without it, or where it is damaged or cannot be written, files are read.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor

from shiftproof.data.contents import digests
from shiftproof.runs.files import cache_folder
from shiftproof.runs.schema import checksum

FILE = "digests-1.sqlite"
SETTLED_NS = 2 * 10**9
"""A file that changed less than this long ago is read: another change might leave its times as they are."""
MOST = 5_000_000
"""Files remembered; the oldest are forgotten."""
AT_ONCE = 8192
"""Files looked at together: what is known of each takes more memory than its digest."""
THREADS = 8
"""For reading, which is mostly waiting."""
_BUSY_SECONDS = 0.5
_FAILURES = (sqlite3.Error, OSError, UnicodeDecodeError)
"""What a damaged database ends in; the last where its own errors quote what is no text."""

Identity: TypeAlias = tuple[int, int, int, int, int]


def file_digests(files: Sequence[str | Path], root: Path | None = None) -> Tensor:
    """Return 63 bits of BLAKE2 of the whole content of each file, by its path, below `root` where one is given, [N]."""
    home = root or Path()
    parts = (files[start : start + AT_ONCE] for start in range(0, len(files), AT_ONCE))
    found = [_digests_of([home / file for file in some]) for some in parts]
    return torch.cat(found) if found else torch.empty(0, dtype=torch.int64)


def _digests_of(paths: Sequence[Path]) -> Tensor:
    before = [_identity(path) for path in paths]
    known = _remembered(before)
    unknown = [place for place, identity in enumerate(before) if identity not in known]
    made = torch.tensor([known.get(identity, 0) for identity in before], dtype=torch.int64)
    with ThreadPoolExecutor(THREADS) as pool:
        read = pool.map(lambda place: int(digests([paths[place].read_bytes()])), unknown)
        for place, digest in zip(unknown, read, strict=True):
            made[place] = digest
    settled = time.time_ns() - SETTLED_NS
    _remember(
        {
            before[place]: int(made[place])
            for place in unknown
            if max(before[place][3:]) < settled and _identity(paths[place]) == before[place]
        }
    )
    return made


def _identity(path: Path) -> Identity:
    found = path.stat()
    # The time of status change cannot be set, as that of modification can after an edit.
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _remembered(identities: Sequence[Identity]) -> dict[Identity, int]:
    found: dict[Identity, int] = {}
    folder = cache_folder()
    if folder is None or not (folder / FILE).is_file():
        return found
    with suppress(*_FAILURES), closing(_opened(folder / FILE, "ro")) as database:
        for name, identity in {_name(each): each for each in identities}.items():
            row = database.execute("SELECT digest, checksum FROM digests WHERE file = ?", (name,)).fetchone()
            if row is not None and isinstance(row[0], int) and row[1] == checksum(name, row[0]):
                found[identity] = row[0]
    return found


def _remember(found: Mapping[Identity, int]) -> None:
    folder = cache_folder()
    if folder is None or not found:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with closing(_opened(folder / FILE, "rwc")) as database, database:
            database.execute(
                "CREATE TABLE IF NOT EXISTS digests (file TEXT PRIMARY KEY, digest INTEGER, checksum TEXT)"
            )
            database.executemany("INSERT OR REPLACE INTO digests VALUES (?, ?, ?)", _rows(found))
            database.execute("DELETE FROM digests WHERE rowid <= (SELECT max(rowid) - ? FROM digests)", (MOST,))
    except _FAILURES:
        with suppress(OSError):
            _drop_if_damaged(folder / FILE)


def _opened(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=_BUSY_SECONDS)


def _drop_if_damaged(path: Path) -> None:
    """Remove a cache that is no database any more, so that the next one can be made."""
    try:
        with closing(_opened(path, "ro")) as database:
            damaged = database.execute("PRAGMA quick_check(1)").fetchone() != ("ok",)
    except sqlite3.OperationalError:  # it is busy, or not there
        return
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        damaged = True
    if damaged:
        path.unlink(missing_ok=True)


def _rows(found: Mapping[Identity, int]) -> Iterator[tuple[str, int, str]]:
    for identity, digest in found.items():
        name = _name(identity)
        yield name, digest, checksum(name, digest)


def _name(identity: Identity) -> str:
    return "-".join(map(str, identity))
