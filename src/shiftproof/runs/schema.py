"""The tables of a store, by version, and how a store of one version becomes one of the next.

A migration is a list of statements. It runs inside one transaction with the note of the new version, so that a kill in
the midst of it leaves the old store.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Mapping, Sequence

SCHEMA = "3"

MIGRATIONS: Mapping[str, tuple[str, Sequence[str]]] = {
    "": (
        "1",
        (
            "CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
            "CREATE TABLE cells (id TEXT PRIMARY KEY, task TEXT NOT NULL, parameters TEXT NOT NULL, "
            "result TEXT, error TEXT, seconds REAL NOT NULL)",
        ),
    ),
    # What is done is asked at every start: all but the failed, told from indices without a look at the large rows.
    "1": ("2", ("CREATE INDEX failed ON cells (id) WHERE result IS NULL",)),
    # A disk, or a copy of a file, can lose a bit: what was stored before checksums is taken as it is.
    "2": (
        "3",
        (
            "ALTER TABLE cells ADD COLUMN checksum TEXT",
            "ALTER TABLE about ADD COLUMN checksum TEXT",
            "UPDATE cells SET checksum = checksum_of(id, task, parameters, result, error, seconds)",
        ),
    ),
}
"""Version -> the next version, and the statements that lead there; the empty text is a new file."""


def checksum(*values: str | bytes | float | None) -> str:
    """Return 16 hexadecimal digits of BLAKE2 of the values of a row, which are stored beside them."""
    return hashlib.blake2b(repr(values).encode("utf-8", "backslashreplace"), digest_size=8).hexdigest()


def version_of(database: sqlite3.Connection) -> str:
    """Return the version of a store's tables; a new file has none."""
    if not database.execute("SELECT name FROM sqlite_master WHERE name = 'about'").fetchone():
        return ""
    noted = database.execute("SELECT value FROM about WHERE name = 'schema'").fetchone()
    return str(noted[0]) if noted else "1"  # the first version noted itself a moment after it made its tables


def is_older(database: sqlite3.Connection) -> bool:
    """Say whether there are migrations to run."""
    return version_of(database) in MIGRATIONS


def migrate(database: sqlite3.Connection) -> None:
    """Bring a store's tables to this version; one of a version not known here is left as it is."""
    database.create_function("checksum_of", -1, checksum, deterministic=True)
    while (version := version_of(database)) in MIGRATIONS:
        version, statements = MIGRATIONS[version]
        for statement in statements:
            database.execute(statement)
        database.execute("INSERT OR REPLACE INTO about (name, value) VALUES ('schema', ?)", (version,))
        if version == SCHEMA:
            database.execute("UPDATE about SET checksum = checksum_of(name, value)")
