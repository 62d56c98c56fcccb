"""Whose code is it, and what is it made of: a user's file counts with the files beside it that it imports."""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from types import FunctionType, ModuleType

from torch import nn

from shiftproof.models.code_content import code_content, code_contents

MODULE_PREFIX = "shiftproof_model_"
"""What the names of modules made from users' files begin with."""
SOURCE = "shiftproof_source"
"""The attribute of what a user's file built that holds the digest of the files it came from."""

SCRIPT = ("__main__", "__mp_main__")
"""The names of the script that was started, here and in worker processes, which load it under the second."""

_LIBRARIES = frozenset({"torch", "shiftproof"})
_INSTALLED = frozenset({"site-packages", "dist-packages"})


def is_builtin(module: str) -> bool:
    """Whether a module comes with Python or PyTorch: its code is known by name."""
    top = module.partition(".")[0]
    return top in ("torch", "builtins") or top in sys.stdlib_module_names


def is_users(module: str) -> bool:
    """Whether a module is the user's own code, rather than Python's, ours or an installed package's."""
    if is_builtin(module) or module.partition(".")[0] in _LIBRARIES:
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    return module in SCRIPT if file is None else not _INSTALLED & set(Path(file).parts)


def neighbours(path: Path) -> dict[str, Path]:
    """Return the files in a Python file's folder that it imports, and those that these import, by name of module.

    Imports are read from the text, wherever in it they stand: the answer is the same in every process.
    """
    path = path.resolve()
    folder, found = path.parent, {}
    waiting = [path]
    while waiting:
        file = waiting.pop()
        for name in _imports(file, folder):
            there = _file_of(name, folder)
            if there is not None and there != path and name not in found:
                found[name] = there
                waiting.append(there)
    return dict(sorted(found.items()))


def sources(path: Path) -> dict[str, bytes]:
    """Return the text of a Python file, under the empty name, and of its neighbours, by name of module."""
    return {"": path.read_bytes(), **{name: file.read_bytes() for name, file in neighbours(path).items()}}


def source_digest(path: Path) -> str:
    """Return a digest of what a Python file and its neighbours do: docstrings, comments and formatting do not count."""
    return hashlib.blake2b(repr(code_contents(sources(path))).encode(), digest_size=16).hexdigest()


@lru_cache(maxsize=4096)  # the code that was loaded stays, whatever happens to its file
def contents_of(thing: type | FunctionType | ModuleType) -> tuple[str, ...]:
    """Return what a class, function or module does, or its name where its code is known by name or has no source.

    A class counts with all of the module that defines it where that is a user's or a plugin's, and with the modules
    beside it that this imports; but not with all of a script, which does many other things.
    """
    home = str(getattr(thing, "__module__", None) or getattr(thing, "__name__", ""))
    named = f"{home}.{getattr(thing, '__qualname__', '')}"
    if is_builtin(home):
        return (named,)
    whole = home.startswith(MODULE_PREFIX) or not isinstance(thing, FunctionType)
    layer = isinstance(thing, type) and issubclass(thing, nn.Module)
    file = getattr(sys.modules.get(home), "__file__", None)
    if whole and file and home not in SCRIPT and (is_users(home) or not (layer or home.startswith("shiftproof."))):
        try:
            found = sources(Path(file)) if is_users(home) else {"": Path(file).read_bytes()}
            return tuple(item for pair in code_contents(found).items() for item in pair)
        except OSError:
            pass
    try:
        return (code_content(inspect.getsource(thing)),)
    except (OSError, TypeError):
        return ("",) if isinstance(thing, type | FunctionType) and is_users(home) else (named,)


def _imports(file: Path, folder: Path) -> Iterator[str]:
    """Yield the full names of modules that a file may import, each after the packages it is in."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return  # whoever runs it will be told
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = _package(file, folder, node.level) if node.level else ""
            start = ".".join(filter(None, (base, node.module)))
            names = [".".join(filter(None, (start, alias.name))) for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            yield from (".".join(parts[: end + 1]) for end in range(len(parts)))


def _package(file: Path, folder: Path, level: int) -> str:
    """Return the name of the package that a relative import starts from."""
    start = file.parents[level - 1] if level <= len(file.parents) else folder
    with suppress(ValueError):  # it leaves the folder
        return ".".join(start.relative_to(folder).parts)
    return ""


def _file_of(name: str, folder: Path) -> Path | None:
    place = folder.joinpath(*name.split("."))
    for file in (place / "__init__.py", place.with_name(f"{place.name}.py")):
        if name.replace(".", "").isidentifier() and file.is_file():
            return file
    return None
