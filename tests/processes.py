"""Fresh Python processes for tests, forked from one that has imported what takes seconds.

What runs in them has its own modules' state, working directory, environment, output and exit status, as in a process
that was started anew. Tests about starting itself (what is imported, how long it takes) start their own.
"""

import atexit
import contextlib
import functools
import json
import os
import select
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

Ended: TypeAlias = subprocess.CompletedProcess[str]
ZYGOTE = "from tests.zygote import serve; serve()"


@dataclass(frozen=True)
class Stop:
    """A signal, and what says when a process gets it, asked again and again; it gets none where it ends before."""

    number: int
    when: Callable[[], bool]


def shiftproof(*arguments: object, cwd: Path | None = None, stop: Stop | None = None, columns: int = 120) -> Ended:
    """Run the command line in a terminal of so many columns, warnings being errors."""
    return _run(cwd, {"COLUMNS": str(columns), "NO_COLOR": "1"}, stop, argv=["shiftproof", *map(str, arguments)])


def python(code: str, cwd: Path, stop: Stop | None = None) -> Ended:
    """Run a piece of Python, warnings being errors."""
    return _run(cwd, {}, stop, code=code)


def measured(folder: Path) -> int:
    """Return how many cells the store in a folder holds so far."""
    if not (folder / "run.sqlite").exists():
        return 0
    with contextlib.closing(sqlite3.connect(folder / "run.sqlite")) as database:
        try:
            return int(database.execute("SELECT count(*) FROM cells").fetchone()[0])
        except sqlite3.OperationalError:  # its tables are not there yet
            return 0


def _run(cwd: Path | None, environment: dict[str, str], stop: Stop | None, **what: Any) -> Ended:
    with tempfile.TemporaryDirectory() as folder:
        out, errors = Path(folder) / "out", Path(folder) / "errors"
        request = {
            **what,
            "cwd": str(cwd or Path.cwd()),
            "environment": {**os.environ, **environment},
            "out": str(out),
            "errors": str(errors),
        }
        process = _zygote()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(request).encode() + b"\n")
        pid = int(process.stdout.readline())
        while stop is not None and not select.select([process.stdout], [], [], 0.005)[0]:
            if stop.when():
                os.kill(pid, stop.number)
                break
        status = int(process.stdout.readline())
        return Ended([], status, out.read_text("utf-8"), errors.read_text("utf-8"))


@functools.cache
def _zygote() -> subprocess.Popen[bytes]:
    root = str(Path(__file__).parents[1])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    process = subprocess.Popen(
        [sys.executable, "-c", ZYGOTE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,  # or what was read ahead would not be seen by `select`
        env={**os.environ, "PYTHONPATH": path},
    )
    atexit.register(process.communicate)
    return process
