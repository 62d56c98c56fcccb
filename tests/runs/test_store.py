"""What is on disk: stores of older versions, of interrupted writes, on full, read-only and foreign file systems."""

import errno
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from shiftproof.errors import RunError
from shiftproof.exports.array_copies import write_rows
from shiftproof.runs import Cell, Plan, Result, Store, drive, lock, write_atomically
from shiftproof.runs.schema import MIGRATIONS, SCHEMA, version_of
from shiftproof.runs.store import FAILED
from shiftproof.runs.task import canonical
from shiftproof.training.record import TrainingLog

SUBJECT = {"model": "m"}
PLAN = Plan(tuple(Cell("square", n=n) for n in range(50)), SUBJECT)


def fill(store: Store, cells: int = 50) -> None:
    for n, (identity, cell) in enumerate(list(PLAN.identities().items())[:cells]):
        store.save(identity, Result(cell, {"square": n * n}, None, 0.5))


def first_version(folder: Path) -> None:
    """Write a store as the first version did."""
    folder.mkdir()
    database = sqlite3.connect(folder / "run.sqlite", isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL)")
    database.execute(
        "CREATE TABLE cells (id TEXT PRIMARY KEY, task TEXT NOT NULL, parameters TEXT NOT NULL, "
        "result TEXT, error TEXT, seconds REAL NOT NULL)"
    )
    database.executemany("INSERT INTO about VALUES (?, ?)", {"schema": "1", **SUBJECT}.items())
    for n, (identity, cell) in enumerate(PLAN.identities().items()):
        row = None if n == 3 else f'{{"square":{n * n}}}'
        values = (identity, cell.kind, canonical(cell.parameters()), row, "failed" if n == 3 else None, 0.5)
        database.execute("INSERT INTO cells VALUES (?, ?, ?, ?, ?, ?)", values)
    database.close()


class TestMigration:
    def test_every_version_leads_to_this_one(self):
        version, seen = "", set()
        while version in MIGRATIONS:
            seen.add(version)
            version = MIGRATIONS[version][0]
        assert version == SCHEMA
        assert seen == set(MIGRATIONS)

    def test_a_store_of_the_first_version_goes_on(self, tmp_path):
        first_version(tmp_path / "run")
        with Store(tmp_path / "run", SUBJECT) as store:
            assert len(store.done()) == 49
            results = store.results(PLAN)
        assert [result.row and result.row["square"] for result in results[:5]] == [0, 1, 4, None, 16]
        database = sqlite3.connect(tmp_path / "run" / "run.sqlite")
        for query, index in ((FAILED, "INDEX failed"), ("SELECT id FROM cells", "COVERING INDEX")):
            assert index in str(database.execute(f"EXPLAIN QUERY PLAN {query}").fetchall())
        assert version_of(database) == SCHEMA
        database.close()

    def test_a_store_that_is_only_read_is_left_as_it_is(self, tmp_path):
        first_version(tmp_path / "run")
        before = (tmp_path / "run" / "run.sqlite").read_bytes()
        with Store(tmp_path / "run") as store:
            assert len(store.results(PLAN)) == 50
            assert store.about()["schema"] == SCHEMA
        assert (tmp_path / "run" / "run.sqlite").read_bytes() == before

    def test_a_kill_between_tables_and_their_version_is_the_first_version(self, tmp_path):
        first_version(tmp_path / "run")
        database = sqlite3.connect(tmp_path / "run" / "run.sqlite")
        with database:
            database.execute("DELETE FROM about WHERE name = 'schema'")
        database.close()
        with Store(tmp_path / "run", SUBJECT) as store:
            assert len(store.done()) == 49

    def test_a_migration_that_fails_leaves_the_old_store(self, tmp_path, monkeypatch):
        first_version(tmp_path / "run")
        broken = {**MIGRATIONS, "1": ("2", ("CREATE TABLE extra (n)", "CREATE TABLE cells (n)"))}
        monkeypatch.setattr("shiftproof.runs.schema.MIGRATIONS", broken)
        with pytest.raises(RunError, match="Cannot use the run directory"):
            Store(tmp_path / "run", SUBJECT)
        monkeypatch.undo()
        with Store(tmp_path / "run", SUBJECT) as store:
            assert len(store.done()) == 49


def test_a_store_cut_anywhere_in_its_log_opens_with_its_first_transactions(tmp_path):
    with Store(tmp_path / "run", SUBJECT) as store:
        fill(store)
        shutil.copytree(tmp_path / "run", tmp_path / "whole")  # as a machine that loses power at this moment leaves it
    log = tmp_path / "whole" / "run.sqlite-wal"
    content = log.read_bytes()
    kept = []
    for cut in range(0, len(content), len(content) // 23):
        shutil.copytree(tmp_path / "whole", tmp_path / str(cut))
        (tmp_path / str(cut) / "run.sqlite-shm").unlink()
        (tmp_path / str(cut) / "run.sqlite-wal").write_bytes(content[:cut])
        with Store(tmp_path / str(cut), SUBJECT) as store:
            results = store.results(PLAN)
            assert [result.row for result in results] == [{"square": n * n} for n in range(len(results))]
            kept.append(len(results))
    assert kept == sorted(kept)
    assert kept[0] == 0
    assert kept[-1] > 40


def test_a_store_is_read_beside_the_driver_at_work(tmp_path):
    with Store(tmp_path / "run", SUBJECT) as store:
        fill(store, 7)
        with Store(tmp_path / "run") as reader:
            assert len(reader.results(PLAN)) == 7
            assert {result.task.parameters()["n"] for result in reader} == set(range(7))


class TestLock:
    def test_the_owner_is_told(self, tmp_path):
        with Store(tmp_path, SUBJECT), pytest.raises(RunError, match=f"process {os.getpid()} on "):
            Store(tmp_path, SUBJECT)

    def test_a_number_in_the_file_holds_nothing(self, tmp_path):
        """As after a kill, when another process, alive now, has got the number of the dead one."""
        (tmp_path / lock.FILE).write_text(f"process {os.getppid()} on elsewhere")
        Store(tmp_path, SUBJECT).close()

    def test_a_killed_owner_leaves_no_lock(self, tmp_path):
        script = (
            "import os, signal, sys; from pathlib import Path; from shiftproof.runs import Store; "
            "store = Store(Path(sys.argv[1]), {'model': 'm'}); os.kill(os.getpid(), signal.SIGKILL)"
        )
        assert subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False).returncode == -9
        assert "process" in (tmp_path / lock.FILE).read_text()
        Store(tmp_path, SUBJECT).close()

    @pytest.mark.skipif(sys.platform == "win32", reason="flock is of Unix")
    def test_a_file_system_without_locks_is_named(self, tmp_path, monkeypatch):
        def without(*_: object) -> None:
            raise OSError(errno.ENOLCK, "No locks available")

        monkeypatch.setattr("fcntl.flock", without)
        with pytest.raises(RunError, match=r"has no locks(.|\n)*a disk of this machine"):
            Store(tmp_path, SUBJECT)


@pytest.fixture
def read_only(tmp_path):
    """Give a folder with a finished run, mounted read-only."""
    with Store(tmp_path / "run", SUBJECT) as store:
        fill(store)
    bind = ["mount", "--bind", str(tmp_path / "run"), str(tmp_path / "run")]
    again = ["mount", "-o", "remount,ro,bind", str(tmp_path / "run")]
    if shutil.which("mount") is None or subprocess.run(bind, capture_output=True, check=False).returncode:
        pytest.skip("mounting needs rights that this user does not have")
    try:
        subprocess.run(again, check=True, capture_output=True)
        yield tmp_path / "run"
    finally:
        subprocess.run(["umount", str(tmp_path / "run")], check=True)


def test_a_read_only_file_system_can_be_read_and_is_named_when_it_should_be_written(read_only):
    with pytest.raises(RunError, match="Cannot write in the run directory"):
        Store(read_only, SUBJECT)
    with Store(read_only) as store:
        assert len(store.results(PLAN)) == 50


class TestLinks:
    def test_a_lock_that_is_a_link_is_refused(self, tmp_path):
        (tmp_path / "key").write_text("precious")
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / lock.FILE).symlink_to("../key")
        with pytest.raises(RunError, match="is a link"):
            Store(tmp_path / "run", SUBJECT)
        assert (tmp_path / "key").read_text() == "precious"

    def test_a_store_that_is_a_link_is_refused(self, tmp_path):
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "run.sqlite").symlink_to("../elsewhere")
        with pytest.raises(RunError, match="is a link"):
            Store(tmp_path / "run", SUBJECT)
        assert not (tmp_path / "elsewhere").exists()

    def test_a_file_is_written_in_place_of_a_link(self, tmp_path):
        (tmp_path / "key").write_text("precious")
        (tmp_path / "results.json").symlink_to("key")
        write_atomically(tmp_path / "results.json", "new")
        assert (tmp_path / "key").read_text() == "precious"
        assert not (tmp_path / "results.json").is_symlink()


@pytest.mark.skipif(sys.platform == "win32", reason="masks are of Unix")
@pytest.mark.parametrize(("mask", "mode"), [(0o077, 0o600), (0o022, 0o644), (0o002, 0o664)])
def test_files_have_the_permissions_that_the_user_asks_for(tmp_path, mask, mode):
    before = os.umask(mask)
    try:
        write_atomically(tmp_path / "new", "text")
    finally:
        os.umask(before)
    assert (tmp_path / "new").stat().st_mode & 0o777 == mode
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


DAMAGES = {
    "result": ["'{\"square\":'", "'[1]'", "CAST(x'7B22FF223A317D' AS TEXT)", "'{\"square\":50}'", "NULL", "x'00'"],
    "error": ["'failed'"],
    "seconds": ["0.25", "'0.5s'"],
    "task": ["'cube'"],
    "parameters": ["'{\"n\":8}'", "'{\"n\":'"],
    "id": ["'0' || substr(id, 2) || 'x'"],
    "checksum": ["NULL", "'0'"],
}


@pytest.mark.parametrize(("column", "damage"), [(column, one) for column, some in DAMAGES.items() for one in some])
def test_a_damaged_row_is_told_and_measured_again(tmp_path, column, damage):
    with Store(tmp_path, SUBJECT) as store:
        fill(store)
    with closing(sqlite3.connect(tmp_path / "run.sqlite")) as database, database:
        database.execute(f"UPDATE cells SET {column} = {damage} WHERE parameters = '{{\"n\":7}}'")
    with pytest.warns(UserWarning, match=r"1 stored result is damaged .* left out"):
        store = Store(tmp_path)
    with store:
        assert len(store.results(PLAN)) == 49
        assert len(list(store)) == 49
    with pytest.warns(UserWarning, match=r"damaged .* measured again"):
        store = Store(tmp_path, SUBJECT)
    with store:
        assert len(store.done()) == 49
        results = drive(PLAN, store, Squares)
    assert [result.row and result.row["square"] for result in results] == [n * n for n in range(50)]
    Store(tmp_path, SUBJECT).close()  # nothing is damaged now


@pytest.mark.parametrize("damage", ["value = 'n'", "name = 'mdel'", "checksum = NULL"])
def test_damaged_notes_are_told_and_nothing_goes_on(tmp_path, damage):
    with Store(tmp_path, SUBJECT) as store:
        fill(store, 3)
    with closing(sqlite3.connect(tmp_path / "run.sqlite")) as database, database:
        database.execute(f"UPDATE about SET {damage} WHERE name = 'model'")
    for subject in (SUBJECT, None):
        with pytest.raises(RunError, match="the settings of the run are damaged"):
            Store(tmp_path, subject)


def test_a_file_whose_structure_is_broken_is_not_written_to(tmp_path):
    with Store(tmp_path, SUBJECT) as store:
        fill(store)
    content = bytearray((tmp_path / "run.sqlite").read_bytes())
    content[36:40] = (5).to_bytes(4, "big")  # so many pages are said to be free
    (tmp_path / "run.sqlite").write_bytes(content)
    with pytest.raises(RunError, match=r"damaged|malformed"):
        Store(tmp_path, SUBJECT)
    assert (tmp_path / "run.sqlite").read_bytes() == content


class Squares:
    def measure(self, cell):
        return {"square": cell["n"] ** 2}


def test_rows_and_logs_are_not_written_through_links(tmp_path):
    (tmp_path / "key").write_bytes(b"")
    np.save(tmp_path / "array.npy", np.zeros((2, 3), np.uint8))
    before = (tmp_path / "array.npy").read_bytes()
    (tmp_path / "part.npy").symlink_to("array.npy")
    with pytest.raises(RunError, match="is a link"):
        write_rows(tmp_path / "part.npy", 0, np.ones((1, 3), np.uint8))
    assert (tmp_path / "array.npy").read_bytes() == before
    record = TrainingLog(tmp_path / "run")
    record.path.unlink()
    record.path.symlink_to("../key")
    with pytest.raises(RunError, match="is a link"):
        record.add({"step": 1})
    record.close()
    assert (tmp_path / "key").read_bytes() == b""
