"""What the files of figures hold, as the tables read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

Files: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Name -> what a file of figures holds: the figures themselves, and where they come from."""


def figures(files: Files, name: str) -> dict[str, Any]:
    """Return the figures of a table; none where it was not run."""
    found: dict[str, Any] = files[name]["figures"] if name in files else {}
    return found
