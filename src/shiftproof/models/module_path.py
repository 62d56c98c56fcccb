"""A model by the path of a Python module: `package.module:build`, found as `import` finds it, or in this folder."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from shiftproof.models.python_file import beside, built_by, told
from shiftproof.models.sources import is_users, source_digest

_SPEC = re.compile(r"(?P<module>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*):(?P<function>[A-Za-z_]\w*)")


def is_module_path(spec: str) -> bool:
    """Whether a text has the form `package.module:function`, and there is such a module."""
    match = _SPEC.fullmatch(spec)
    if match is None:
        return False
    with beside(Path("module.py")):
        try:
            return find_spec(match["module"]) is not None
        except (ModuleNotFoundError, ValueError):  # the package it would be in is none
            return False
        except Exception:  # it is there, and cannot be imported
            return True


def load_module_path(spec: str) -> Callable[..., Any]:
    """Return what the function of `package.module:function` returns, known by the code of the module if it is a user's.

    Modules of the folder where Python was started are found too.
    """
    name, _, function = spec.partition(":")
    path = Path("module.py")
    with beside(path), told(spec, "importing it"):
        module = importlib.import_module(name)
    file = getattr(sys.modules[name], "__file__", None)
    read = source_digest(Path(file)) if file and is_users(name) else name
    return built_by(module, function, spec, read, path)
