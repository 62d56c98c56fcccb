"""Modules made from users' files: a worker process makes them again, so that what they define can be sent to it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from types import ModuleType

FILES: dict[str, str] = {}
"""Module -> the file it was made from: model files, and what they import from beside them."""


class _FromFiles(MetaPathFinder):
    """Finds what nothing else on the path finds."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        file = FILES.get(fullname)
        return None if file is None else spec_from_file_location(fullname, file)


def make_importable(files: Mapping[str, str]) -> None:
    """Let modules be imported from these files, in a process that has not run them itself."""
    if not files:
        return
    FILES.update(files)
    sys.dont_write_bytecode = True  # a user's folder is left as it is
    sys.meta_path.append(_FromFiles())
