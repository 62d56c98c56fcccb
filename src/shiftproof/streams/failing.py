"""A cell that failed, told to the user: work that goes on from it cannot go on."""

from __future__ import annotations

from shiftproof.errors import RunError
from shiftproof.runs import Result


def stop_at_failure(result: Result, what: str) -> None:
    """Raise the error of a failed cell: a user's own as it is, an unforeseen one by its last line."""
    if result.error is None:
        return
    unforeseen = result.error.startswith("Traceback")
    raise RunError(f"{what} failed: {result.error.strip().splitlines()[-1]}" if unforeseen else result.error)
