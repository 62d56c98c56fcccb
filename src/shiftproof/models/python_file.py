"""A user's own model: a Python file with a function that builds it."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from torch import nn

from shiftproof.errors import INTERRUPTIONS, ModelError
from shiftproof.models.array_models import as_model, is_estimator
from shiftproof.models.sources import MODULE_PREFIX, SOURCE, is_users, neighbours, source_digest
from shiftproof.runs.files import is_file
from shiftproof.runs.user_modules import FILES

_LONGEST = 600
_SPEC = re.compile(r"(?P<path>.+\.py)(?::(?P<function>\w+))?")


def is_python_file(spec: str) -> bool:
    """Whether a text has the form `file.py` or `file.py:function`."""
    return _SPEC.fullmatch(spec) is not None


def split_python_file(spec: str) -> tuple[Path, str]:
    """Return the file and the function that `file.py:function` names; the function is `build` where none is named."""
    match = _SPEC.fullmatch(spec)
    if match is None:
        raise ValueError(f"not of the form file.py:function: {spec!r}")
    return Path(match["path"]), match["function"] or "build"


def load_python_file(spec: str) -> Callable[..., Any]:
    """Return what the function of `file.py:function` returns.

    The file is run as Python runs a script: it may import the files beside it, which are read anew. What it returns
    has the attribute `SOURCE`, by which its fingerprint changes with the code of any of these files.
    """
    path, function = split_python_file(spec)
    if not is_file(path):
        raise ModelError(f"There is no model file {str(path)!r}.", expected="a Python file with a function build()")
    with told(path, "reading it"):
        read = source_digest(path)
        found = neighbours(path)
        _forget(found)
        FILES.update({name: str(file.resolve()) for name, file in found.items()})
    with beside(path), told(path, "running it"):
        module = _run(path)
    return built_by(module, function, path, read, path)


def built_by(module: Any, function: str, name: str | Path, source: str, path: Path) -> Callable[..., Any]:
    """Return the model that a function of a module builds, or that it is; `source` is a digest of where it came from.

    `name` is what messages call the module, and modules in the folder of `path` can be imported meanwhile.
    """
    if not hasattr(module, function):
        known = [each for each, value in vars(module).items() if callable(value) and not each.startswith("_")]
        near = get_close_matches(function, known, n=1)
        raise ModelError(
            f"{str(name)!r} has no function {function!r}.",
            expected="a function without arguments that returns the model",
            got=", ".join(known) or "no functions",
            **({"did you mean": f"{name}:{near[0]}"} if near else {}),
        )
    target = getattr(module, function)
    if isinstance(target, nn.Module):
        return _marked(target, source)
    with beside(path), told(name, f"calling {function}()"):
        built = target()
    if not callable(built) and not is_estimator(built):
        raise ModelError(
            f"{function}() in {str(name)!r} does not return a model.",
            expected="an nn.Module, or a function from images to logits",
            got=f"a {type(built).__name__}",
        )
    return _marked(built, source)


def _marked(built: Any, source: str) -> Callable[..., Any]:
    """Return a model with its source on it; a function becomes a black box, which can bear it."""
    model: Callable[..., Any] = as_model(built)
    object.__setattr__(model, SOURCE, source)
    return model


def _forget(modules: Mapping[str, Path]) -> None:
    """Forget modules that were loaded from other files, or from these before they changed.

    Python keeps a module by its name alone: without this, two folders with a `helper.py` each would share the first
    one's, and in a notebook an edited one would stay as it was. Modules of installed packages keep their names.
    """
    for name in modules:
        if name in sys.modules and is_users(name):
            del sys.modules[name]


def _run(path: Path) -> Any:
    # A name of its own, so that a file called `timm.py` hides nothing and two files called `model.py` can both be used.
    name = MODULE_PREFIX + hashlib.blake2b(os.fsencode(path.resolve()), digest_size=8).hexdigest()
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ModelError(f"{str(path)!r} cannot be imported.", expected="a Python file with a function build()")
    module = importlib.util.module_from_spec(spec)
    FILES[name] = str(path.resolve())
    sys.modules[name] = module  # where dataclasses, pickle and `inspect.getsource` look for it
    spec.loader.exec_module(module)
    return module


@contextmanager
def beside(path: Path) -> Iterator[None]:
    """Let a file import its neighbours for a while.

    No compiled files are written: Python takes one for current after a change of the same size in the same second.
    """
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = writes
        with suppress(ValueError):  # the file may have changed the path itself
            sys.path.remove(folder)


@contextmanager
def told(path: Path | str, doing: str) -> Iterator[None]:
    """Tell what a user's code raises in one paragraph; the traceback stays behind it."""
    try:
        yield
    except (ModelError, *INTERRUPTIONS):
        raise
    except BaseException as error:
        raise ModelError(
            f"The model file {str(path)!r} failed.",
            got=f"{type(error).__name__} while {doing}: {_shortened(str(error)) or 'no message'}",
            fix="run the file on its own to see where; --debug shows the traceback",
        ) from error


def _shortened(message: str) -> str:
    """Return what an error says in one line: its first line, and more where that only announces what follows."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    said = lines[0] if lines else ""
    return " ".join(lines)[:_LONGEST] if said.endswith(":") else said
