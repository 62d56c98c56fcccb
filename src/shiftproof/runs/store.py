"""Where results are kept: one SQLite file per run directory, written by the driver alone.

Each result is one transaction in write-ahead mode, so a kill at any moment loses at most the tasks in flight, and a
store from an interrupted write opens as it was after its last whole transaction. Each row has a checksum: a result that
is not as it was written, after a bad disk or a bad copy, is told of, left out, and measured again.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from shiftproof.errors import RunError, printable
from shiftproof.runs.cell import Cell
from shiftproof.runs.files import is_writable
from shiftproof.runs.lock import Lock
from shiftproof.runs.plan import Plan, Result
from shiftproof.runs.schema import SCHEMA, checksum, is_older, migrate
from shiftproof.runs.task import AnyTask, Row, canonical

FILE = "run.sqlite"
FAILED = "SELECT id FROM cells WHERE result IS NULL"
FETCHED = 500
"""Results read with one query."""
_VALUES = "id, task, parameters, result, error, seconds"
"""What the checksum of a result is of."""


class Store:
    """The results of one run directory; a context manager that holds the directory's lock.

    `subject` identifies the run (fingerprints, version); a directory made for another subject is an error. None opens
    the store read-only, even while a run is in progress. A store written by an older version is migrated: in the file
    if it is opened to resume, in memory if it is only read.

    Args:
        folder: The run directory.
        subject: What the run is about; None opens the store read-only.

    >>> from shiftproof.runs import Cell, Plan, drive
    >>> class Square:
    ...     def measure(self, task):
    ...         return {"y": task.parameters()["x"] ** 2}
    >>> with Store(folder, {"about": "squares"}) as store:
    ...     drive(Plan((Cell("square", x=3),), {}), store, Square)[0].row
    {'y': 9}
    """

    def __init__(self, folder: Path, subject: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.path = folder / FILE
        if subject is None and not self.path.is_file():
            raise RunError(
                f"There is no run in {str(folder)!r}.",
                expected=f"a run directory, which holds {FILE}",
                fix="give the folder that a command such as `shiftproof audit` wrote",
            )
        if subject is not None:
            with self._errors():
                folder.mkdir(parents=True, exist_ok=True)
        self._lock = Lock(folder) if subject is not None else None
        try:
            self._open(subject)
        except BaseException:
            self.close()
            raise

    def _open(self, subject: Mapping[str, str] | None) -> None:
        with self._errors():
            self._db = self._connect("ro" if subject is None else "rwc")
            if subject is not None:
                # Where a file system cannot share memory, SQLite stays with a rollback journal, which needs full syncs.
                (journal,) = self._db.execute("PRAGMA journal_mode = WAL").fetchone()
                self._db.execute(f"PRAGMA synchronous = {'NORMAL' if journal == 'wal' else 'FULL'}")
                with self._transaction():
                    migrate(self._db)
            elif is_older(self._db):
                self._db = _in_memory(self._db)
                migrate(self._db)
            about = self.about()
        if about["schema"] != SCHEMA:
            raise RunError(
                f"The run in {str(self.folder)!r} was written by another version.",
                expected=f"store schema {SCHEMA} or older",
                got=f"schema {about['schema']}",
                fix="choose another folder, or use the version that wrote it",
            )
        if subject is not None:
            self._check_structure()
            self._check_subject(about, subject)
        self._leave_out_damaged(forget=subject is not None)

    def _check_structure(self) -> None:
        """Refuse a file whose own structure is broken: what is written into it could be lost, or overwrite the rest."""
        with self._errors():
            (found,) = self._db.execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok":
                raise sqlite3.DatabaseError(f"its file is damaged: {found}")

    def _leave_out_damaged(self, *, forget: bool) -> None:
        """Tell of results that are not as they were written; who goes on forgets them: their tasks run again."""
        with self._errors():
            stored = self._db.execute(f"SELECT rowid, {_VALUES}, checksum FROM cells")
            damaged = [(number,) for number, *values, noted in stored if not _sound(values, noted)]
            if forget and damaged:
                with self._transaction():
                    self._db.executemany("DELETE FROM cells WHERE rowid = ?", damaged)
        if damaged:
            what = "1 stored result is" if len(damaged) == 1 else f"{len(damaged):,} stored results are"
            then = "measured again" if forget else "left out; the command that made them measures them again"
            warnings.warn(f"{what} damaged in {str(self.path)!r}, and {then}.", stacklevel=4)

    def _connect(self, mode: str) -> sqlite3.Connection:
        if mode == "rwc" and self.path.is_symlink():  # SQLite would make, or change, the file that it leads to
            raise OSError(f"{FILE} is a link, and nothing is written through links")
        uri = f"{self.path.absolute().as_uri()}?mode={mode}"
        if mode == "rwc" or is_writable(self.folder):
            return _opened(uri)
        if not self._log.exists():
            return _opened(uri + "&immutable=1")  # nobody can write here, nor can SQLite its own side files
        with tempfile.TemporaryDirectory() as folder:  # which it needs for a log that a killed driver left
            for file in (self.path, self._log):
                shutil.copyfile(file, Path(folder, file.name))
            return _in_memory(_opened(Path(folder, FILE).as_uri()))

    @property
    def _log(self) -> Path:
        """Where transactions are until SQLite moves them to the file."""
        return self.path.with_name(f"{FILE}-wal")

    def _check_subject(self, about: Mapping[str, str], subject: Mapping[str, str]) -> None:
        for name, value in subject.items():
            if name in about and about[name] != value:
                another = "other" if name.endswith("s") and not name.endswith("ss") else "another"  # epochs; fitness
                raise RunError(
                    f"The run in {str(self.folder)!r} is about {another} {name}.",
                    expected=f"{name} {about[name]}, as in the folder",
                    got=f"{name} {value}",
                    fix="choose another folder; the results in this one are left as they are",
                )
        self.note(subject)

    def about(self) -> dict[str, str]:
        """Return what the run is about, as noted."""
        with self._errors():
            found = self._db.execute("SELECT name, value, checksum FROM about").fetchall()
            if any(checksum(name, value) != noted for name, value, noted in found):
                raise sqlite3.DatabaseError("the settings of the run are damaged")
        return {name: value for name, value, _ in found}

    def note(self, facts: Mapping[str, str]) -> None:
        """Keep facts about the run, replacing those of the same name."""
        with self._errors(), self._transaction():
            rows = [(name, value, checksum(name, value)) for name, value in facts.items()]
            self._db.executemany("INSERT OR REPLACE INTO about VALUES (?, ?, ?)", rows)

    def done(self) -> set[str]:
        """Return the identities of the tasks that have a result; failed ones are not among them."""
        with self._errors():
            failed = {identity for (identity,) in self._db.execute(FAILED)}
            return {identity for (identity,) in self._db.execute("SELECT id FROM cells") if identity not in failed}

    def save(self, identity: str, result: Result) -> None:
        """Keep a result, in one transaction."""
        row = None if result.row is None else canonical(result.row)
        error = None if result.error is None else printable(result.error)
        task = result.task
        values = (identity, task.kind, canonical(task.parameters()), row, error, result.seconds)
        with self._errors(), self._transaction():
            self._db.execute("INSERT OR REPLACE INTO cells VALUES (?, ?, ?, ?, ?, ?, ?)", (*values, checksum(*values)))

    def forget(self, identities: Iterable[str]) -> None:
        """Drop results, in one transaction: their tasks run again."""
        with self._errors(), self._transaction():
            self._db.executemany("DELETE FROM cells WHERE id = ?", [(identity,) for identity in identities])

    def results(self, plan: Plan) -> list[Result]:
        """Return the results of a plan's tasks, in the plan's order; tasks that have not run are left out."""
        return list(self.find(plan.identities()))

    def find(self, tasks: Mapping[str, AnyTask]) -> Iterator[Result]:
        """Yield the results of tasks by identity, in their order, where there are any that can be read."""
        remaining = iter(tasks)
        while some := list(islice(remaining, FETCHED)):
            query = f"SELECT {_VALUES}, checksum FROM cells WHERE id IN ({','.join('?' * len(some))})"
            with self._errors():
                found = {values[0]: values for *values, noted in self._db.execute(query, some) if _sound(values, noted)}
            for identity in some:
                if identity in found:
                    _, _, _, row, error, seconds = found[identity]
                    yield Result(tasks[identity], _row(row), error, seconds)

    def descriptions(self, identities: Collection[str]) -> dict[str, str]:
        """Return what stored tasks are, as they print, by identity."""
        return {values[0]: f"{values[1]} {values[2]}" for values in self._all() if values[0] in identities}

    def __iter__(self) -> Iterator[Result]:
        """Yield every result that can be read, of whatever plan, each with its task as it is described."""
        for _, kind, parameters, row, error, seconds in self._all():
            yield Result(Cell(kind, **json.loads(parameters)), _row(row), error, seconds)

    def _all(self) -> list[Any]:
        with self._errors():
            stored = self._db.execute(f"SELECT {_VALUES}, checksum FROM cells")
            return [values for *values, noted in stored if _sound(values, noted)]

    def close(self) -> None:
        """Close the file and release the directory."""
        if hasattr(self, "_db"):
            self._db.close()
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn what the disk or SQLite reports into an error with a way on."""
        try:
            yield
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:  # the last: names in a damaged file's own errors
            raise RunError(
                f"Cannot use the run directory {str(self.folder)!r}.",
                reason=str(error),
                fix="free some space, or choose another folder; what was saved is kept, and the same "
                "command resumes from there",
            ) from error


def _opened(place: str) -> sqlite3.Connection:
    database = sqlite3.connect(place, uri=True, isolation_level=None)
    database.text_factory = lambda stored: stored.decode("utf-8", "surrogateescape")  # damaged text is told by checksum
    return database


def _in_memory(file: sqlite3.Connection) -> sqlite3.Connection:
    made = _opened(":memory:")
    file.backup(made)
    file.close()
    return made


def _sound(values: Sequence[Any], noted: object) -> bool:
    return checksum(*values) == noted


def _row(stored: str | None) -> Row | None:
    return None if stored is None else cast(Row, json.loads(stored))
