"""The command line: every command is a verb, with the verb's own parameters as options."""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import NoReturn

import typer

from shiftproof.cli.application import INTERRUPTED, app
from shiftproof.errors import Interrupted, ShiftproofError

__all__ = ["app", "main"]


def main() -> None:
    """Run a command; an error that a user can act on is one paragraph and an exit status, never a traceback."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    # NumPy's threads wait for more work by turning, for as long as many a batch takes, and PyTorch's have to share the
    # cores with them. NumPy reads this when it is imported, which no command has done yet.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    debug = "--debug" in sys.argv  # understood before or after the command
    try:
        app([argument for argument in sys.argv[1:] if argument != "--debug"])
    except ShiftproofError as error:
        if debug:
            raise
        typer.echo(f"shiftproof: {error}", err=True)
        sys.exit(error.status)
    except Interrupted:
        typer.echo("shiftproof: interrupted. What was measured is saved; the same command resumes it.", err=True)
        sys.exit(INTERRUPTED)
    finally:
        gc.freeze()  # the process ends: going through all that torch imported once more would take half a second


def _interrupt(*_: object) -> NoReturn:
    raise Interrupted
