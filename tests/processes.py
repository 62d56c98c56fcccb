"""Fresh Python processes for tests, forked from one that has imported what takes seconds.

What runs in them has its own modules' state, working directory, environment, output and exit status, as in a process
that was started anew. Tests about starting itself (what is imported, how long it takes, signals) start their own.
"""

import atexit
import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ZYGOTE = "from tests.zygote import serve; serve()"


def shiftproof(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command line, warnings being errors."""
    return _run(cwd, {"COLUMNS": "120", "NO_COLOR": "1"}, argv=["shiftproof", *map(str, arguments)])


def python(code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a piece of Python, warnings being errors."""
    return _run(cwd, {}, code=code)


def _run(cwd: Path | None, environment: dict[str, str], **what: Any) -> subprocess.CompletedProcess[str]:
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
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        status = int(process.stdout.readline())
        return subprocess.CompletedProcess([], status, out.read_text("utf-8"), errors.read_text("utf-8"))


@functools.cache
def _zygote() -> subprocess.Popen[str]:
    root = str(Path(__file__).parents[1])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    process = subprocess.Popen(
        [sys.executable, "-c", ZYGOTE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    atexit.register(process.communicate)
    return process
